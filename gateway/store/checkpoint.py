"""Checkpoints: state files of what protocols remember beside their events, so that the
journal can shrink.

A protocol whose state is more than its events (which streams there are, how far each
sender is) has a `Memory`.  It is rebuilt at a start from its *state file* and from
what the journal still holds.  So a segment of the journal may only go when it is
published and every memory has been saved with all that the segment holds.

    1. ask every memory for a snapshot, in one turn of the reactor; the segments that
       `published` was called with before are covered by it
    2. when all snapshots have come (all in them is durable): for each, write
       `.<name>.state`; sync it; rename it to `<name>.state`; sync the directory
    3. remove the segments that are covered

A start without a state file of each memory saves them first, and `known` says when that
is done.  Only a state file tells the next start that a protocol remembers.  Senders whose
batches without events it would let go of have to wait for it.

A crash anywhere leaves the old or the new file of each memory.  With an old file all of
the covered segments are there.  With a new one any of them may be.  They are replayed over a
state that has them already, and that changes nothing, because a memory can tell
what it has.

Invariant: a snapshot has all that its covered segments have.  `published` is called when
all who submitted a batch in the segment are told of it (`Journal.when_told`).  That may be
long after its file was written.  A busy reactor is told of only so many batches in a turn, and
with `ack: spool` and a bucket they are told when that has the file.  A memory that takes batches as
they become durable has taken them then; one that takes them sooner lets its snapshot wait
until they are durable.

Where they wait for room on the disk, which these segments have, that would be for ever.
Such a memory (`Rebuilding`) makes the snapshot of its state file and of these segments.

    file = magic 8 | version u16 | length of name u16 | length of data u64 | crc32c u32
           | name | data                   (little-endian; the CRC is of all the rest)
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import google_crc32c
from attrs import Factory, define
from twisted.internet.defer import (
    CancelledError,
    Deferred,
    FirstError,
    gatherResults,
    maybeDeferred,
)
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from gateway.event import Stored
from gateway.plugins import RAISED, failure
from gateway.sdk.disk import Disk, replace_file
from gateway.sdk.interfaces import Memory, Rebuilding
from gateway.store.journal import Segment, segment
from gateway.store.system.disk import read_patiently
from gateway.store.system.room import Room

_MAGIC = b"gwstate\n"
_VERSION = 1
_HEAD = struct.Struct("<8sHHQ")
_CRC = struct.Struct("<I")
_SUFFIX = ".state"
_SHARE = 8
_RETRY_SECONDS = 10.0
_STOP_SECONDS = 10.0


class Unreadable(Exception):
    """Something stored can not be read; the text says where, why and what to do."""


def saved_names(directory: Path, disk: Disk) -> list[str]:
    """The protocols that have a state file: it is kept, whatever is served."""
    if not disk.exists(directory):
        return []
    return [
        name.removesuffix(_SUFFIX)
        for name in disk.names(directory)
        if name.endswith(_SUFFIX) and not name.startswith(".")
    ]


@define(eq=False, slots=False)
class Checkpoint:
    """Saves the memories of one node, and removes the journal segments that they cover.

    Call it from the reactor's thread.  Without memories it does nothing.

    *in_thread* is `twisted.internet.threads.deferToThread`; there *remove_segment* is
    called (`gateway.store.spool.Publisher.remove`).

    Saves *interval* seconds after there is a segment to remove, or as soon as
    those have *most_bytes* and are some times larger than what has to be written.

    19 attributes: nine are given; the others are what the next state file covers.
    """

    _log = Logger()

    _directory: Path
    _memories: Mapping[str, Memory]
    _disk: Disk
    _clock: IReactorTime
    _in_thread: Callable[..., Deferred[Any]]
    _remove_segment: Callable[[Segment], None]
    _interval: float = 60.0
    _most_bytes: int = 128 * 2**20
    _room: Room = Factory(Room)

    def __attrs_post_init__(self) -> None:
        self.kept_bytes = 0
        """Size of the segments that are published and still needed."""
        self.saved = self.failed = 0
        """How often the memories were saved, and could not be."""
        self.saved_at: float | None = None
        """When that was last, by the clock."""
        self._kept: list[Segment] = []
        self._saving: Deferred[None] | None = None
        self._due: IDelayedCall | None = None
        self.trouble: str | None = None
        """Why it can not be saved now."""
        self._stopped = False
        self.known: Deferred[None] = Deferred()
        """Fires when there is a state file of each memory."""

    @property
    def reserved_bytes(self) -> int:
        """Room on the disk that the next state files will take beside the old."""
        return self._room.state_bytes

    @property
    def names(self) -> Sequence[str]:
        """The protocols whose memories these are."""
        return list(self._memories)

    # -- start ----------------------------------------------------------------

    def recover(
        self, segments: Sequence[Segment], unpublished: Sequence[Segment]
    ) -> None:
        """Bring every memory to where it was.  Blocks.

        *segments* are all that the journal holds; of the *unpublished* ones `published`
        will tell later.  Raises `Unreadable`, OSError.
        """
        for name in saved_names(self._directory, self._disk):
            self._restore(name)
        if not self._memories:
            return
        for name in self._disk.names(self._directory):
            if name.startswith(".") and name.endswith(_SUFFIX):
                self._disk.unlink(self._directory / name)
        for sealed in segments:
            self._replay(sealed)
        later = {sealed.path for sealed in unpublished}
        for sealed in segments:
            if sealed.path not in later:
                self._keep(sealed)

    def _restore(self, name: str) -> None:
        path = self._path(name)
        if name not in self._memories:
            raise Unreadable(
                f"{path}: no protocol {name!r} that remembers is installed: install the "
                "package that brings it (an entry point in the group "
                "gateway.protocols), or move the file away to forget what it remembers"
            )
        data, size = self._read(name)
        try:
            self._memories[name].restore(data)
        except Exception as why:  # whatever a format that is not ours makes of it
            raise _unreadable(path, f"{type(why).__name__}: {why}") from why
        self._room.state_bytes += size

    def _read(self, name: str) -> tuple[bytes, int]:
        """The data in the state file, and the size of the file."""
        path = self._path(name)
        content, _ = read_patiently(self._disk, path)
        return decode_state(path, name, content), len(content)

    def _batches(self, sealed: Segment) -> Iterator[Stored]:
        data, _ = read_patiently(self._disk, sealed.path)
        last = sealed.last_lsn
        try:
            yield from segment.Scan(
                data, name=sealed.path.name, before=last + 1, durable=last
            )
        except segment.InvalidSegment as why:
            # The recovery has just read it: the next start finds out what is left.
            raise OSError(
                errno.EIO,
                f"{why}, though it was a moment ago; start again",
                sealed.path,
            ) from why

    def _replay(self, sealed: Segment) -> None:
        for stored in self._batches(sealed):
            for name, memory in self._memories.items():
                try:
                    memory.replay(stored)
                except Exception as why:
                    raise Unreadable(
                        f"{sealed.path}: {name} can not take back the batch at lsn "
                        f"{stored.lsn}: {type(why).__name__}: {why}.  Start the "
                        "version that wrote it; or, to go on without all that this "
                        "file has, its unpublished events too, add .damaged to its name"
                    ) from why

    def start(self) -> None:
        """Start the memories; save them soon.  Raises `Unreadable`."""
        for name, memory in self._memories.items():
            try:
                memory.start()
            except RAISED as why:
                raise Unreadable(failure(name, "memory.start", why)) from why
        there = saved_names(self._directory, self._disk) if self._memories else []
        if len(there) == len(self._memories):
            self.known.callback(None)
        if self._kept or not self.known.called:
            self._save()

    # -- while it runs --------------------------------------------------------

    def published(self, sealed: Segment) -> None:
        """The segment's events are in the spool, if it has any, and who waited is told."""
        if self._memories:
            self._keep(sealed)
            self._schedule()

    def _keep(self, sealed: Segment) -> None:
        self._kept.append(sealed)
        self.kept_bytes += sealed.bytes

    def _schedule(self) -> None:
        """Save now, later, or not."""
        if self._saving is not None or self._stopped:
            return
        if self.known.called and not self._kept:
            return
        most = max(self._most_bytes, _SHARE * self.reserved_bytes)
        if self.kept_bytes >= most and self.trouble is None:
            self._save()
        elif self._due is None:
            seconds = _RETRY_SECONDS if self.trouble else self._interval
            self._due = self._clock.callLater(seconds, self._save)

    def _save(self) -> None:
        self._cancel()
        self._saving = Deferred.fromCoroutine(self._try_to_save())
        self._saving.addCallback(lambda _: self._saved())

    def _saved(self) -> None:
        self._saving = None
        self._schedule()

    async def _try_to_save(self) -> None:
        try:
            await self._save_and_remove()
        except Exception as why:  # nothing was removed: it can be tried for ever
            first = why.subFailure.value if isinstance(why, FirstError) else why
            if self._stopped and isinstance(first, CancelledError):  # it gave up
                self._log.warn(
                    "{path} is not written: that would take longer than the {seconds:g} s "
                    "that a stop waits; the next start reads the journal instead",
                    path=self._directory,
                    seconds=_STOP_SECONDS,
                )
                return
            text = f"{type(first).__name__}: {first}"
            if self.trouble is None:
                self._log.error(
                    "{path} can not be written yet; the journal keeps what it holds: "
                    "{why}",
                    path=self._directory,
                    why=text,
                )
            self.trouble = f"{self._directory} can not be written: {text}"
            self.failed += 1
            return
        if self.trouble is not None:
            self._log.info("{path} is written again", path=self._directory)
        self.trouble = None

    async def _save_and_remove(self) -> None:
        covered = len(self._kept)
        asked = [
            Deferred.fromCoroutine(self._state(name, each, self._kept[:covered]))
            for name, each in self._memories.items()
        ]
        states = dict(await gatherResults(asked, consumeErrors=True))
        self._room.state_bytes = await self._in_thread(self._write, states)
        self.saved += 1
        self.saved_at = self._clock.seconds()
        if not self.known.called:
            self.known.callback(None)
        await self._in_thread(self._remove, self._kept[:covered])
        self.kept_bytes -= sum(sealed.bytes for sealed in self._kept[:covered])
        del self._kept[:covered]

    async def _state(
        self, name: str, memory: Memory, covered: Sequence[Segment]
    ) -> tuple[str, bytes]:
        """The memory's snapshot, or one that waits for no room where there is none."""
        asked = _snapshot(name, memory)
        if not isinstance(memory, Rebuilding):
            return name, await asked

        def look() -> None:
            if self._room.wanted_bytes and not self._stopped:
                asked.cancel()

        looking = LoopingCall(look)
        looking.clock = self._clock
        looking.start(_RETRY_SECONDS, now=False)
        try:
            return name, await asked
        except CancelledError:
            if self._stopped or not self._room.wanted_bytes:
                raise
        finally:
            looking.stop()
        return name, await self._in_thread(self._rebuilt, name, memory, covered)

    # -- in a thread ----------------------------------------------------------

    def _rebuilt(
        self, name: str, memory: Rebuilding, covered: Sequence[Segment]
    ) -> bytes:
        """A snapshot of the state file and these segments, and no more."""
        there, data = self._disk.exists, None
        if there(self._path(name)):
            data, _ = self._read(name)
        # Those that have gone are in the file.
        left = (sealed for sealed in covered if there(sealed.path))
        return memory.rebuilt(data, chain.from_iterable(map(self._batches, left)))

    def _write(self, states: Mapping[str, bytes]) -> int:
        """Step 2; returns how many bytes that were."""
        size = 0
        for name, data in states.items():
            chunks = _encode(name, data)
            replace_file(self._disk, self._path(name), chunks).close()
            size += sum(map(len, chunks))
        return size

    def _remove(self, covered: Sequence[Segment]) -> None:
        """Step 3; what is removed already may be named again."""
        for sealed in covered:
            self._remove_segment(sealed)

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{_SUFFIX}"

    # -- stop -----------------------------------------------------------------

    def stop_memories(self) -> None:
        """Stop the memories: they submit nothing more of their own accord."""
        for name, memory in self._memories.items():
            try:
                memory.stop()
            except RAISED:  # all else is to stop in order
                self._log.failure("protocol {name} fails in memory.stop", name=name)

    def stop(self) -> Deferred[None]:
        """Save once more, so that the next start has nothing to replay; or give up.

        To be called when everything is published that will be.
        """
        self._stopped = True
        self._cancel()
        last = Deferred.fromCoroutine(self._save_last())
        last.addTimeout(_STOP_SECONDS, self._clock)
        return last.addErrback(lambda _: None)

    async def _save_last(self) -> None:
        until = self._clock.seconds() + _STOP_SECONDS
        if self._saving is not None:
            await self._saving
        # What was given up above is not begun again.
        if self._kept and self._clock.seconds() < until:
            await self._try_to_save()

    def _cancel(self) -> None:
        due, self._due = self._due, None
        if due is not None and due.active():
            due.cancel()


def _snapshot(name: str, memory: Memory) -> Deferred[bytes]:
    """The memory's snapshot; a failure names the protocol."""

    async def ask() -> bytes:
        try:
            data: object = await maybeDeferred(memory.snapshot)
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise TypeError(f"it gives {data!r}, and no bytes"[:200])
        except CancelledError:
            raise
        except RAISED as why:
            raise RuntimeError(failure(name, "memory.snapshot", why)) from why
        return bytes(data)

    return Deferred.fromCoroutine(ask())


def _encode(name: str, data: bytes) -> list[bytes]:
    text = name.encode()
    head = _HEAD.pack(_MAGIC, _VERSION, len(text), len(data))
    return [head, _CRC.pack(_crc(head, text, data)), text, data]


def decode_state(path: Path, name: str, content: bytes) -> bytes:
    """The data in the state file of protocol *name*.  Raises `Unreadable`."""
    start = _HEAD.size + _CRC.size
    if len(content) < start or not content.startswith(_MAGIC):
        raise _unreadable(path, "it is no state file")
    head = content[: _HEAD.size]
    _, version, named, size = _HEAD.unpack(head)
    text, data = content[start : start + named], content[start + named :]
    if _CRC.unpack_from(content, _HEAD.size) != (_crc(head, text, data),):
        raise _unreadable(path, "it is damaged")
    if version != _VERSION:
        raise Unreadable(
            f"{path} has format {version}, and this version reads {_VERSION}: start the "
            "version that wrote it"
        )
    if text != name.encode() or len(data) != size:
        raise _unreadable(path, f"it is that of {text.decode(errors='replace')!r}")
    return data


def _crc(head: bytes, text: bytes, data: bytes) -> int:
    crc: int = google_crc32c.extend(google_crc32c.value(head + text), data)
    return crc


def _unreadable(path: Path, why: str) -> Unreadable:
    return Unreadable(
        f"{path} can not be read: {why}.  Put back a copy of it, or move it away to go "
        "on without what it remembers; the events are not concerned"
    )
