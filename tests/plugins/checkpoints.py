"""A journal and checkpoints of it, with memories whose snapshots a test answers."""

import errno
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from gateway.event import Batch, Origin, Stored
from gateway.store.checkpoint import Checkpoint
from gateway.store.journal import Log, Segment
from gateway.store.system.disk import RealDisk
from gateway.store.system.room import Room
from incarnations import A


class Words:
    """A memory of the batches that it was told of; tests say when it is durable."""

    def __init__(self) -> None:
        self.words: list[bytes] = []
        self.asked: list[tuple[bytes, Deferred[bytes]]] = []
        self.by_hand = False
        self.running = False

    def restore(self, data: bytes) -> None:
        if data == b"strange":
            raise ValueError("strange indeed")
        self.words = data.split()

    def replay(self, stored: Stored) -> None:
        if stored.batch.body == b"poison":
            raise ValueError("no thanks")
        if stored.batch.body not in self.words:
            self.words.append(stored.batch.body)

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def snapshot(self) -> Deferred[bytes]:
        done: Deferred[bytes] = Deferred()
        self.asked.append((b" ".join(self.words), done))
        if not self.by_hand:
            self.answer()
        return done

    def answer(self) -> None:
        data, done = self.asked.pop(0)
        done.callback(data)


class FailingDisk(RealDisk):
    """A disk that can not rename for a while."""

    failures = 0

    def rename(self, old: Path, new: Path) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.ENOSPC, "no room", str(new))
        super().rename(old, new)


class Place:
    """A journal, and checkpoints of it; *later* collects calls for other threads."""

    def __init__(self, root: Path) -> None:
        self.disk = FailingDisk()
        self.journal, self.state = root / "journal", root / "state"
        self.journal.mkdir()
        self.state.mkdir()
        self.log = Log(self.journal, self.disk, 1, A)
        self.clock = Clock()
        self.later: list[Callable[[], None]] | None = None
        self.origin = Origin("plain", "l", "s", "p")

    def sealed(self, *words: bytes, count: int = 1) -> Segment:
        self.log.commit([Batch(self.origin, 1, count, w, len(w)) for w in words])
        sealed = self.log.seal()
        assert sealed is not None
        return sealed

    def checkpoint(
        self, *names: str, kind: type[Words] = Words, **settings: Any
    ) -> tuple[Checkpoint, Words]:
        memories = {name: kind() for name in names or ("words",)}
        made = Checkpoint(
            self.state,
            memories,
            self.disk,
            self.clock,
            self.in_thread,
            self.remove,
            **settings,
        )
        return made, next(iter(memories.values()))

    def remove(self, sealed: Segment) -> None:
        self.disk.unlink(sealed.path)

    def in_thread(self, call: Callable[..., Any], *args: Any) -> Deferred[Any]:
        begun: Deferred[None] = Deferred()
        if self.later is None:
            begun.callback(None)
        else:
            self.later.append(lambda: begun.callback(None))
        return begun.addCallback(lambda _: call(*args))

    def running(self, **settings: Any) -> tuple[Checkpoint, Words]:
        """One that has begun, with nothing to save."""
        made, words = self.checkpoint(**settings)
        made.recover([], [])
        made.start()
        return made, words

    def segments(self) -> list[str]:
        return sorted(path.name for path in self.journal.iterdir())


class Hasty(Words):
    """One whose words are not durable yet, perhaps."""

    def rebuilt(self, data: bytes | None, batches: Iterable[Stored]) -> bytes:
        other = Words()
        other.restore(data or b"")
        for stored in batches:
            other.replay(stored)
        return b" ".join(other.words)


def hasty(place: Place) -> tuple[Checkpoint, Words, Room]:
    """A checkpoint of it that has begun, with a state file; and room on the disk."""
    room = Room()
    made, memory = place.running(kind=Hasty, room=room)
    memory.by_hand = True
    return made, memory, room
