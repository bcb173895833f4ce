"""Freshness: the age of the oldest event that is in no table, what holds it, and a sentence.

    senders → listeners → journal → spool → spark → tables

Everything here is a function of `Facts`, which the daemon collects: no clock, no I/O.
Of several faults the sentence names the one to mend first.  Faults that stop events from
being taken come first, then those that keep taken ones from the tables, then what is about
to go wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from gateway.figures import advice
from gateway.spoken import duration, many, size

Stage = Literal["senders", "listeners", "journal", "spool", "spark", "tables"]
Holder = Literal["sender", "journal", "spool", "spark", "commit", "hub"]
Goal = Literal["table", "spool", "hub"]
Level = Literal["good", "warning", "bad"]

_LATE_SECONDS = 10.0
"""Seconds beyond `spool.roll_interval` after which a spool file is not being written."""
_BEHIND_SECONDS = 60.0
"""Seconds beyond two of `spark.trigger`; the alert GatewayLakeLags has the same."""
_ENDS_SOON_SECONDS = 14 * 86400.0
_CRL_ENDS_SOON_SECONDS = 7 * 86400.0
_HELD_SECONDS = 3600.0
"""The age of the moment through which tables are complete, in seconds, from which on it is told."""
_AGAIN_AND_AGAIN = 2
"""Ends of the job without a batch in between: it is not starting, it can not go on."""
_REASON_CHARACTERS = 300
_AWAY_SECONDS = 60.0
"""Seconds that a hub may be away before it is told."""


@dataclass(frozen=True, slots=True)
class Job:
    """The Spark job, as it last reported."""

    up: bool = False
    """Whether it has reported lately that it starts or runs."""
    state: str = ""
    """`starting`, `running`, `stopped`, `failed`; empty: it never reported."""
    doing: str = ""
    """The step of its start."""
    silent_seconds: float = 0.0
    """Seconds since its last word."""
    batch_seconds: float | None = None
    """Seconds of its last batch."""
    busy: bool = False
    """A batch is on its way into the tables."""
    waiting_seconds: float = 0.0
    """The age of the oldest file, of any node, that is in no table; 0 if none is."""
    holes: int = 0
    """Spool files that it could not read and moved aside."""
    ended: int = 0
    """Incarnations whose disk is gone, and whose loss is not accepted."""
    last_error: str | None = None
    failures: int = 0
    """How often it ended, unasked, since its last batch."""
    last_failure: str = ""
    """Why it did the last time."""
    complete: float | None = None
    """The age of the moment through which the tables are complete; None: not known."""
    unknown: float | None = None
    """The seconds for which that is so."""
    held_by: tuple[str, str] = ("", "")
    """The node that holds that most, and why, if one does."""


@dataclass(frozen=True, slots=True)
class Hub:
    """The gateway that gets the files."""

    to: str
    connected: bool = True
    seconds: float = 0.0
    """Seconds since it is so, or since it is not."""
    why: str = ""
    """Why not; or why it takes nothing now."""
    denied: bool = False
    """Whether it refuses this gateway, until an operator acts."""
    place: int = 1
    """The place in `forward.to`; those before it are away."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of the last complete audit."""

    seconds: float
    """Ago."""
    complete: bool = True
    missing: int = 0
    """Acknowledged events that were nowhere."""
    unknown: int = 0
    """Incarnations whose end is not known."""
    doubled: int = 0
    problems: int = 0
    """Files that it could not read."""


@dataclass(frozen=True, slots=True)
class Crl:
    """The CRL of a listener's client certificates (`tls.client_crl`)."""

    seconds: float
    """Seconds for which it is still valid."""
    refuses: bool = True
    """Clients are, once it has ended."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """One of `spool.consumers` that is too far behind."""

    name: str
    files: int
    """Files that stay for it, though their time is over; or that have gone unread."""
    bytes: int = 0
    oldest_seconds: float = 0.0
    has_come: bool = True
    """Whether it has ever said what it has read."""
    missed: bool = False
    """Whether files have gone unread."""


@dataclass(frozen=True, slots=True)
class Reload:
    """The last reload, if something was wrong with it."""

    seconds: float
    """Ago."""
    applied: bool
    """The new configuration is in force, but for files that can not be used."""
    problems: Sequence[str]


@dataclass(frozen=True, slots=True)
class Refused:
    """Connections that a listener turned away lately: all of them, or those of one address."""

    count: int
    """The number of connections."""
    seconds: float
    """The seconds in which they came."""
    peer: str
    """The last one."""
    why: str
    events: int = 0
    """Events that it took meanwhile, of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The daemon's knowledge; times are ages in seconds, None where there is nothing.

    37 attributes: a flat list, as each rule reads a few of them.
    """

    phase: str | None = None
    """Why the daemon takes nothing yet, or any more: a line for people."""
    stopping: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)
    """The reasons that hold senders back (`disk`, `commit`, `stall`, `memory`,
    `spool`), and why."""
    disk_wait: float = 0.0
    """How long the oldest batch has waited to be synced; 0: none waits."""
    stall_after: float = 5.0
    """`journal.stall_after`."""
    roll_seconds: float = 1.0
    """How long events may wait in an open segment before they become a spool file."""
    trigger_seconds: float = 1.0
    """`spark.trigger`: the job begins a batch at most this often."""
    unpublished: float | None = None
    """Age of the oldest durable event in no spool file."""
    uncommitted: float | None = None
    """Age of the oldest durable event in no table, or not at the hub."""
    newest: float | None = None
    """Age of the newest event there; with neither: in the spool."""
    listeners: Mapping[str, float | None] = field(default_factory=dict)
    """Age of each listener's oldest event in no table (without a job: in no spool file):
    0 if none waits, None if that is not known yet."""
    durable_lsn: int = 0
    brought_bytes: int = 0
    """Bytes of files of other gateways, since the start (`listeners[].protocol: forward`)."""
    connections: int = 0
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Addresses of the listeners, by name."""
    waiting_bytes: int = 0
    """Bytes in the spool, and in sealed segments."""
    limit_bytes: int | None = None
    """`spool.max_bytes`."""
    free_bytes: int | None = None
    """Bytes free on the disk for more of that, before senders are held back."""
    growth: float | None = None
    """Bytes a second by which `waiting_bytes` grows."""
    job: Job | None = None
    """None: no job is to come (`spool.after: keep`), or it reads a bucket."""
    hub: Hub | None = None
    """None: files are not forwarded."""
    bucket: bool = False
    """Files of the spool go to a bucket, and count as being there when they are."""
    bucket_error: str | None = None
    """Why they do not get there now."""
    certificates: Mapping[str, float] = field(default_factory=dict)
    """Seconds that each listener's certificate is still valid."""
    crls: Mapping[str, Crl] = field(default_factory=dict)
    """CRLs by listener."""
    publish_error: str | None = None
    """Why the spool file in hand can not be written now."""
    publish_silence: str | None = None
    """The step that has got nowhere for long, and what becomes of that."""
    lost_events: int = 0
    """Acknowledged ones that the disk did not give back in this run; at most."""
    unvouched: str = ""
    """Lost ends that this start has found, if no audit has said since that all is there."""
    twins: Sequence[tuple[str, str]] = ()
    """Nodes whose name two gateways have, and what is known of them."""
    audit: Audit | None = None
    audit_late: str | None = None
    """The reason why no audit has come to its end for long, if so."""
    reload: Reload | None = None
    refused: Mapping[str, Refused] = field(default_factory=dict)
    """Refusals of listeners that took no event lately."""
    flawed: tuple[int, int] = (0, 0)
    """Events that were published lately and are not what they claim to be; of so many."""
    consumers: Sequence[Consumer] = ()
    """The consumers that are too far behind, the worst first."""
    troubles: Sequence[str] = ()
    """Other troubles that stop no event: lines for people, the worst first."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """The judgement."""

    sentence: str
    """The first thing to know, for people; ends with a full stop."""
    level: Level
    stands: Stage | None
    """Where events stand, or will; None if they go on."""
    age_seconds: float | None
    """The age of the oldest event in no table; 0 if none waits; None if it is not known."""
    unpublished_seconds: float
    """Age of the oldest durable event that is in no spool file; 0 if there is none."""
    newest_seconds: float | None
    """The age of the newest event in a table; None if there is none since the start."""
    held_by: Holder
    """The part that has to act next for the oldest event; `sender`: none waits in here."""
    goal: Goal
    """The meaning of table; `spool` where no job is to come, `hub` where files are forwarded."""
    waiting_bytes: int = 0
    room_seconds: float | None = None
    """Seconds until senders are held back, at the rate of the last minute; None: not in sight."""
    listeners: Mapping[str, float | None] = field(default_factory=dict)
    """The `age_seconds` of each listener, by name."""
    reasons: tuple[str, ...] = ()
    """The reasons that hold senders back, as in `Facts`."""
    certificates: Mapping[str, float] = field(default_factory=dict)
    """Seconds that each listener's certificate is still valid."""
    crls: Mapping[str, Crl] = field(default_factory=dict)
    """CRLs by listener."""
    condition: str | None = None
    """The condition that the sentence is about, by its name in `gateway.figures`.

    None where all is well, or no alert is about it."""


@dataclass(frozen=True, slots=True)
class _Finding:
    level: Level
    stands: Stage | None
    condition: str | None
    said: str
    """One that ends with `:` or `;` goes on with what to do about the condition."""

    @property
    def sentence(self) -> str:
        if self.condition is None or self.said[-1] not in ":;":
            return self.said
        return f"{self.said} {advice(self.condition)}."


_bad = partial(_Finding, "bad")
_warning = partial(_Finding, "warning")
_good = partial(_Finding, "good", None, None)


def judge(facts: Facts) -> Freshness:
    """The freshness of a node with these facts."""
    found = next(_findings(facts))
    waits = facts.unpublished if _goal(facts) == "spool" else facts.uncommitted
    return Freshness(
        sentence=found.sentence,
        level=found.level,
        stands=found.stands,
        age_seconds=max(waits or 0.0, facts.disk_wait),
        unpublished_seconds=facts.unpublished or 0.0,
        newest_seconds=facts.newest,
        held_by=_holder(facts),
        goal=_goal(facts),
        waiting_bytes=facts.waiting_bytes,
        room_seconds=_room_seconds(facts),
        listeners=facts.listeners,
        reasons=tuple(facts.reasons),
        certificates=facts.certificates,
        crls=facts.crls,
        condition=found.condition,
    )


def _goal(facts: Facts) -> Goal:
    if facts.hub is not None:
        return "hub"
    return "spool" if facts.job is None else "table"


def _holder(facts: Facts) -> Holder:
    job, unpublished = facts.job, facts.unpublished
    published = unpublished is None or unpublished < (facts.uncommitted or 0.0)
    if facts.hub is not None and facts.uncommitted is not None and published:
        return "hub"
    if job is not None and facts.uncommitted is not None and published:
        return "commit" if job.up and job.busy else "spark"
    if unpublished is not None:
        return "spool" if unpublished > facts.roll_seconds else "journal"
    return "journal" if facts.disk_wait else "sender"


def _room_seconds(facts: Facts) -> float | None:
    if not facts.growth or facts.growth <= 0:
        return None
    rooms = [] if facts.free_bytes is None else [facts.free_bytes]
    limited = facts.job is not None or facts.hub is not None or facts.bucket
    if facts.limit_bytes is not None and limited:
        rooms.append(facts.limit_bytes - facts.waiting_bytes)
    return max(0, min(rooms)) / facts.growth if rooms else None


def _findings(facts: Facts) -> Iterator[_Finding]:
    """The findings, the most urgent first."""
    yield from _phase(facts)
    yield from _held(facts)
    yield from _ended_certificates(facts)
    yield from _late_files(facts)
    yield from _hub(facts)
    yield from _job(facts)
    yield from _warnings(facts)
    yield _well(facts)


def _phase(facts: Facts) -> Iterator[_Finding]:
    not_ready = partial(_bad, "listeners", "GatewayNotReady")
    if facts.stopping:
        yield not_ready(
            "The gateway is stopping: it takes nothing more, and writes what it has "
            "acknowledged to the spool."
        )
    elif facts.phase is not None and not facts.reasons:
        yield not_ready(f"The gateway is not ready, senders wait: {facts.phase}.")


def _held(facts: Facts) -> Iterator[_Finding]:
    """Senders are held back, and nothing new is acknowledged."""
    reasons = facts.reasons
    if why := reasons.get("disk"):
        yield _bad("journal", "GatewayDiskFull", f"Senders wait, because {why};")
    if why := reasons.get("commit"):
        look = "look at that disk's room and permissions, and at dmesg"
        text = f"Senders wait, because {why}; {look}."
        yield _bad("journal", "GatewayDiskFails", text)
    if facts.disk_wait >= facts.stall_after:
        text = (
            "Senders wait, because the disk does not answer: a batch has waited "
            f"{duration(facts.disk_wait)} to be synced;"
        )
        yield _bad("journal", "GatewayDiskHangs", text)
    if why := reasons.get("stall"):
        fails = facts.publish_error and f"it fails with {_short(facts.publish_error)}"
        what = facts.publish_silence or fails or "the log says what fails"
        text = f"Senders wait, because {why}; {what}."
        yield _bad("spool", "GatewayFilesLate", text)
    if why := reasons.get("memory"):
        text = (
            f"Senders wait, because they are faster than the disk: {why}; it goes on by "
            "itself."
        )
        yield _bad("journal", "GatewayHoldsBack", text)
    if (facts.bucket or facts.hub is not None) and (why := reasons.get("spool")):
        away, its = "hub", "GatewayHubAway"
        if facts.bucket:
            away, its = "bucket", "GatewayBucketAway"
        text = (
            f"Senders wait, because {why}; nothing is lost, and it goes on by itself when "
            f"the {away} does: {advice(its)}."
        )
        yield _bad("spool", "GatewaySpoolFull", text)
    if "spool" in reasons:
        limit = size(facts.limit_bytes or facts.waiting_bytes)
        text = (
            f"Senders wait, because the spool is full ({limit}, spool.max_bytes): "
            f"{_why_the_job_is_behind(facts.job or Job())}."
        )
        yield _bad("spool", "GatewaySpoolFull", text)
    for why in reasons.values():
        yield _bad("journal", None, f"Senders wait, because {why}.")


def _short(why: str) -> str:
    """A reason that may be pages of Java, as a part of a sentence."""
    text = " ".join(why.split()).rstrip(".")
    return text if len(text) <= _REASON_CHARACTERS else f"{text[:_REASON_CHARACTERS]} …"


def _why_the_job_is_behind(job: Job) -> str:
    if job.failures >= _AGAIN_AND_AGAIN:
        return f"{_fails(job)}; {advice('GatewaySparkFails')}"
    if not job.up:
        return f"{_silence(job)}; start it, and it catches up by itself"
    if job.batch_seconds is None:
        return f"Spark is {job.state or 'running'} and has committed nothing yet"
    return (
        f"Spark runs and is too slow, its last batch took {duration(job.batch_seconds)}"
    )


def _fails(job: Job) -> str:
    return (
        f"the Spark job fails again and again, {job.failures} times since its last batch: "
        f"{_short(job.last_failure)}"
    )


def _silence(job: Job) -> str:
    since = duration(job.silent_seconds)
    if not job.state:
        return "no Spark job has reported here yet"
    if job.state == "stopped":
        return f"the Spark job was stopped {since} ago"
    if job.state == "failed":
        why = f" ({_short(job.last_error)})" if job.last_error else ""
        return f"the Spark job failed {since} ago{why}"
    return f"Spark has been silent for {since}"


def _whose(certificate: str) -> str:
    """A listener's, or that which the hub is shown."""
    shown = certificate == "forward.certificate"
    return "this gateway at its hub" if shown else f"listener {certificate}"


def _ended_certificates(facts: Facts) -> Iterator[_Finding]:
    for name, left in sorted(facts.certificates.items(), key=lambda one: one[1]):
        if left <= 0:
            text = (
                f"The certificate of {_whose(name)} ended {duration(-left)} ago, and "
                "peers refuse it:"
            )
            yield _bad("listeners", "GatewayCertificateEnded", text)
    for name, crl in sorted(facts.crls.items(), key=lambda one: one[1].seconds):
        if crl.seconds <= 0 and crl.refuses:
            text = (
                f"The CRL of listener {name} ended {duration(-crl.seconds)} ago, and "
                "clients with certificates are refused:"
            )
            yield _bad("listeners", "GatewayCrlEnded", text)


def _late_files(facts: Facts) -> Iterator[_Finding]:
    if facts.bucket_error is not None:
        text = (
            f"The bucket takes no files: {_short(facts.bucket_error)}; "
            f"{_how_much(facts)};"
        )
        yield _bad("spool", "GatewayBucketAway", text)
    late = facts.roll_seconds + _LATE_SECONDS
    if facts.unpublished is not None and facts.unpublished > late:
        if facts.publish_silence is not None:
            why = f"{facts.publish_silence}."
        elif facts.publish_error is not None:
            why = f"writing them fails with {_short(facts.publish_error)}:"
        else:
            why = "the machine is too slow for what comes."
        very = facts.unpublished > _BEHIND_SECONDS
        text = (
            "Spool files are late: the oldest event that is in none is "
            f"{duration(facts.unpublished)} old, and safe in the journal; {why}"
        )
        yield (_bad if very else _warning)("spool", "GatewayFilesLate", text)


def _hub(facts: Facts) -> Iterator[_Finding]:
    hub = facts.hub
    if hub is None:
        return
    much = _how_much(facts)
    if hub.denied:
        text = f"The hub, {hub.to}, refuses this gateway: {_short(hub.why)}; {much};"
        yield _bad("spool", "GatewayHubRefuses", text)
    elif not hub.connected and hub.seconds > _AWAY_SECONDS:
        text = (
            f"The hub, {hub.to}, has been away for {duration(hub.seconds)} "
            f"({_short(hub.why)}); {much};"
        )
        yield _bad("spool", "GatewayHubAway", text)
    elif hub.connected and hub.why:
        text = f"The hub, {hub.to}, takes nothing now: {_short(hub.why)}; {much}."
        yield _warning("spool", None, text)


def _job(facts: Facts) -> Iterator[_Finding]:
    job = facts.job
    if job is None:
        return
    # Files of other gateways wait as its own do, and only their bytes tell of them.
    waits = facts.uncommitted is not None or facts.waiting_bytes > 0
    much = _how_much(facts) if waits else "nothing waits for it"
    bad = _bad if waits else _warning
    if job.failures >= _AGAIN_AND_AGAIN:
        told = _fails(job)
        text = f"{told[0].upper()}{told[1:]}; {much};"
        yield bad("spark", "GatewaySparkFails", text)
    if not (facts.durable_lsn or _has_others(facts)):
        return
    age = facts.uncommitted or 0.0
    oldest = max(age, job.waiting_seconds)
    if not job.up:
        silence = _silence(job)
        told = silence[0].upper() + silence[1:]
        ended = job.state in ("", "stopped", "failed")
        cause = "" if ended else " it was killed, or hangs: see its log, and"
        text = f"{told}; {much};{cause} {advice('GatewaySparkDown')}."
        yield bad("spark", "GatewaySparkDown", text)
    elif oldest > _BEHIND_SECONDS + 2 * facts.trigger_seconds:
        what = "runs and is behind"
        if job.state == "starting":
            what = f"is starting ({job.doing})" if job.doing else "is starting"
        text = (
            f"Spark {what}: the oldest {'event' if oldest == age else 'file'} that is "
            f"in no table is {duration(oldest)} old; {much}."
        )
        yield _warning("spark", "GatewayLakeLags", text)


def _how_much(facts: Facts) -> str:
    room = _room_seconds(facts)
    left = "" if room is None else f", room for {duration(room)}"
    return f"{size(facts.waiting_bytes)} wait{left}"


def _warnings(facts: Facts) -> Iterator[_Finding]:
    """Findings about what will go wrong, or went wrong and stands nowhere."""
    for node, how in facts.twins:
        text = (
            f"Two gateways run under the name {node} ({how}): nothing is lost, but senders "
            "that come to the other one find nothing of what protocols remember; give one "
            "of them another node."
        )
        yield _bad("listeners", None, text)
    if facts.audit is not None and not facts.audit.complete:
        yield _audited(facts.audit)
    if facts.unvouched:
        text = (
            f"Acknowledged events may be lost: {facts.unvouched}; gateway audit says what is "
            "missing, and gateway audit accept that nothing more comes."
        )
        yield _bad("tables", None, text)
    if facts.lost_events:
        text = (
            f"The disk lost up to {facts.lost_events:,} acknowledged events: the log says "
            "which, and gateway audit what the tables lack; what comes now is taken."
        )
        yield _warning("journal", "GatewayDiskFails", text)
    if facts.reload is not None:
        yield _reload(facts.reload)
    for name, one in facts.refused.items():
        took = "" if one.events else "took no event and "
        text = (
            f"Listener {name} {took}turned away {one.count} connections in "
            f"{duration(one.seconds)}; the last was {one.peer}: {_short(one.why)}."
        )
        yield _warning("listeners", "GatewayTurnsAway", text)
    for name, left in sorted(facts.certificates.items(), key=lambda one: one[1]):
        if left < _ENDS_SOON_SECONDS:
            text = f"The certificate of {_whose(name)} ends in {duration(left)}:"
            yield _warning("listeners", "GatewayCertificateEnds", text)
    for name, crl in sorted(facts.crls.items(), key=lambda one: one[1].seconds):
        if crl.seconds < _CRL_ENDS_SOON_SECONDS:
            when = f"ends in {duration(crl.seconds)}"
            if crl.seconds <= 0:
                when = f"ended {duration(-crl.seconds)} ago"
            text = f"The CRL of listener {name} {when}:"
            yield _warning("listeners", "GatewayCrlEnds", text)
    if facts.job is not None:
        yield from _left_by_the_job(facts.job)
    yield from map(_consumer, facts.consumers)
    if (hub := facts.hub) is not None and hub.connected and hub.place > 1:
        text = (
            f"All events go their way, but to {hub.to}, as what is before it in forward.to "
            "is away or refuses them;"
        )
        yield _warning(None, "GatewayOtherHub", text)
    if facts.audit_late is not None:
        text = f"All events go their way, but {facts.audit_late}:"
        yield _warning(None, "GatewayAuditLate", text)
    flawed, events = facts.flawed
    if flawed > events / 2:
        text = f"Most events are flawed, {flawed:,} of the last {events:,}:"
        yield _warning("senders", "GatewayFlawedEvents", text)
    for trouble in filter(None, map(_short, facts.troubles)):
        yield _warning(None, None, f"All events go their way, but {trouble}.")


def _left_by_the_job(job: Job) -> Iterator[_Finding]:
    node, why = job.held_by
    age = job.unknown if job.complete is None else job.complete
    if node and age is not None and age > _HELD_SECONDS:
        known = f"through {duration(age)} ago"
        if job.complete is None:
            known = f"through no moment that is known, for {duration(age)}"
        text = (
            f"All events of this gateway go their way, but the tables are complete {known}:"
            f" {node} {_short(why)}, and holds it; {advice('GatewayTablesNotComplete')}."
        )
        yield _warning("tables", "GatewayTablesNotComplete", text)
    if job.holes:
        text = (
            f"Spark could not read {many(job.holes, 'spool file')}: "
            f"{advice('GatewaySparkMovedFiles')}; all the rest is in the table."
        )
        yield _warning("tables", "GatewaySparkMovedFiles", text)
    if job.ended:
        text = (
            "A machine came back under its node's name without its disk: what it had "
            "acknowledged before may be in no table, gateway audit says what; all that "
            "came since is safe."
        )
        yield _warning("tables", None, text)


def _consumer(one: Consumer) -> _Finding:
    files = many(one.files, "file")
    if one.missed:
        condition = "GatewayConsumerMissed"
        what = f"{files} left the archive before consumer {one.name} had read them"
    else:
        condition = "GatewayConsumerBehind"
        who = "is behind" if one.has_come else "has never come"
        what = (
            f"consumer {one.name} {who}: {files} ({size(one.bytes)}) stay for it beyond "
            f"spool.retention, the oldest has been there for {duration(one.oldest_seconds)}"
        )
    return _warning(None, condition, f"All events go their way, but {what};")


def _audited(last: Audit) -> _Finding:
    ago = f"The audit of {duration(last.seconds)} ago"
    if last.missing or last.unknown:
        what = f"found {last.missing:,} acknowledged events that are nowhere"
        if not last.missing:
            what = "found a lost disk's end that nobody knows"
        condition = "GatewayMissing"
        level: Level = "bad"
    else:
        found = [
            text
            for count, text in (
                (last.doubled, f"{last.doubled:,} events that are there twice"),
                (last.problems, f"{many(last.problems, 'file')} that it can not read"),
            )
            if count
        ]
        what, level = f"found {' and '.join(found)}", "warning"
        condition = "GatewayAuditDoubts"
    return _Finding(level, "tables", condition, f"{ago} {what}:")


def _reload(last: Reload) -> _Finding:
    first, more = last.problems[0], len(last.problems) - 1
    others = f" (and {more} more)" if more else ""
    what = (
        "was applied but for files that can not be used"
        if last.applied
        else "was refused, and the configuration of before is in force"
    )
    ago = f"The last reload, {duration(last.seconds)} ago,"
    text = f"{ago} {what}: {_short(first)}{others};"
    return _warning("listeners", "GatewayReloadFailed", text)


def _well(facts: Facts) -> _Finding:
    goal = _goal(facts)
    waits = facts.unpublished if goal == "spool" else facts.uncommitted
    if not facts.durable_lsn:
        there = _of_others if _has_others(facts) else _nothing_yet
        return _good(there(facts))
    if waits is None and not facts.disk_wait:
        came = (
            "none has come since the start"
            if facts.newest is None
            else f"the newest came {duration(facts.newest)} ago"
        )
        return _good(f"All well: every event is {_there(facts)}; {came}.")
    if facts.newest is None:
        waited = duration(max(waits or 0.0, facts.disk_wait))
        return _good(
            f"All well: the oldest event on its way to the {goal} is {waited} old."
        )
    age = duration(facts.newest)
    return _good(f"All well: the newest event {_there(facts)} is {age} old.")


def _there(facts: Facts) -> str:
    """Where events are that have come all the way."""
    goal = _goal(facts)
    return "at the hub" if goal == "hub" else f"in the {goal}"


def _has_others(facts: Facts) -> bool:
    """Whether files of other gateways are here, if none of its own ever were."""
    return facts.brought_bytes > 0 or facts.waiting_bytes > 0


def _of_others(facts: Facts) -> str:
    """The sentence of a hub that has no senders of its own."""
    brought = size(facts.brought_bytes)
    waits = f"; {_how_much(facts)}" if facts.waiting_bytes else ""
    return f"All well: other gateways have brought {brought} since the start{waits}."


def _nothing_yet(facts: Facts) -> str:
    if facts.connections:
        senders = "sender is" if facts.connections == 1 else "senders are"
        return (
            f"Nothing has ever come: {facts.connections} {senders} connected and sent no "
            "event yet."
        )
    where = ", ".join(f"{name} on {at}" for name, at in facts.addresses.items())
    return f"Nothing has ever come, and nobody is connected; listening: {where}."
