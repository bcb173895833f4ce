"""What the gateway promises, held against every acknowledgement and every file.

At each acknowledgement  the batch is in what the last sync made durable
At each new file         it is whole, its rows are in no other file, its name is new
At each start            no lsn is given again, nothing is lost, memories know all
At the end               every lsn is there once, every acknowledged batch in its place,
                         no batch in part or more often than it was sent, and the
                         batches of a connection in their order
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from gateway.event import LOST, Stored
from gateway.store.directories import Directories
from gateway.store.spool import parse_file_name
from simulation.disk import SimulatedDisk
from simulation.files import Row, rows_of

__all__ = ["Broken", "Judge"]


class Broken(Exception):
    """A promise that was not kept."""


class Place(NamedTuple):
    """Of an event, for ever."""

    node: str
    lsn: int


class Judge:
    """Raises `Broken`."""

    def __init__(
        self, disk: SimulatedDisk, directories: Directories, *, remembering: bool
    ) -> None:
        self._disk = disk
        self._remembering = remembering
        self._directories = directories
        self.sent: Counter[bytes] = Counter()
        """How often each batch was sent, by its body."""
        self.order: dict[str, list[bytes]] = defaultdict(list)
        """The batches of each session, as they were submitted."""
        self.durable: dict[Place, tuple[bytes, int]] = {}
        """Batches that became durable: body and count, by their first event's place."""
        self.metadata: dict[str, set[bytes]] = defaultdict(set)
        """Batches without events that became durable, by node."""
        self.acknowledged: set[bytes] = set()
        self.files: dict[str, bytes] = {}
        """Every file that was ever public."""
        self.rows: dict[Place, Row] = {}
        self.last: dict[str, int] = defaultdict(int)
        """The newest lsn that became durable, by node."""

    # -- as it happens --------------------------------------------------------

    def submits(self, session: str, body: bytes) -> None:
        """A sender hands a batch over."""
        self.sent[body] += 1
        self.order[session].append(body)

    def becomes_durable(self, node: str, stored: Stored) -> None:
        """The journal says so: a power cut in this moment must leave it."""
        batch, lsn = stored.batch, stored.lsn
        if batch.count == 0 and not self._remembering:
            return  # nobody needs it, so nothing keeps it
        if not (Place(node, lsn) in self.rows or self._is_durable(node, batch.body)):
            raise Broken(f"{node} {lsn} is acknowledged, and no sync covers it")
        if batch.count == 0:
            self.metadata[node].add(batch.body)
            return
        if lsn <= self.last[node]:
            raise Broken(f"{node} {lsn} is given again")
        self.last[node] = lsn + batch.count - 1
        self.durable[Place(node, lsn)] = (batch.body, batch.count)

    def _is_durable(self, node: str, body: bytes) -> bool:
        directory = self._directories.journal_of(node)
        return any(
            body in self._disk.durable(directory / name)
            for name in reversed(self._disk.directories[directory].durable)
        )

    def acknowledges(self, node: str, stored: Stored, *, published: bool) -> None:
        """A sender hears of it; *published*: only what is in a file may be."""
        batch, lsn = stored.batch, stored.lsn
        self.acknowledged.add(batch.body)
        if published and batch.count:
            for n in range(batch.count):
                if Place(node, lsn + n) not in self.rows:
                    raise Broken(f"{node} {lsn + n} is acknowledged, and in no file")

    def becomes_public(self, path: Path) -> None:
        """A file got its name."""
        name, content = path.name, self._disk.read(path)
        if name in self.files:
            if self.files[name] != content:
                raise Broken(f"{name} is there again with other bytes")
            return
        parsed = parse_file_name(name)
        if parsed is None:
            raise Broken(f"{name} is no name for a file")
        node, first, last = parsed
        rows = rows_of(content)
        if rows is None:
            raise Broken(f"{name} is torn")
        if [row.lsn for row in rows] != list(range(first, last + 1)):
            raise Broken(f"{name} has the lsns {[row.lsn for row in rows]}")
        for row in rows:
            place = Place(node, row.lsn)
            if place in self.rows:
                raise Broken(f"{node} {row.lsn} is in two files, {name} is the second")
            self.rows[place] = row
        number = self._disk.find(path)
        if self._disk.inodes[number].base != content:
            raise Broken(f"{name} is public before its bytes are durable")
        self.files[name] = content

    def starts(
        self,
        node: str,
        next_lsn: int,
        losses: Iterable[object],
        known: set[bytes] | None,
    ) -> None:
        """A life of this node begins; *known* is what its memory knows, if it has one."""
        if next_lsn <= self.last[node]:
            raise Broken(
                f"{node} goes on at {next_lsn}, and {self.last[node]} is taken"
            )
        if lost := list(losses):
            raise Broken(f"{node} starts with losses: {lost}")
        if known is None:
            return
        for place, (body, _) in self.durable.items():
            if place.node == node and body not in known:
                raise Broken(f"{node} has forgotten {body[:20]!r} at {place.lsn}")
        if forgotten := self.metadata[node] - known:
            raise Broken(f"{node} has forgotten {sorted(forgotten)}")

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
        """Everything has drained; *memories* are what each node knows."""
        by_node: dict[str, list[Row]] = defaultdict(list)
        for place in sorted(self.rows):
            by_node[place.node].append(self.rows[place])
        for place, (body, count) in self.durable.items():
            found = [
                self.rows.get(Place(place.node, place.lsn + n)) for n in range(count)
            ]
            if b",".join(row.payload if row else b"?" for row in found) != body:
                raise Broken(f"{place} was acknowledged and is not there: {found}")
        copies: Counter[bytes] = Counter()
        sessions: dict[str, list[bytes]] = defaultdict(list)
        for node, rows in by_node.items():
            lsns = [row.lsn for row in rows]
            if lsns != list(range(1, len(lsns) + 1)):
                raise Broken(f"{node} has holes: {lsns}")
            for session, body in whole_batches(rows):
                copies[body] += 1
                sessions[session].append(body)
            known = {body for body in memories.get(node, ()) if is_data(body)}
            stored = {body for _, body in whole_batches(rows)}
            if node in memories and known != stored:
                raise Broken(f"{node} knows {known ^ stored} and its files do not")
        for body, count in copies.items():
            if count > self.sent[body]:
                raise Broken(f"{body!r} is there {count} times")
        for session, bodies in sessions.items():
            order = {body: n for n, body in enumerate(self.order[session])}
            numbers = [order.get(body, -1) for body in bodies]
            if numbers != sorted(numbers) or -1 in numbers:
                raise Broken(f"{session} is out of order: {numbers}")


def is_data(body: bytes) -> bool:
    """Whether a batch has events."""
    return int(body.split(b"/")[3]) > 0


def whole_batches(rows: list[Row]) -> list[tuple[str, bytes]]:
    """Session and body of each batch that these rows are, one after the other."""
    found = []
    at = 0
    while at < len(rows):
        head = rows[at]
        if head.flaw == LOST:
            at += 1
            continue
        count = int(head.payload.split(b"/")[3])
        some = rows[at : at + count]
        body = b",".join(row.payload for row in some)
        inside = [row.payload.split(b"/")[:3] for row in some]
        key = head.payload.split(b"/")[:2]
        if inside != [[*key, b"%d" % n] for n in range(count)]:
            raise Broken(f"a batch in part at {head.lsn}: {body!r}")
        found.append((head.session, body))
        at += count
    return found
