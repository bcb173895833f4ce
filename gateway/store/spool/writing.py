"""Writes the Parquet file of one journal segment, durably, and nothing else.

It reads the segment and makes one file; it logs nothing, and keeps nothing from one
segment to the next.  So it may run anywhere: in a process of its own (`processes`), or
where the publisher runs.
"""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from blake3 import blake3

from gateway.event import Batch, Decode
from gateway.sdk.disk import Disk, File
from gateway.store.digests import link_of
from gateway.store.journal import segment
from gateway.store.lsns import Lsns
from gateway.store.node.incarnation import Record
from gateway.store.spool import parquet
from gateway.store.spool.decoding import Decoder, Failure, whole
from gateway.store.system.disk import read_patiently

AT_ONCE = 2
"""The files that a process has in hand.

One is decoded while the end of the one before it is encoded, synced and entered in the
catalog."""


@dataclass(frozen=True, slots=True)
class Task:
    """A file that is to be written."""

    segment: Path
    first_lsn: int
    """Events before it are public already."""
    last_lsn: int
    path: Path
    """The path of the file; if there is one, it is replaced."""
    node: str
    compression: str
    incarnation: str
    record: Record
    """The incarnation's record in the file."""
    copies: Mapping[int, Batch] = field(default_factory=dict, compare=False, repr=False)
    """Batches that need not be read of the segment, by lsn: it does not give them back."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The writing of a file got on."""

    to_sync: int = 0
    """Bytes that are to be on the disk before anything else is said of it."""


@dataclass(slots=True)
class WrittenFile:
    """A complete file whose bytes are synced; its name is not.  There is none if something is
    `missing`.
    """

    events: str
    """The digest of its events (`gateway.store.digests`)."""
    link: str
    """The file's link."""
    octets: str
    """BLAKE3 of all its bytes."""
    flaws: Counter[str]
    """How many of its events are flawed, by reason."""
    missing: Sequence[tuple[int, int]]
    """Lsns that nothing gives back, as (first, last): then there is no file, as a name has all
    that it says."""
    damage: Sequence[segment.Damage]
    """The parts that the segment did not give back."""
    readable: bool
    """Whether the disk gave back every byte of the segment."""
    unreadable: str | None
    """Why nothing at all can be read of the segment, if so: all its events are lost."""
    failures: Sequence[Failure]
    """Batches that their protocols' decoders could not read."""

    @property
    def damaged_bytes(self) -> list[segment.Damage]:
        """Where nothing is left of what is lost, there is nothing to keep."""
        return [one for one in self.damage if one.length]

    @property
    def whole(self) -> bool:
        """The segment was given back as it was written."""
        return self.readable and not (self.damaged_bytes or self.unreadable)


class Writer(Protocol):
    """Writes the files of segments, perhaps several at once.  One thread calls it."""

    def begin(self, task: Task) -> None:
        """A file that is wanted soon: begin with it if there is nothing else to do."""

    def finish(self, task: Task, previous: str) -> WrittenFile:
        """Write it; returns when it is complete.  Blocks.

        *previous* is the link of the file before it, empty if unknown.  Raises OSError,
        MemoryError; the same task may be tried again.
        """

    def drop(self) -> None:
        """Let go of what was begun and not finished, and of the room that it takes."""

    def hurry(self) -> None:
        """The daemon is stopping: wait for nothing that hangs.  Any thread may call."""

    def silence(self) -> str | None:
        """The process that has got nowhere for long, with what is wanted now.  Any
        thread may call.
        """

    def close(self) -> None:
        """Drop what was begun and not finished."""


class Here:
    """The writer that works in the caller's own thread."""

    def __init__(self, disk: Disk, decoders: Mapping[str, Decode]) -> None:
        self._disk = disk
        self._decoders = decoders

    def begin(self, task: Task) -> None:
        """Nothing to do: there is no other that could begin."""

    def finish(self, task: Task, previous: str) -> WrittenFile:
        return write(task, self._disk, self._decoders, lambda: previous)

    def drop(self) -> None: ...

    def hurry(self) -> None: ...

    def silence(self) -> str | None:
        """None: nothing that is in this thread is known to another."""
        return None

    def close(self) -> None: ...


def write(
    task: Task,
    disk: Disk,
    decoders: Mapping[str, Decode],
    previous: Callable[[], str],
    progress: Callable[[int], None] = lambda _: None,
    decoding: AbstractContextManager[object] | None = None,
    executor: Executor | None = None,
) -> WrittenFile:
    """Write the file of a segment; *decoders* by protocol.

    *previous* is asked for the link of the file before it when all rows are written.
    *progress* is called with 0 for each group of rows, and with how many bytes are synced next.
    *decoding* is held while there is something to decode.  *executor*, of one thread, encodes
    and writes one while the next is decoded.  Blocks; raises OSError, MemoryError, and leaves no
    file then.
    """
    more = (previous, progress, decoding, executor)
    try:
        return _write(task, disk, Decoder(decoders), *more)
    except (MemoryError, OSError):
        raise
    except Exception:  # rows that can not be columns: find out whose they are
        decoder = Decoder(decoders, careful=True)
        return _write(task, disk, decoder, *more)


def _write(
    task: Task,
    disk: Disk,
    decoder: Decoder,
    previous: Callable[[], str],
    progress: Callable[[int], None],
    decoding: AbstractContextManager[object] | None,
    executor: Executor | None,
) -> WrittenFile:
    with contextlib.ExitStack() as turn:
        if decoding is not None:
            turn.enter_context(decoding)
        disk.unlink(task.path)
        data, readable = read_patiently(disk, task.segment)
        scan, unreadable = _scan(data, task)
        del data  # it is the scan's, until that is over
        sink, missing = _Sink(disk.create(task.path)), Lsns()
        try:
            written = parquet.write(
                whole(scan, task.first_lsn, task.last_lsn, missing, task.copies),
                sink,
                node=task.node,
                decoder=decoder,
                compression=task.compression,
                previous=previous,
                incarnation=task.incarnation,
                record=task.record,
                progress=lambda: progress(0),
                decoded=turn.close,
                executor=executor,
            )
            if missing:
                disk.unlink(task.path)
            else:
                progress(sink.size)
                sink.file.sync()
        except BaseException:
            with contextlib.suppress(OSError):
                disk.unlink(task.path)
            raise
        finally:
            sink.file.close()
    return WrittenFile(
        events=written.digest,
        link=link_of(written.digest, written.previous),
        octets=sink.digest.hexdigest(),
        flaws=written.flaws,
        missing=list(missing),
        damage=scan.damage,
        readable=readable,
        unreadable=unreadable,
        failures=list(decoder.failures.values()),
    )


def _scan(data: bytes, task: Task) -> tuple[segment.Scan, str | None]:
    """The rest of a segment, and why it is nothing at all, if so."""
    last, name = task.last_lsn, task.segment.name
    try:
        return segment.Scan(data, name=name, before=last + 1, durable=last), None
    except segment.InvalidSegment as why:  # nothing of it can be told from chance
        lost = segment.place_of_lost(task.first_lsn, last)
        return segment.Scan(lost, before=last + 1, durable=last), str(why)


class _Sink(io.RawIOBase):
    """A `File` as pyarrow wants one."""

    def __init__(self, file: File) -> None:
        super().__init__()
        self.file = file
        self.size = 0
        self.digest = blake3()
        """The digest of what was written."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        chunk = bytes(data)
        self.digest.update(chunk)
        self.file.write([chunk])
        self.size += len(chunk)
        return len(chunk)

    def tell(self) -> int:
        return self.size
