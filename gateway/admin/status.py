"""The daemon at one moment, as the live page, the metrics and scripts read it.

The daemon makes a `Probe` that fills these in from the parts; it runs
on the reactor's thread, at every scrape, so it must be quick and must not block.
Events and bytes count from the start of the process; lsns and files do not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from gateway.admin.freshness import Freshness
from gateway.figures import OF_STATUS, runbook, runbook_link
from gateway.figures.exposition import Value
from gateway.sdk.protocol import Statistics


@dataclass(frozen=True, slots=True)
class ListenerStatus:
    """One configured listener."""

    name: str
    """The name in the configuration."""
    protocol: str
    """The name of the installed protocol."""
    address: str
    """The address as bound, so that port 0 shows the real port."""
    connections: int
    """Open now."""
    events: int
    """Made durable since the start."""
    bytes: int
    """Read from the network since the start."""
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Connections rejected before their protocol began, by reason; few reasons."""
    connections_limit: int | None = None
    """`limits.connections`."""


@dataclass(frozen=True, slots=True)
class JournalStatus:
    """The journal: what is durable, and how much of it waits for the spool."""

    durable_lsn: int
    """The lsn of the newest event that survives a power cut; 0 when there is none yet."""
    bytes: int
    """Bytes on disk, sealed and open segments together."""
    why_full: str | None = None
    """Why it takes no more batches, or stores none, or None while it does."""
    oldest_wait_seconds: float = 0.0
    """How long the oldest batch has waited to be acknowledged; 0 if none waits."""


@dataclass(frozen=True, slots=True)
class SpoolStatus:
    """The spool: what waits for Spark."""

    published_lsn: int
    """The lsn of the newest event in a published file; 0 when there is none yet."""
    files: int
    bytes: int
    limit_bytes: int | None = None
    """`spool.max_bytes`: where the journal stops taking batches."""
    bucket: str | None = None
    """Where files go, if `spool.directory` is a bucket; then those above wait for that."""
    bucket_error: str | None = None
    """Why they do not get there now."""


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """The archive: what Spark has committed and retention has not removed yet."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ChainStatus:
    """The newest link of the chain of spool files, to be kept elsewhere."""

    last_lsn: int = 0
    """The last lsn of the newest file; 0 when there is none yet."""
    link: str = ""
    """The link of that file (`gateway.store.digests`); zeros when there is none, empty
    if unknown."""


@dataclass(frozen=True, slots=True)
class IncarnationStatus:
    """The incarnation that gives lsns here: an event's name is node, incarnation and lsn."""

    id: str = ""
    since: int = 1
    """The first lsn that it may have given."""
    earlier: Sequence[str] = ()
    """Earlier ones in its directory for which it vouches, oldest first; fifty at most."""


@dataclass(frozen=True, slots=True)
class ReloadStatus:
    """The last time the configuration was read."""

    at: float = 0.0
    """When, in seconds since the epoch; at first that of the start."""
    began: float = 0.0
    """When the file began to be read: what was written before is in it."""
    successful: bool = True
    """Nothing was wrong with it, nor with certificates and other files that it names."""
    applied: bool = True
    """Whether it is in force, but for what `restart` names."""
    problems: Sequence[str] = ()
    """The problems of the configuration that was read."""
    changed: Sequence[str] = ()
    """Keys whose new values came into force."""
    restart: Sequence[str] = ()
    """Changed keys that are not in force before a restart, each with the reason."""
    job: Sequence[str] = ()
    """Changed keys that only the Spark job reads, when it starts again."""


@dataclass(frozen=True, slots=True)
class Status:
    """The whole daemon, or one worker of it.

    16 attributes: the keys of `/api/status` that have no section of their own.
    """

    node: str
    version: str
    uptime_seconds: float
    not_ready_reason: str | None
    """One line for people: why it can not take events now; None when it can."""
    listeners: Sequence[ListenerStatus]
    journal: JournalStatus
    spool: SpoolStatus
    archive: ArchiveStatus
    chain: ChainStatus = ChainStatus()
    incarnation: IncarnationStatus = IncarnationStatus()
    freshness: Freshness | None = None
    """How old what is in no table is, and what holds it; None while it starts."""
    batches: Sequence[Mapping[str, float]] = ()
    """The Spark job's last ones, the newest last: `at`, `seconds`, `rows`, `files`."""
    paths: Sequence[str] = ()
    """Paths that many events of late have, and that have no column (`spark.columns`)."""
    payloads: bool = False
    """Whether all who may look may also push, kick, and see payloads."""
    reload: ReloadStatus = ReloadStatus()
    more: Sequence[Statistics] = ()
    """Further sections: of the protocols, of state, of subscribers."""

    @property
    def ready(self) -> bool:
        """Whether events are being taken."""
        return self.not_ready_reason is None


#: Reads the daemon's state now.
Probe = Callable[[], Status]


def value_of(status: Status, key: str) -> Value:
    """The value of a figure that is a field: of a list, with names and protocols."""
    head, _, name = key.partition(".")
    found = getattr(status, head)
    if head != "listeners":
        found = getattr(found, name, None) if name else found
        if isinstance(found, Mapping):
            return {label: each for label, each in found.items() if each is not None}
        return found
    values: dict[tuple[str, ...], float] = {}
    for one in found:
        which, each = (one.name, one.protocol), getattr(one, name)
        if isinstance(each, Mapping):
            values |= {(*which, label): count for label, count in each.items()}
        elif each is not None:
            values[which] = each
    return values


def as_json(status: Status) -> bytes:
    """The answer of `/api/status`: every field, `ready`, and the page's `cards`.

    `freshness` without its sentence, which comes by itself: `sentence`.
    """
    fields = msgspec.to_builtins(status)
    del fields["more"]
    fresh = fields.pop("freshness")
    head = {}
    if fresh is not None:
        about = fresh["condition"]
        fresh["runbook"] = None if about is None else runbook(about)
        fresh["runbook_link"] = None if about is None else runbook_link(about)
        head["sentence"] = fresh.pop("sentence")
        fields["freshness"] = fresh
    head |= {name: fields.pop(name) for name in ("node", "version")}
    more = {section.name: section.by_name for section in status.more}
    of_status = [(one, value_of(status, one.key)) for one in OF_STATUS if one.card]
    sections = [Statistics("", "On the way", of_status), *status.more]
    cards = [card for section in sections if (card := _card(section))]
    own = {**head, "ready": status.ready, **fields, "cards": cards}
    return json.dumps({**own, **more, **own}).encode()


def _card(section: Statistics) -> dict[str, object]:
    rows = [
        {"name": one.card, "value": value, "unit": one.unit}
        for one, value in section.values
        if one.card
    ]
    return {"title": section.title, "rows": rows} if rows else {}
