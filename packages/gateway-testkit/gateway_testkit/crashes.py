"""Simulated power cuts: the disks that one may leave, by the least that POSIX promises.

data    What a `sync` returned for is there.  Every write and truncation since then
        is kept, dropped or torn, in any combination; what is missing below what is
        kept reads as zeros, and a lost write may leave its length behind.
names   They are as of the directory's last `sync_directory`, plus any of the
        creations, renames and removals since.
sync    One that fails leaves in doubt, for good, what it should have made durable:
        a later one that succeeds says nothing about it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway_testkit.disk import Change, Directory, Inode, Moment, RecordingDisk

__all__ = ["crashes", "random_content", "random_names"]

_BLOCKS = (512, 4096)
_TORN = 0.6  # of the power cuts that lose something


@dataclass(slots=True, frozen=True)
class _Content:
    inode: int
    bytes: bytes
    story: str


@dataclass(slots=True, frozen=True)
class _Names:
    path: str
    inodes: Mapping[str, int]
    story: str


_Choice = tuple[_Content | _Names, ...]


def crashes(
    moment: Moment, *, most: int = 48, seen: set[Hashable] | None = None
) -> Iterator[tuple[str, RecordingDisk]]:
    """The disks that a power cut at *moment* may leave, each with its story.

    All of them if there are no more than *most*; else all kept, all lost, and a fixed
    sample of what may have happened, first of single things.  What is in *seen*
    already, with the same marks, is left out.
    """
    seen = set() if seen is None else seen
    for choice in _choices(moment, most):
        disk = RecordingDisk.found(
            moment,
            {c.inode: c.bytes for c in choice if isinstance(c, _Content)},
            {c.path: c.inodes for c in choice if isinstance(c, _Names)},
        )
        key = (disk.fingerprint(), moment.marks)
        if key not in seen:
            seen.add(key)
            what = "; ".join(c.story for c in choice if c.story)
            yield f"after step {moment.number} ({moment.step}): {what}", disk


def random_names(directory: Directory, chance: random.Random) -> Mapping[str, int]:
    """The remains of a directory after one power cut."""
    kept = _random_subset(len(directory.changes), chance)
    return directory.names([directory.changes[i] for i in kept])


def random_content(inode: Inode, chance: random.Random) -> bytes:
    """The remains of a file after one power cut."""
    changes = inode.changes
    risky = [i for i, change in enumerate(changes) if not change.settled]
    lost = set(risky) - {risky[i] for i in _random_subset(len(risky), chance)}
    last = max(lost, default=-1)
    torn: tuple[Change, ...] = ()
    if lost and chance.random() < _TORN:
        torn = chance.choice([(), *(parts for _, parts in _torn(changes[last]))])
    left: list[Change] = []
    for i, change in enumerate(changes):
        left += torn if i == last else () if i in lost else (change,)
    return inode.content(left)


def _random_subset(count: int, chance: random.Random) -> list[int]:
    """Most often all, none, or those up to one of them."""
    how = chance.randrange(4)
    if how < 3:
        return list(range((0, count, chance.randint(0, count))[how]))
    return [i for i in range(count) if chance.random() < 0.5]


def _choices(moment: Moment, most: int) -> Iterator[_Choice]:
    at_risk: list[Sequence[_Content | _Names]] = [
        _name_outcomes(path, directory)
        for path, directory in sorted(moment.directories.items())
    ]
    for number, inode in sorted(moment.inodes.items()):
        if inode.changes and (name := _name_of(number, moment)):
            at_risk.append(_content_outcomes(name, number, inode))
    count = 1
    for outcomes in at_risk:
        count *= len(outcomes)
    if count <= most:
        yield from itertools.product(*at_risk)
    else:
        yield from _sample(at_risk, most, random.Random(moment.number))  # noqa: S311


def _sample(
    at_risk: Sequence[Sequence[_Content | _Names]], most: int, pick: random.Random
) -> Iterator[_Choice]:
    everything: _Choice = tuple(outcomes[-1] for outcomes in at_risk)
    nothing: _Choice = tuple(outcomes[0] for outcomes in at_risk)
    yield everything
    yield nothing
    singles = [
        (*rest[:i], outcome, *rest[i + 1 :])
        for rest in (everything, nothing)
        for i, outcomes in enumerate(at_risk)
        for outcome in outcomes
    ]
    yield from pick.sample(singles, min(len(singles), most // 2))
    for _ in range(most // 2):
        yield tuple(pick.choice(outcomes) for outcomes in at_risk)


def _name_of(number: int, moment: Moment) -> str | None:
    """A name that the file may be found under after the crash."""
    for directory in moment.directories.values():
        for name, inode in directory.durable.items():
            if inode == number:
                return name
        for change in directory.changes:
            if change.inode == number and change.name is not None:
                return change.name
    return None


def _name_outcomes(path: str, directory: Directory) -> list[_Names]:
    """All outcomes from nothing since the last sync to everything, each once."""
    found: dict[Hashable, _Names] = {}
    for kept in _subsets(len(directory.changes)):
        names = directory.names([directory.changes[i] for i in kept])
        story = f"{Path(path).name} has {sorted(names)}" if directory.changes else ""
        found.setdefault(frozenset(names.items()), _Names(path, names, story))
    last = found.pop(frozenset(directory.names().items()))
    return [*found.values(), last]


def _content_outcomes(name: str, number: int, inode: Inode) -> list[_Content]:
    """All outcomes from nothing that is at risk to everything, each once."""
    risky = [i for i, change in enumerate(inode.changes) if not change.settled]
    found: dict[bytes, str] = {}
    for kept in _subsets(len(risky)):
        lost = set(risky) - {risky[i] for i in kept}
        left = [c for i, c in enumerate(inode.changes) if i not in lost]
        found.setdefault(inode.content(left), f"writes {kept}")
        last = max(lost, default=None)
        if last is None:
            continue
        for how, torn in _torn(inode.changes[last]):
            changes = [
                part
                for i, change in enumerate(inode.changes)
                if i == last or i not in lost
                for part in (torn if i == last else (change,))
            ]
            found.setdefault(inode.content(changes), f"writes {kept}, {how}")
    whole = inode.content()
    found.pop(whole, None)
    found[whole] = "whole"
    return [_Content(number, c, f"{name}: {how}") for c, how in found.items()]


def _subsets(count: int) -> list[tuple[int, ...]]:
    """Sets of the *count* steps that happened; all sets for a few, else the likely ones."""
    every = tuple(range(count))
    if count <= 4:
        return [s for n in range(count + 1) for s in itertools.combinations(every, n)]
    prefixes = [every[:n] for n in range(count + 1)]
    alone = [(i,) for i in every]
    without = [every[:i] + every[i + 1 :] for i in every]
    return [*prefixes[:-1], *alone, *without, every]


def _torn(change: Change) -> Iterator[tuple[str, tuple[Change, ...]]]:
    """Possible remains of a write; where nothing was, zeros are read."""
    if not change.data:
        return
    at, data = change.at, change.data
    length = Change(at + len(data), b"")
    for cut in _cuts(change):
        begin, end = Change(at, data[:cut]), Change(at + cut, data[cut:])
        yield f"torn at {cut}", (begin,)
        yield f"nothing from {cut}", (begin, length)
        yield f"nothing up to {cut}", (end,)
    yield "its length alone", (length,)


def _cuts(change: Change) -> list[int]:
    """Where a write breaks: at its ends, between chunks, at sectors and pages."""
    assert change.data is not None
    size = len(change.data)
    cuts = {1, size - 1, *change.seams}
    for block in _BLOCKS:
        cuts.update(range(block - change.at % block, size, block))
    inside = sorted(cut for cut in cuts if 0 < cut < size)
    step = max(1, len(inside) // 12)
    return inside[::step]
