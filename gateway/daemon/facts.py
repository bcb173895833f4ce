"""Collects what the freshness of a node is judged by (`gateway.admin.freshness`).

Read at every scrape and look at the page: nothing here touches the disk but the small
file in which the Spark job reports.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from gateway import config
from gateway.admin.freshness import Audit, Consumer, Crl, Facts, Hub, Refused, Reload
from gateway.admin.status import ReloadStatus
from gateway.config.revocation import CrlEnd
from gateway.daemon.lake import LakeWatch
from gateway.daemon.statistics import room_bytes
from gateway.forward import Forwarder
from gateway.net.rejection_log import Recent
from gateway.net.traffic import Traffic
from gateway.sdk.protocol import Statistics
from gateway.spoken import duration
from gateway.store.readers.audited import Audited
from gateway.store.readers.consumers import Behind
from gateway.store.spool import Published
from gateway.store.storage import Storage
from gateway.store.system.shared import SharedDeque

_WINDOW_SECONDS = 60.0
_LATELY_SECONDS = 300.0
"""A sender that is refused comes again within a minute, most of them."""
_LATE_AUDITS = 2
"""The times `spark.audit.every` without an audit; the alert GatewayAuditLate has the same."""
_FEW_SECONDS = 30.0
_FEW_VISITS = 3
_CROWD = "connections_per_peer"
_LATELY_FILES = 300


class Growth:
    """How fast what waits for Spark grows: over the last minute, in bytes a second."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, now: float, waiting_bytes: int) -> None:
        """Note the waiting bytes at *now*, by a monotonic clock; call it every few seconds."""
        seen = self._seen
        seen.append((now, waiting_bytes))
        while len(seen) > 2 and seen[1][0] <= now - _WINDOW_SECONDS:
            seen.popleft()

    @property
    def rate(self) -> float | None:
        """Bytes per second; None as long as not known; below 0 when it shrinks."""
        if len(self._seen) < 2:
            return None
        (begun, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - begun) if ended > begun else None


class Visits:
    """Counts of recent visitors: which listeners turn away all of them, or those of an address."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Mapping[str, tuple[int, int, int]]]] = deque()
        """When, and until then of each listener: events, rejections, and those of them that
        were for `limits.connections_per_peer`.
        """

    def note(self, now: float, listeners: Iterable[Source]) -> None:
        """Note counts at *now*, by a monotonic clock; call it every few seconds."""
        seen = self._seen
        events: Counter[str] = Counter()
        rejections: Counter[str] = Counter()
        crowds: Counter[str] = Counter()
        for one in listeners:  # two ports of one listener are one
            events[one.name] += one.traffic.events
            # Who was idle is not turned away: it had nothing to say.
            rejections[one.name] += sum(one.rejected.values()) - one.rejected["idle"]
            crowds[one.name] += one.rejected[_CROWD]
        figures = {
            name: (events[name], rejections[name], crowds[name]) for name in events
        }
        seen.append((now, figures))
        while len(seen) > 2 and seen[1][0] <= now - _LATELY_SECONDS:
            seen.popleft()

    def refused(self, rejections: Iterable[Recent]) -> dict[str, Refused]:
        """The refusals by listener; *rejections* are the last ones, the newest first."""
        if len(self._seen) < 2:
            return {}
        (begun, before), (ended, now) = self._seen[0], self._seen[-1]
        if ended - begun < _FEW_SECONDS:
            return {}
        found: dict[str, Refused] = {}
        for last in rejections:
            name = last.listener
            if name in found or not (name in now and name in before):
                continue
            events, count, crowd = (
                new - old for new, old in zip(now[name], before[name], strict=True)
            )
            if events and last.key == f"limits.{_CROWD}":
                count = crowd
            elif events:
                continue
            if count >= _FEW_VISITS:
                seconds = ended - begun
                found[name] = Refused(count, seconds, last.peer, last.why, events)
        return found


class Flawed:
    """How many of the events that were published lately are not what they claim to be."""

    def __init__(self) -> None:
        self._files: SharedDeque[tuple[float, int, int]] = SharedDeque(
            maxlen=_LATELY_FILES
        )

    def note(self, now: float, file: Published) -> None:
        """Note a file at *now*, by a monotonic clock; the spool's thread may call."""
        events = file.last_lsn - file.first_lsn + 1
        self._files.append((now, file.flaws.total(), events))

    def lately(self, now: float) -> tuple[int, int]:
        """The flawed events, and all events, of the last minutes."""
        since = now - _LATELY_SECONDS
        files = [one for one in self._files.snapshot() if one[0] > since]
        return sum(flawed for _, flawed, _ in files), sum(all_ for *_, all_ in files)


class Certified(Protocol):
    """An object that shows a certificate."""

    name: str

    @property
    def certificate_ends(self) -> datetime | None:
        """When its certificate does; None without TLS."""


class Source(Certified, Protocol):
    """A listener, as far as freshness goes."""

    address: str

    @property
    def traffic(self) -> Traffic:
        """The traffic since the start."""

    @property
    def rejected(self) -> Counter[str]:
        """Connections that it turned away, by reason."""

    @property
    def connections(self) -> int: ...

    @property
    def crl_end(self) -> CrlEnd | None:
        """When the CRLs for client certificates do; None: never, or there are none."""


def collect(
    settings: config.Config,
    storage: Storage,
    lake: LakeWatch,
    listeners: Sequence[Source],
    growth: float | None,
    *,
    phase: str | None,
    stopping: bool,
    now: datetime,
    reload: ReloadStatus | None = None,
    lost_events: int = 0,
    refused: Mapping[str, Refused] | None = None,
    flawed: tuple[int, int] = (0, 0),
    sections: Iterable[Statistics] = (),
    admin: Source | None = None,
    forwarder: Forwarder | None = None,
) -> Facts:
    """The facts at *now*; *phase* is why the daemon itself takes nothing, if so.

    *sections*: whose troubles are told, too; *admin*, *forwarder*: whose certificates end,
    too.
    """
    journal, spool = storage.journal, storage.spool
    uploads, has_job = spool.uploads, lake.has_job
    published, committed = spool.published_lsn, lake.committed_lsn
    arrived = committed if has_job else published
    if forwarder is not None:
        arrived = forwarder.arrived_lsn
    audited = lake.audited
    return Facts(
        phase=phase,
        stopping=stopping,
        reasons=journal.reasons,
        disk_wait=journal.disk_wait_seconds,
        stall_after=settings.journal.stall_after,
        roll_seconds=settings.spool.roll_interval * journal.roll_factor,
        trigger_seconds=settings.spark.trigger,
        unpublished=lake.age_behind(max(published, committed)),
        uncommitted=lake.age_behind(arrived) if has_job or forwarder else None,
        newest=lake.newest_age(arrived),
        listeners=lake.listener_ages(arrived, [one.name for one in listeners]),
        durable_lsn=max(journal.durable_lsn, published),
        brought_bytes=spool.arrived_bytes(),
        connections=sum(one.connections for one in listeners),
        addresses={one.name: one.address for one in listeners},
        waiting_bytes=spool.levels.spool.bytes + spool.backlog_bytes,
        limit_bytes=settings.spool.max_bytes,
        free_bytes=room_bytes(storage, settings.spool.after),
        growth=growth,
        job=lake.job if has_job else None,
        hub=None if forwarder is None else _hub(forwarder),
        bucket=uploads is not None,
        bucket_error=None if uploads is None else uploads.problem,
        certificates=_left([*listeners, admin, forwarder], now),
        crls=_crls(filter(None, [*listeners, admin]), now),
        publish_error=spool.publish_error,
        publish_silence=spool.publish_silence,
        lost_events=lost_events,
        unvouched=_unvouched(storage, audited, now),
        twins=[*storage.twins],
        audit=_audit(audited, now),
        audit_late=_audit_late(audited, now),
        reload=_reload(reload, now),
        refused=refused or {},
        flawed=flawed,
        consumers=_consumers(spool.consumers.behind),
        troubles=[
            *_left_here(forwarder),
            *_troubles(storage, settings.node, sections, now),
        ],
    )


def _left_here(forwarder: Forwarder | None) -> Iterator[str]:
    """A sentence about files in the spool that can not be brought anywhere."""
    left = {} if forwarder is None else forwarder.left
    nodes = dict.fromkeys(life.rpartition("_")[0] for life in left)
    if nodes:
        events = sum(lsns.size for lsns in left.values())
        yield (
            f"{events:,} events of {' and '.join(nodes)} lie in the spool, and the hub does "
            "not take them from here (options.nodes of its listener), or that node's gateway "
            "runs on this directory"
        )


def _hub(forwarder: Forwarder) -> Hub:
    hub = forwarder.hub
    return Hub(hub.to, hub.connected, hub.seconds, hub.why, hub.denied, hub.place)


def _unvouched(storage: Storage, last: Audited, now: datetime) -> str:
    """A sentence about ends that the opened directory does not know.

    Empty if an audit has said since that all is there, but for what was accepted.
    """
    lost = storage.lost_ends
    if not lost or (last.complete and (last.at or 0.0) > storage.opened_at):
        return ""
    ends = ", ".join(f"{each[:8]}… behind lsn {last}" for each, last in lost.items())
    return (
        "this directory is an older copy, or was put back, and nobody knows what was "
        f"acknowledged since by incarnation {ends}"
    )


def _audit(last: Audited, now: datetime) -> Audit | None:
    if last.at is None:
        return None
    return Audit(
        max(0.0, now.timestamp() - last.at),
        last.complete,
        last.missing,
        last.unknown,
        last.doubled,
        last.problems,
    )


def _audit_late(last: Audited, now: datetime) -> str | None:
    age = last.age(now.timestamp())
    if last.every is None or age is None or age <= _LATE_AUDITS * last.every:
        return None
    why = (
        f", the last attempt ended because {last.unfinished}" if last.unfinished else ""
    )
    return f"no audit has come to its end for {duration(age)}{why}"


def _reload(last: ReloadStatus | None, now: datetime) -> Reload | None:
    if last is None or last.successful:
        return None
    ago = max(0.0, now.timestamp() - last.at)
    return Reload(ago, last.applied, last.problems or ["the log says why"])


def _consumers(behind: Mapping[str, Behind]) -> list[Consumer]:
    """The consumers that missed something, and those for which files stay too long."""
    missed = [
        Consumer(name, one.missed_files, missed=True)
        for name, one in behind.items()
        if one.missed_files
    ]
    held = [
        Consumer(name, one.held_files, one.held_bytes, one.oldest_seconds, one.has_come)
        for name, one in behind.items()
        if one.held_files
    ]
    return missed + held


def _troubles(
    storage: Storage, node: str, sections: Iterable[Statistics], now: datetime
) -> Iterator[str]:
    for orphan in storage.orphans:
        if orphan.problem is not None:
            yield (
                f"what node {orphan.node} left in its journal can not be published: "
                f"{orphan.problem}"
            )
        if orphan.remembers:
            yield (
                f"this node is {node}, so nobody serves what "
                f"{' and '.join(orphan.remembers)} remembered for node {orphan.node}: set "
                f"node to {orphan.node}, or remove state/{orphan.node}"
            )
    yield from storage.spool.troubles
    behind = storage.spool.consumers.behind.values()
    yield from filter(None, (one.problem for one in behind))
    if (looks := storage.bucket_looks) is not None and looks.problem is not None:
        yield looks.problem
    if storage.checkpoint.trouble is not None:
        yield storage.checkpoint.trouble
    for section in sections:
        yield from map(str, section.troubles)


def _left(shown: Iterable[Certified | None], now: datetime) -> Mapping[str, float]:
    """Seconds that each certificate is still valid, by who shows it."""
    return {
        one.name: (one.certificate_ends - now).total_seconds()
        for one in shown
        if one is not None and one.certificate_ends is not None
    }


def _crls(listeners: Iterable[Source], now: datetime) -> Mapping[str, Crl]:
    return {
        one.name: Crl((end.at - now).total_seconds(), end.refuses)
        for one in listeners
        if (end := one.crl_end) is not None
    }
