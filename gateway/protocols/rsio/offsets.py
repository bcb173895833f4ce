"""How many elements are stored of each named sender, for exact resumption (extension 2).

A sender that has a name is asked to resume behind its stored elements, and their
numbers continue.  This is exact because

- one connection at a time publishes under a name: a newer one takes over,
- a new stream begins only when no element of the last one is on its way to the disk,
- the numbers are in the journal, with the elements: `replay` reads them back.

Two programs with one name would take each other's progress for their own.  So each
process of a sender says an *instance* (extension 7).  The one that began last has the name,
and an earlier one that comes back is refused.  An instance is in the journal before it is
asked to resume, so that it is still the last one after a restart.

If a batch can not be stored, the ones submitted after it are not counted, even if they
are stored: their elements come again, as doubles, rather than be lost.

A proved name (`options.tokens`, a certificate) and an unproved one are never the same
sender, even if they are spelled alike.  Who has a token may also say a name (extension
7): the two together are one sender.  Said names may be any number, so only the latest
are remembered: of those without a token, and of those with each token.  A sender whose
name is forgotten can not resume; so that is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import msgspec
from attrs import define, field
from twisted.internet.defer import Deferred, succeed

from gateway.event import Origin, Stored
from gateway.protocols.rsio import events

PROTOCOL = "rsio"

SOURCE = "source"
"""The attribute of an event's origin that holds a name that was said."""

Ready: TypeAlias = "Callable[[Claim, int], None]"
Evicted: TypeAlias = "Callable[[Claim], None]"


class Key(NamedTuple):
    """A sender's publisher: its elements are numbered together."""

    source: str
    publisher: str
    proved: bool = False
    name: str = ""
    """The name that a sender of a proved source gives itself, if that is part of who it is."""

    @classmethod
    def of(cls, origin: Origin, publisher: str, *, named: bool = False) -> Key | None:
        """The key of a sender's publisher; None if the sender has no name.

        *named*: what it calls itself counts beside what it proved (extension 7).
        """
        said = origin.attributes.get(SOURCE, "")
        if origin.principal:
            name = said if named else ""
            return cls(origin.principal, publisher, proved=True, name=name)
        return cls(said, publisher) if said else None

    @property
    def limited(self) -> str | None:
        """The source whose names share a limit: a token's; "" without one; None: no limit."""
        if self.proved:
            return self.source if self.name else None
        return ""

    def __str__(self) -> str:
        return f"{self.publisher!r} of {self.name or self.source!r}"


class Fenced(Exception):
    """Another instance of the sender began later: this one may not publish."""


@define(eq=False)
class Claim:
    """One stream's exclusive right to publish under a key."""

    key: Key
    resumed: int
    """The value of `Part.resumed` in the journal."""
    _progress: _Progress
    _offsets: Offsets
    ready: Ready
    _evicted: Evicted
    fenced: bool = field(default=False, init=False)
    """A later instance of its sender has the name."""

    def begin(self) -> None:
        """Call *ready* when no element is on its way to the disk: now, or later."""
        progress = self._progress
        progress.waiting = True
        if not progress.pending:
            progress.start()

    def instance_record(self) -> events.InstanceRecord | None:
        """The record of its instance for the journal, before the stream begins; None:
        it is there.
        """
        progress = self._progress
        if progress.instance == progress.recorded and not progress.recording:
            return None
        progress.recording += 1
        number = self._offsets.next_record()
        instance = progress.instance or b""
        return events.InstanceRecord(
            self.key.publisher, self.resumed, number, instance, progress.durable
        )

    def began(self, record: events.InstanceRecord | None) -> None:
        """*record* is in the journal; None: it could not be stored."""
        self._progress.recording -= 1
        if record is not None:
            self._progress.record(record)

    def submitted(self, count: int) -> None:
        """*count* elements are on their way to the disk."""
        self._progress.pending += count

    def settled(self, count: int, *, stored: bool) -> None:
        """*count* elements are durable, or could not be *stored*."""
        progress = self._progress
        progress.pending -= count
        if not stored:
            progress.broken = True
        elif not progress.broken:
            progress.durable += count
        self._check_settled()

    def withdrawn(self, count: int) -> None:
        """The last *count* elements submitted will not be stored, nor any behind them."""
        self._progress.pending -= count
        self._check_settled()

    def _check_settled(self) -> None:
        progress = self._progress
        if not progress.pending:
            progress.broken = False
            progress.start()

    def release(self) -> None:
        """The stream is over; its elements on their way to the disk still count."""
        if self._progress.claim is self:
            self._progress.claim = None

    def evict(self, *, fenced: bool) -> None:
        """A newer stream takes over; *fenced*: of a later instance."""
        self.fenced = fenced
        self.release()
        self._evicted(self)


@define(eq=False, weakref_slot=False)
class _Progress:
    durable: int
    recorded: bytes | None = None
    """The instance whose record is in the journal."""
    number: int = 0
    """The number of that record."""
    instance: bytes | None = field(init=False)
    """The instance that has the name; None: no sender ever said one."""
    pending: int = 0
    """Elements on their way to the disk."""
    broken: bool = False
    """One of those could not be stored: the others do not count."""
    claim: Claim | None = None
    waiting: bool = False
    """The claim has begun, and starts when nothing is pending."""
    recording: int = 0
    """Records on their way to the journal."""

    def __attrs_post_init__(self) -> None:
        self.instance = self.recorded

    def start(self) -> None:
        if self.waiting and self.claim is not None:
            self.waiting = False
            self.claim.ready(self.claim, self.durable)

    def record(self, record: events.InstanceRecord) -> None:
        if record.number > self.number:
            self.recorded, self.number = record.instance, record.number

    @property
    def new(self) -> bool:
        return not (self.durable or self.pending) and self.instance is None


class Offsets:
    """The progress of all named senders."""

    def __init__(self, known: Iterable[tuple[Key, int]] = ()) -> None:
        self._number = 0
        self.fenced = 0
        """Streams ended or refused because a later instance of their sender began."""
        self.forgotten = 0
        """Names that had to go for others, or found no place, and can not resume."""
        self._load((Key(*key), _Progress(durable)) for key, durable in known)

    def _load(self, known: Iterable[tuple[Key, _Progress]]) -> None:
        self._known: dict[Key, _Progress] = {}
        self._limited: dict[str, dict[Key, None]] = {}
        """Keys whose number is limited, by what they share the limit with; oldest
        first, by the time of the latest claim."""
        for key, progress in known:
            self._put(key, progress)

    def claim(
        self,
        key: Key,
        ready: Ready,
        evicted: Evicted,
        *,
        instance: bytes = b"",
        resumed: bool = False,
        named: bool = False,
        most: int = 1 << 17,
    ) -> Claim | None:
        """The right to publish under *key*; None if there are too many names.

        At most *most* are remembered that share its limit (`Key.limited`).  A further
        one replaces the oldest that is not connected; if all are, it can not resume.

        After `begin`, *ready* is called with the number of stored elements.  *evicted*
        is called if another stream claims the same key.  *instance* is that of the
        sender's record, if it says; *resumed*: it was asked to resume before.

        Raises `Fenced` if another instance has the name since.
        """
        progress = self._known.get(key)
        if progress is None:
            if not self._has_place(key, most):
                return None
            progress = _Progress(0)
        if resumed and not progress.new and progress.instance != instance:
            self.fenced += 1
            if progress.instance is None:
                raise Fenced(f"no instance is known of {key}, which has elements")
            raise Fenced(f"another instance publishes {key}")
        self._put(key, progress)
        fenced = bool(instance) and progress.instance != instance
        if instance or progress.instance is not None:
            progress.instance = instance
        if progress.claim is not None:
            self.fenced += fenced
            progress.claim.evict(fenced=fenced)
        kind = events.NAMED if named else events.RESUMED
        claim = progress.claim = Claim(key, kind, progress, self, ready, evicted)
        return claim

    def next_record(self) -> int:
        self._number += 1
        return self._number

    @property
    def known(self) -> list[tuple[Key, int]]:
        """The number of durable elements of each key that has any."""
        return [(key, one.durable) for key, one in self._known.items() if one.durable]

    @property
    def names(self) -> int:
        """How many keys are remembered."""
        return len(self._known)

    # -- implements `interfaces.Memory` ------------------------------------------

    def restore(self, data: bytes) -> None:
        """Load a snapshot; raises msgspec.DecodeError."""
        rows = msgspec.msgpack.decode(data, type=_Snapshot)
        self._number = rows.number
        self._load(
            (Key(source, publisher, proved, name), _Progress(durable, instance, number))
            for source, publisher, proved, durable, name, instance, number in rows.senders
        )

    def replay(self, stored: Stored) -> None:
        """Count a batch that is in the journal; called in the order of the journal."""
        origin, body = stored.batch.origin, stored.batch.body
        if origin.protocol != PROTOCOL or Key.of(origin, "") is None:
            return
        record = events.instance_record(body)
        if record is not None:
            self._learn_instance(origin, record)
            return
        for part in events.parts(body):
            key = Key.of(origin, part.publisher, named=part.resumed == events.NAMED)
            if part.resumed and key is not None:
                self._learn(key, part.first, part.count)

    def start(self) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        """Nothing to do."""

    def snapshot(self) -> Deferred[bytes]:
        """All progress, as bytes for `restore`."""
        rows = [
            (key.source, key.publisher, key.proved, one.durable, key.name,
             one.recorded, one.number)
            for key, one in self._known.items()
            if one.durable or one.recorded is not None
        ]  # fmt: skip
        return succeed(msgspec.msgpack.encode(_Snapshot(self._number, rows)))

    def _learn(self, key: Key, first: int, count: int) -> None:
        last = first + count - 1
        progress = self._known.get(key)
        if progress is None:
            progress = _Progress(last)
        elif first <= progress.durable + 1:
            progress.durable = max(progress.durable, last)
        self._put(key, progress)

    def _learn_instance(self, origin: Origin, record: events.InstanceRecord) -> None:
        key = Key.of(origin, record.publisher, named=record.resumed == events.NAMED)
        self._number = max(self._number, record.number)
        if key is not None:
            progress = self._known.get(key) or _Progress(0)
            if record.number > progress.number and record.durable is not None:
                progress.durable = record.durable  # less, where it had been forgotten
            progress.record(record)
            progress.instance = progress.recorded
            self._put(key, progress)

    def _put(self, key: Key, progress: _Progress) -> None:
        self._known.pop(key, None)
        self._known[key] = progress
        if (group := key.limited) is not None:
            keys = self._limited.setdefault(group, {})
            keys.pop(key, None)
            keys[key] = None

    def _has_place(self, key: Key, most: int) -> bool:
        """Whether there is a place for a new key; forgets the oldest that is not
        connected, if it must.
        """
        if (group := key.limited) is None:
            return True
        keys = self._limited.get(group, {})
        if len(keys) < most:
            return True
        self.forgotten += 1
        for old in keys:
            one = self._known[old]
            if not (one.pending or one.claim):
                del self._known[old], keys[old]
                return True
        return False


class _Snapshot(msgspec.Struct, array_like=True, frozen=True):
    """The state file, in its second form; the first was a list of the first four
    columns of `senders`.
    """

    number: int
    senders: list[tuple[str, str, bool, int, str, bytes | None, int]]
    """Source, publisher, proved, durable, name, instance, number of its record."""
