"""A model of names: directories that are copied, set back and lost, gateways that start on them,
a bucket, and a job that compares what has one name.

Each start is an incarnation, nobody is asked, nothing is fenced.  The rules are those of
`gateway.spark.files.overlaps`, which judges here, too; all else is a few lists.  What may go wrong
beside, by *kinds*:

    versions    a gateway is upgraded: the same events are other bytes
    forks       a machine is resumed from a snapshot of its memory, beside the first one
    torn        an lsn is given again after a sync that failed, and a copy has the first use
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import count

from gateway.spark.commit.ledger import Ledger, Ranges
from gateway.spark.files.overlaps import Prints, compared, families, overlapping
from gateway.store.lsns import Lsns
from gateway.store.names import Life, SpoolFile
from gateway.store.node.incarnation import Record, derived

__all__ = ["KINDS", "Outcome", "play"]

KINDS = "versions", "forks", "torn"


@dataclass(frozen=True)
class Outcome:
    """What became of the events that senders were told to be durable."""

    acknowledged: int
    doubled: int
    missing: int
    """Of directories that were neither lost nor set back."""
    forked: int
    """Files with another past."""


@dataclass(eq=False)
class _Directory:
    by: str = ""
    last: int = 0
    journal: list[tuple[str, int, int]] = field(default_factory=list)
    """(incarnation, lsn, event)."""
    version: int = 1

    def copied(self) -> _Directory:
        return copy.deepcopy(self)


@dataclass(eq=False)
class _Gateway:
    on: _Directory
    paused: bool = False


@dataclass(frozen=True)
class _Object:
    events: tuple[int, ...]
    version: int
    of: str = ""


class _World:
    def __init__(self, seed: int, kinds: Collection[str]) -> None:
        self.chance = random.Random(f"names {seed}")
        self.kinds = kinds
        self.events, self.ids = count(1), count(1)
        self.acknowledged: set[int] = set()
        self.excused: set[int] = set()
        self.directories = [_Directory()]
        self.gateways: list[_Gateway] = []
        self.saved: list[tuple[_Directory, _Directory]] = []
        self.bucket: dict[SpoolFile, _Object] = {}
        self.away = False
        self.ledger = Ledger()
        self.table: list[tuple[Life, int, int]] = []
        self.forked = 0

    def start(self, directory: _Directory) -> None:
        directory.by = derived("start", str(next(self.ids)))
        if "versions" in self.kinds and self.chance.random() < 0.2:
            directory.version = self.chance.randint(1, 2)
        self.gateways.append(_Gateway(directory))

    def take(self, directory: _Directory) -> None:
        """Events, which are acknowledged."""
        for _ in range(self.chance.randint(1, 5)):
            event = next(self.events)
            directory.last += 1
            directory.journal.append((directory.by, directory.last, event))
            self.acknowledged.add(event)
        if "torn" in self.kinds and self.chance.random() < 0.01:
            torn = directory.copied()
            torn.last += 1
            torn.journal.append((torn.by, torn.last, -next(self.events)))
            self.directories.append(torn)

    def publish(self, directory: _Directory) -> None:
        """All that it has, in files of any bounds; killed now and then before it notes that."""
        while journal := directory.journal:
            by, first, _ = journal[0]
            most = self.chance.randint(1, 9)
            part = [one for one in journal[:most] if one[0] == by]
            file = SpoolFile("gw", by, first, part[-1][1])
            data = _Object(tuple(event for *_, event in part), directory.version)
            there = self.bucket.get(file)
            if there is not None and there.events != data.events:
                file = file._replace(incarnation=derived(by, str(data.events)))
                data = _Object(data.events, data.version, by)
                self.forked += 1
            self.bucket.setdefault(file, data)
            if self.chance.random() < 0.1:
                return
            del journal[: len(part)]

    def job(self) -> None:
        """Takes files one by one, in any order."""
        files = list(self.bucket.items())
        self.chance.shuffle(files)
        for file, data in files:
            del self.bucket[file]
            said = {file.life: Record(file.first, "", data.of)}
            lsns = range(file.first, file.last + 1)
            rows = dict(zip(lsns, data.events, strict=True))
            if not overlapping([file], self.ledger, said):
                self._commit(file.life, rows, said)
                continue
            mine = families([file], self.ledger, said)[file.life]
            committed = {life: self.ledger.committed.of_life(life) for life in mine}
            known = {life: _prints(self._rows(life)) for life in mine}
            found = compared(_prints(rows.items()), committed, known, file.life)
            there = committed[file.life] - found.other
            left = Lsns([(file.first, file.last)]) - there - found.elsewhere
            parted = next(iter(found.other), (file.last + 1, 0))[0]
            self._commit(file.life, _of(rows, left & Lsns([(1, parted - 1)])), said)
            if other := _of(rows, left & Lsns([(parted, file.last)])):
                self.forked += 1
                life = Life("gw", derived(file.incarnation, str(sorted(other.items()))))
                root = data.of or file.incarnation
                self._commit(life, other, {life: Record(min(other), "", root)})

    def _commit(
        self, life: Life, rows: dict[int, int], said: dict[Life, Record]
    ) -> None:
        if not rows:
            return
        took = Ranges()
        for lsn, event in rows.items():
            took.add(life, lsn, lsn)
            self.table.append((life, lsn, event))
        self.ledger = self.ledger.after("q", 0, took, said)

    def _rows(self, life: Life) -> Iterator[tuple[int, int]]:
        return ((lsn, event) for by, lsn, event in self.table if by == life)

    def set_back(self) -> None:
        """In its place: the same directory, older content."""
        directory, image = self.chance.choice(self.saved)
        runs = any(one.on is directory for one in self.gateways)
        if directory not in self.directories or runs:
            return
        there = {event for *_, event in image.journal}
        self.excused |= {event for *_, event in directory.journal} - there
        vars(directory).update(vars(image.copied()))

    def step(self) -> None:
        chance = self.chance
        live = [one for one in self.gateways if not one.paused]
        roll = chance.random()
        if roll < 0.45 and live:
            self.take(chance.choice(live).on)
        elif roll < 0.62 and live and not self.away:
            self.publish(chance.choice(live).on)
        elif roll < 0.70:
            self.job()
        elif roll < 0.75:
            self.away = not self.away
        elif roll < 0.80 and self.gateways:
            self.gateways.remove(chance.choice(self.gateways))
        elif roll < 0.86:
            if idle := self._idle():
                self.start(chance.choice(idle))
        elif roll < 0.89 and self.gateways:
            chance.choice(self.gateways).paused ^= True
        elif roll < 0.92:
            self.directories.append(_Directory())
            self.start(self.directories[-1])
        elif not self.directories:
            return
        elif roll < 0.94:
            lost = chance.choice(self.directories)
            self.directories.remove(lost)
            self.gateways = [one for one in self.gateways if one.on is not lost]
            self.excused |= {event for *_, event in lost.journal}
        elif roll < 0.945 and "forks" in self.kinds and live:
            image = chance.choice(live).on.copied()
            self.directories.append(image)
            self.gateways.append(_Gateway(image))
        elif roll < 0.96:
            directory = chance.choice(self.directories)
            self.saved.append((directory, directory.copied()))
        elif roll < 0.98 and self.saved:
            self.set_back()
        else:
            self.directories.append(chance.choice(self.directories).copied())

    def _idle(self) -> list[_Directory]:
        busy = [one.on for one in self.gateways]
        return [one for one in self.directories if one not in busy]

    def drain(self) -> None:
        for one in self._idle():
            self.start(one)
        while any(one.journal for one in self.directories):
            for one in self.directories:
                self.publish(one)
        self.job()


def _prints(rows: object) -> Prints:
    return Prints.of((lsn, event, 0) for lsn, event in rows)  # type: ignore[attr-defined]


def _of(rows: dict[int, int], lsns: Lsns) -> dict[int, int]:
    return {lsn: one for lsn, one in rows.items() if lsns.covers(lsn, lsn)}


def play(seed: int, kinds: Collection[str], steps: int = 400) -> Outcome:
    """What becomes of one seed."""
    world = _World(seed, kinds)
    for _ in range(steps):
        world.step()
    world.drain()
    found = Counter(event for *_, event in world.table)
    wanted = world.acknowledged - world.excused
    return Outcome(
        len(world.acknowledged),
        sum(times > 1 for times in found.values()),
        sum(event not in found for event in wanted),
        world.forked,
    )
