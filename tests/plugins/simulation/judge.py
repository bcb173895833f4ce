"""What the gateway promises, held against every acknowledgement and every file.

When something is durable  the last sync has made it so, and its lsns are new
At each acknowledgement    it is of what is durable, or public with `ack: spool`
At each new file           it is whole, its rows are in no other file, its name is new
At each start              no lsn is given again, nothing is lost, memories know all
At the end                 every lsn is there once, everything acknowledged is in its
                           place, no batch is there in part or more often than its
                           protocol may double it, and connections keep their order;
                           streams without a policy have all their events, and what is
                           retained beside the archive is nothing but theirs
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple

from gateway.event import Decode, Stored
from gateway.store.directories import Directories
from gateway.store.journal import Loss
from gateway.store.node.catalog import CATALOG, Lines
from gateway.store.node.holes import holes_in
from gateway.store.spool import parse_file_name
from simulation.disk import SimulatedDisk
from simulation.files import Row, rows_of

__all__ = ["Broken", "Event", "Judge"]

_EVENT = re.compile(rb"([a-z]\d+)/(\d+)/(\d+)/(\d+)")
_SESSION = re.compile(rb'\{"event":"(opened|closed)"')
_ONCE = frozenset("vwr")
"""Senders whose protocol stores each event exactly once, by their names' first letter."""
_KEPT = frozenset("vw")
"""Those that write streams, which keep their events."""
_WHOLE = frozenset("plo")
"""Those whose batches are stored whole or not at all."""


class Broken(Exception):
    """A promise that was not kept; whoever catches it can not hide it."""

    raised: ClassVar[list[str]] = []
    """Since the world began."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.raised.append(text)


class Place(NamedTuple):
    """Of an event, for ever."""

    node: str
    lsn: int


class Event(NamedTuple):
    """What every payload says of itself."""

    sender: str
    batch: int
    number: int
    """Its place in the batch, from 0."""
    count: int
    """How many events the batch has."""

    @classmethod
    def of(cls, payload: bytes) -> Event:
        """The event with this payload.

        Those of a Pomelo session itself come before and behind all others of it.
        """
        session = _SESSION.match(payload)
        if session is not None:
            return cls("session", 0 if session[1] == b"opened" else 1 << 62, 0, 1)
        found = _EVENT.search(payload)
        if found is None:
            raise Broken(f"nobody sent {payload!r}")
        sender, *numbers = found.groups()
        return cls(sender.decode(), *map(int, numbers))


class Judge:
    """Raises `Broken`."""

    def __init__(
        self,
        disk: SimulatedDisk,
        directories: Directories,
        decoders: Mapping[str, Decode],
        *,
        remembering: bool,
        acknowledge_when_published: bool,
    ) -> None:
        self._disk = disk
        self._directories = directories
        self._decoders = decoders
        self._remembering = remembering
        self._when_published = acknowledge_when_published
        self.was_read: Callable[[str], bool] = lambda _: False
        """Whether Spark has a file's events in the tables."""
        self.copies: Counter[tuple[str, int]] = Counter()
        """How often a batch was sent at most, where it was acknowledged."""
        self.durable: dict[Place, Event] = {}
        """Events of which a node has said that they are durable."""
        self._durable_events: set[Event] = set()
        self.metadata: dict[str, set[bytes]] = defaultdict(set)
        """Plain batches without events that became durable, by node."""
        self.acknowledged = 0
        """Batches that their senders know to be durable."""
        self.files: dict[str, bytes] = {}
        """Every file that was ever public, …"""
        self._numbers: dict[str, int] = {}
        """… and its inode."""
        self.rows: dict[Place, Row] = {}
        self._public: set[Event] = set()
        self.last: dict[str, int] = defaultdict(int)
        """The newest lsn that became durable, by node."""
        self.rotten = False
        """Synced bytes have changed: what was lost must be told, and nothing else."""
        self._told: set[Place] = set()

    # -- as it happens --------------------------------------------------------

    def becomes_durable(self, node: str, stored: Stored) -> None:
        """The journal says so: a power cut in this moment must leave it."""
        batch, lsn = stored.batch, stored.lsn
        protocol = batch.origin.protocol
        if batch.count == 0 and not self._remembering:
            return  # nobody needs it, so nothing keeps it
        if not (Place(node, lsn) in self.rows or self._is_durable(node, batch.body)):
            raise Broken(f"{node} {lsn} is acknowledged, and no sync covers it")
        if batch.count == 0:
            if protocol == "plain":
                self.metadata[node].add(batch.body)
            return
        if lsn <= self.last[node]:
            raise Broken(f"{node} {lsn} is given again")
        self.last[node] = lsn + batch.count - 1
        self._keep(node, stored)

    def recovers(self, node: str, stored: Stored) -> None:
        """A start takes this batch for stored, whether anybody heard so or not."""
        batch, lsn = stored.batch, stored.lsn
        if batch.count:
            self.last[node] = max(self.last[node], lsn + batch.count - 1)
            self._keep(node, stored)

    def _keep(self, node: str, stored: Stored) -> None:
        batch, lsn = stored.batch, stored.lsn
        decode = self._decoders[batch.origin.protocol]
        for n, payload in enumerate(decode(batch.body).each()):
            place, event = Place(node, lsn + n), Event.of(payload)
            if self.durable.setdefault(place, event) != event:
                raise Broken(f"{place} was {self.durable[place]} and is {event}")
            self._durable_events.add(event)

    def _is_durable(self, node: str, body: bytes) -> bool:
        directory = self._directories.journal_of(node)
        return any(
            body in self._disk.durable(directory / name)
            for name in reversed(self._disk.directories[str(directory)].durable)
        )

    def hears(self, sender: str, batch: int, count: int, copies: int) -> None:
        """A sender's batch is acknowledged; it was sent *copies* times at most."""
        self.acknowledged += 1
        self.copies[sender, batch] = copies
        safe = self._public if self._when_published else self._durable_events
        for n in range(count):
            if Event(sender, batch, n, count) not in safe:
                raise Broken(f"{sender}/{batch}/{n} is acknowledged too early")

    def becomes_public(self, path: Path) -> None:
        """A file got its name."""
        name, content = path.name, self._disk.read(path)
        number = self._disk.find(path)
        if name in self.files:
            if self.was_read(name):
                return  # the tables have what has this name, whatever its bytes are
            if self._numbers[name] != number or self.files[name] != content:
                raise Broken(f"{name} is written a second time")
            return  # a power cut has undone the rename
        parsed = parse_file_name(name)
        if parsed is None:
            raise Broken(f"{name} is no name for a file")
        node, _, first, last = parsed
        rows = rows_of(content)
        if rows is None:
            raise Broken(f"{name} is torn")
        if [row.lsn for row in rows] != list(range(first, last + 1)):
            raise Broken(f"{name} has the lsns {[row.lsn for row in rows]}")
        if self._disk.inodes[number].base != content:
            raise Broken(f"{name} is public before its bytes are durable")
        self.files[name], self._numbers[name] = content, number
        for row in rows:
            place = Place(node, row.lsn)
            if place in self.rows:
                raise Broken(f"{node} {row.lsn} is in two files, {name} is the second")
            self.rows[place] = row
            if row.flaw is None:
                self._public.add(Event.of(row.payload))
            elif not self.rotten:
                raise Broken(f"{node} {row.lsn} is {row.flaw}")

    def tells(self, node: str, losses: Iterable[Loss]) -> None:
        """The operator hears of what is lost."""
        for loss in losses:
            if not self.rotten:
                raise Broken(f"{node} tells of a loss, and nothing is: {loss}")
            for lsn in range(loss.first_lsn, loss.first_lsn + loss.events):
                self._told.add(Place(node, lsn))

    def starts(self, node: str, next_lsn: int) -> None:
        """A life of this node begins."""
        if next_lsn <= self.last[node]:
            raise Broken(
                f"{node} goes on at {next_lsn}, and {self.last[node]} is taken"
            )

    def remembers(self, node: str, known: set[bytes]) -> None:
        """The memory of plain batches, at a start: their bodies."""
        if self.rotten:
            return
        heads = {_head(body) for body in known}
        for place, event in self.durable.items():
            plain = place.node == node and event.sender.startswith("p")
            if plain and (event.sender, event.batch) not in heads:
                raise Broken(f"{node} has forgotten {event} at {place.lsn}")
        if forgotten := self.metadata[node] - known:
            raise Broken(f"{node} has forgotten {sorted(forgotten)}")

    def _is_hole(self, place: Place) -> bool:
        """Whether the node's record says that its disk did not give it back."""
        journal = self._directories.journal_of(place.node)
        holes = holes_in(Lines(self._disk.read(journal / CATALOG[0]))).values()
        found = any(one.covers(place.lsn, place.lsn) for one in holes)
        if found and not self.rotten:
            raise Broken(f"{place} is called a hole, and nothing is lost")
        return found

    def sees(self, names: Iterable[str]) -> None:
        """Spark lists the spool."""
        for name in names:
            if name not in self.files:
                raise Broken(f"{name} was made public in a strange way")

    def reads(self, name: str, content: bytes) -> None:
        """Spark reads a file."""
        if self.files[name] != content:
            raise Broken(f"{name} has changed since it is public")

    # -- at the end -----------------------------------------------------------

    def ends(self, memories: Mapping[str, set[bytes]]) -> None:
        """Everything has drained; *memories* are what nodes know of plain batches."""
        by_node: dict[str, list[tuple[Event, Row]]] = defaultdict(list)
        for place in sorted(self.rows):
            row = self.rows[place]
            if row.flaw is None:
                by_node[place.node].append((Event.of(row.payload), row))
        for place, event in self.durable.items():
            row = self.rows.get(place)
            if (row is not None and row.flaw is not None) or place in self._told:
                continue
            if row is None and self._is_hole(place):
                continue
            if row is None or Event.of(row.payload) != event:
                raise Broken(f"{event} was durable at {place} and is not there: {row}")
        copies: Counter[tuple[str, int]] = Counter()
        for node, found in by_node.items():
            lsns = {
                place.lsn for place in {*self.rows, *self._told} if place.node == node
            }
            if lsns != {*range(1, len(lsns) + 1)} and not self.rotten:
                raise Broken(f"{node} has holes: {sorted(lsns)}")
            _check_order(found)
            heads = _check_whole(found)
            copies.update(heads)
            if node in memories and not self.rotten:
                plain = {head for head in heads if head[0].startswith("p")}
                known = {_head(body) for body in memories[node] if _has_events(body)}
                if known != plain:
                    raise Broken(f"{node} and its files differ: {known ^ plain}")
        for head, count in copies.items():
            if count > (1 if head[0][0] in _ONCE else self.copies.get(head, count)):
                raise Broken(f"{head} is there {count} times")

    def keeps(self, node: str) -> None:
        """The events of streams are where readers find them; the job deletes nothing."""
        retained = self._directories.retained_of(node)
        kept: set[int] = set()
        for row in self._rows_in(retained, "kept-"):
            kept.add(row.lsn)
            if Event.of(row.payload).sender[0] not in _KEPT:
                raise Broken(f"{node} {row.lsn} is retained, and nobody needs it")
        there = kept | {
            row.lsn
            for directory in (self._directories.spool, self._directories.archive)
            for row in self._rows_in(directory, f"events-{node}_")
        }
        for place, event in self.durable.items():
            mine = place.node == node and event.sender[0] in _KEPT
            if mine and place in self.rows and place.lsn not in there:
                raise Broken(f"{event} at {place} is let go, and its stream keeps it")

    def _rows_in(self, directory: Path, prefix: str) -> Iterator[Row]:
        for name in sorted(self._disk.names.get(str(directory), {})):
            if name.startswith(prefix):
                rows = rows_of(self._disk.read(directory / name))
                if rows is None:
                    raise Broken(f"{name} is torn")
                yield from rows


def _head(body: bytes) -> tuple[str, int]:
    event = Event.of(body)
    return event.sender, event.batch


def _has_events(body: bytes) -> bool:
    return Event.of(body).count > 0


def _check_order(found: list[tuple[Event, Row]]) -> None:
    """By connection; by sender, where each event is stored once."""
    last: dict[str, tuple[int, int]] = {}
    for event, row in found:
        key = event.sender if event.sender[0] in _ONCE else row.session
        here = (event.batch, event.number)
        if last.get(key, (0, 0)) >= here and key in last:
            raise Broken(f"{event} of {key} at {row.lsn} comes after {last[key]}")
        last[key] = here


def _check_whole(found: list[tuple[Event, Row]]) -> list[tuple[str, int]]:
    """Sender and number of each batch that these rows are, as often as it is there."""
    heads = []
    at = 0
    while at < len(found):
        event, row = found[at]
        if event.sender[0] in _WHOLE:
            some = [each[:3] for each, _ in found[at : at + event.count]]
            if some != [(event.sender, event.batch, n) for n in range(event.count)]:
                raise Broken(f"{event} at {row.lsn} begins a batch in part: {some}")
            at += event.count
        else:
            at += 1
        if event.sender[0] in _WHOLE or event.number == 0:
            heads.append((event.sender, event.batch))
    return heads
