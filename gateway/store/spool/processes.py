"""Processes that write the Parquet files of segments, beside the daemon's.

The daemon's interpreter is for its event loop: decoding and encoding in another process
cost the loop no waiting.  Such a process does what a `Task` says, and nothing else; what
it makes has a hidden name of its own until it is complete.  So one that dies, hangs or
runs out of memory costs time and loses nothing: the segment is there, another process
writes it again.  A process ends when the daemon does.

`process.py` is what runs in it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from gateway.sdk.disk import Disk
from gateway.store.names import hidden_name
from gateway.store.spool.writing import AT_ONCE, Progress, Task, WrittenFile
from gateway.store.system.silence import Silence

_MODULE = "gateway.store.spool.process"
_HUNG_SECONDS = 300.0
"""Seconds without a row group, which takes a tenth of one; `silence` says what is no hang."""
_SILENT_SECONDS = 5.0
"""Seconds of silence of one that is not only slow: it tells of each group of rows."""
_LOOK_SECONDS = 1.0
_STOPPING_SECONDS = 10.0
"""The same while the daemon is stopping."""
_SLOW_DISK_BYTES = 4 << 20
"""An SD card syncs so much in a second, and nothing is heard of it meanwhile."""
_IDLE_SECONDS = 60.0
_MEMORY = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:"
    "glibc.malloc.trim_threshold=16777216",
}
"""Unless the environment says otherwise.  Its threads take turns with large pieces, of which
each thread's own heap, and Arrow's, would keep some for itself (a third of all).  Huge
pages, where the system has them, cost a twentieth less CPU.  So does memory that the process keeps
for the next group of rows, as the system need not clear it.  These are pieces that are smaller than a
segment, and 16 MiB that nothing needs."""
_END_SECONDS = 1.0
_MOST_PROCESSES = 4
"""One event loop does not take what more of them could publish."""


class Lost(Exception):
    """A process ended, or hangs; its file is not written."""


def usual_number() -> int:
    """How many there are unless configured: the event loop has a core for itself."""
    return max(1, min(_MOST_PROCESSES, len(os.sched_getaffinity(0)) - 1))


class Processes:
    """Processes, *most* of them.

    Further ones start when several segments wait, and end when that is over.  *protocols* are
    the options of the listeners of each protocol whose batches may come; one that can not be
    pickled raises.  Implements `Writer`.
    """

    def __init__(
        self,
        most: int,
        protocols: Mapping[str, Sequence[Any]],
        disk: Disk,
        *,
        hung_seconds: float = _HUNG_SECONDS,
    ) -> None:
        self._most = most
        self._protocols = pickle.dumps(protocols)
        self._disk = disk
        self._hung_seconds = hung_seconds
        self._all: list[_Process] = []
        self._begun: dict[Task, _Process] = {}
        self._numbers = itertools.count()
        self._awaited: _Process | None = None

    def begin(self, task: Task) -> None:
        with contextlib.suppress(OSError):  # it is raised when the task is due
            self._begin(task)

    def _begin(self, task: Task) -> None:
        if task in self._begun or (process := self._free()) is None:
            return
        own = hidden_name(task.path.name[1:], (os.getpid(), next(self._numbers)))
        process.begin(task, task.path.with_name(own))
        self._begun[task] = process

    def _free(self) -> _Process | None:
        """One that can take a file: such as has none, if there is one or may be."""
        least = min(self._all, key=lambda each: len(each.paths), default=None)
        if least is None or (least.paths and len(self._all) < self._most):
            self.start()
            least = self._all[-1]
        return least if len(least.paths) < AT_ONCE else None

    def start(self) -> None:
        """Have one that is ready before it is needed."""
        self._all.append(_Process(self._protocols))

    def finish(self, task: Task, previous: str) -> WrittenFile:
        """Finish as `Writer` does.  Raises `Lost`, too."""
        self._begin(task)
        if task not in self._begun:  # all are at what was to come after it
            self._drop(next(reversed(self._begun.values())))
            self._begin(task)
        self._awaited = process = self._begun.pop(task)
        try:
            path, said = process.finish(task, previous, lambda: self._hung_seconds)
        except BaseException:  # nobody knows what it says next
            self._drop(process)
            raise
        finally:
            self._awaited = None
        self._rest(process)
        if isinstance(said, Exception):  # it did what it could, and goes on
            raise said
        written: WrittenFile = said
        if written.missing:  # then there is no file
            return written
        try:
            self._disk.rename(path, task.path)
        except OSError:
            with contextlib.suppress(OSError):
                self._disk.unlink(path)
            raise
        return written

    def _drop(self, process: _Process) -> None:
        """End it, with all that it has in hand."""
        self._all.remove(process)
        self._begun = {
            task: one for task, one in self._begun.items() if one is not process
        }
        process.end(0)

    def _rest(self, process: _Process) -> None:
        """Keep a process that may be needed; of several the one that was not for long ends."""
        process.used = time.monotonic()
        idle = [each for each in self._all if not each.paths]
        if len(idle) > 1:
            longest = min(idle, key=lambda each: each.used)
            if process.used - longest.used > _IDLE_SECONDS:
                self._all.remove(longest)
                longest.end(_END_SECONDS)

    def drop(self) -> None:
        for process in set(self._begun.values()):
            self._drop(process)

    def hurry(self) -> None:
        self._hung_seconds = min(self._hung_seconds, _STOPPING_SECONDS)

    def silence(self) -> str | None:
        process = self._awaited  # one reference, which the other thread sets
        if process is None or process.silence.seconds < _SILENT_SECONDS:
            return None
        silent = process.silence.seconds
        return (
            f"publisher process {process.pid} got nowhere for {silent:.0f} s; it is "
            f"stopped, or hangs in the disk, and is replaced after "
            f"{self._hung_seconds:.0f} s"
        )

    def close(self) -> None:
        for process in self._all:
            process.end(_END_SECONDS)
        self._all.clear()
        self._begun.clear()


class _Process:
    """One of them, which has `AT_ONCE` files in hand at most."""

    def __init__(self, protocols: bytes) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={
                    **_MEMORY,
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                },
            )
        self._untold: bytes | None = protocols
        self.paths: dict[Task, Path] = {}
        """Paths of the files that it may have begun."""
        self.used = time.monotonic()
        self.silence = Silence(self.pid)
        self._syncing: dict[Path, int] = {}
        """Bytes of each file that are on their way to the disk."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, task: Task, path: Path) -> None:
        """Write that file, at that path.  What fails is told by `finish`."""
        self.paths[task] = path
        with contextlib.suppress(OSError):
            if self._untold is not None:
                self._connection.send_bytes(self._untold)
                self._untold = None
            self._connection.send(replace(task, path=path))

    def finish(
        self, task: Task, previous: str, patience: Callable[[], float]
    ) -> tuple[Path, Any]:
        """The file's path, and the file, or what went wrong.  Raises `Lost`."""
        self.silence.end()  # it owes nothing before
        path = self.paths[task]
        of, said = path, Progress()
        try:
            self._connection.send((path, previous))
            while isinstance(said, Progress) or of != path:
                of, said = self._next(patience)  # it got on, with this one or the next
        except (OSError, EOFError) as why:
            raise Lost(self._end()) from why
        del self.paths[task]
        return path, said

    def _next(self, patience: Callable[[], float]) -> tuple[Path, Any]:
        """The file, and what is said of it."""
        while not self._connection.poll(min(_LOOK_SECONDS, patience())):
            syncs = sum(self._syncing.values()) / _SLOW_DISK_BYTES
            if (silent := self.silence.look()) >= patience() + syncs:
                raise Lost(
                    f"publisher process {self.pid} got nowhere for {silent:.0f} s"
                )
        self.silence.end()
        of, said = self._connection.recv()
        self._syncing.pop(of, None)
        if isinstance(said, Progress) and said.to_sync:
            self._syncing[of] = said.to_sync
        return of, said

    def _end(self) -> str:
        self.silence.end()
        while True:
            try:
                status = self._process.wait(_LOOK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                if self.silence.look() >= _END_SECONDS:
                    return f"publisher process {self.pid} does not answer"
        if status == -9:
            return (
                f"publisher process {self.pid} was killed (signal 9): by the system for "
                "want of memory, if `dmesg` says so"
            )
        return f"publisher process {self.pid} ended with status {status}"

    def end(self, seconds: float) -> None:
        """Let it end, for so long; then kill it.  It may hang in the disk even so."""
        self._connection.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
        for path in self.paths.values():
            with contextlib.suppress(OSError):
                path.unlink()
