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
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from typing import Any

from gateway.store.disk import Disk
from gateway.store.names import hidden_name
from gateway.store.spool.writing import Task, WrittenFile

__all__ = ["Lost", "Processes", "usual_number"]

_MODULE = "gateway.store.spool.process"
_HUNG_SECONDS = 300.0
"""Without a row group, where one takes a tenth of a second."""
_END_SECONDS = 1.0
_MOST = 4
"""One event loop does not take what more of them could publish."""


class Lost(Exception):
    """A process ended, or hangs; its file is not written."""


def usual_number() -> int:
    """How many there are unless configured: the event loop has a core for itself."""
    return max(1, min(_MOST, len(os.sched_getaffinity(0)) - 1))


class Processes:
    """Up to *most* of them; further ones start when several segments wait.

    *protocols*: of each protocol whose batches may come, the options of its listeners.
    See `Writer`.
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
        self._protocols = protocols
        self._disk = disk
        self._hung_seconds = hung_seconds
        self._idle: list[_Process] = []
        self._busy: dict[Task, _Process] = {}
        self._numbers = itertools.count()

    def begin(self, task: Task) -> None:
        """See `Writer`."""
        if task in self._busy:
            return
        if not self._idle:
            if len(self._busy) == self._most:
                return
            self.start()
        process = self._idle.pop()
        own = hidden_name(task.path.name[1:], (os.getpid(), next(self._numbers)))
        process.begin(replace(task, path=task.path.with_name(own)))
        self._busy[task] = process

    def start(self) -> None:
        """Have one that is ready before it is needed."""
        self._idle.append(_Process(self._protocols))

    def finish(self, task: Task, previous: str) -> WrittenFile:
        """See `Writer`.  Raises `Lost`, too."""
        self.begin(task)
        if task not in self._busy:  # all are at what was to come after it
            self._busy.popitem()[1].end(0)
            self.begin(task)
        process = self._busy.pop(task)
        try:
            path, written = process.finish(previous, self._hung_seconds)
        except Lost:
            process.end(0)
            raise
        except Exception:  # it did what it could, and goes on
            self._idle.append(process)
            raise
        self._idle.append(process)
        try:
            self._disk.rename(path, task.path)
        except OSError:
            with contextlib.suppress(OSError):
                self._disk.unlink(path)
            raise
        return written

    def close(self) -> None:
        """See `Writer`."""
        for process in (*self._idle, *self._busy.values()):
            process.end(_END_SECONDS)
        self._idle.clear()
        self._busy.clear()


class _Process:
    """One of them, which has at most one task at a time."""

    def __init__(self, protocols: Mapping[str, Sequence[Any]]) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                },
            )
        self._told: Any = protocols
        """What it is to be told before its next task."""
        self._task: Task | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, task: Task) -> None:
        """Write that file.  What fails is told by `finish`."""
        self._task = task
        with contextlib.suppress(OSError):
            if self._told is not None:
                self._connection.send(self._told)
                self._told = None
            self._connection.send(task)

    def finish(self, previous: str, hung_seconds: float) -> tuple[Any, WrittenFile]:
        """The file's path, and the file; raises what went wrong, or `Lost`."""
        assert self._task is not None
        try:
            self._connection.send(previous)
            while (said := self._next(hung_seconds)) is None:
                pass
        except (OSError, EOFError) as why:
            raise Lost(self._end()) from why
        if isinstance(said, Exception):
            raise said
        return self._task.path, said

    def _next(self, hung_seconds: float) -> Any:
        """What it says; None that it got on."""
        if not self._connection.poll(hung_seconds):
            raise Lost(
                f"publisher process {self.pid} got nowhere for {hung_seconds:.0f} s"
            )
        return self._connection.recv()

    def _end(self) -> str:
        """How it ended: a sentence."""
        try:
            status = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
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
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            return
        self._process.kill()
        if self._task is not None:
            with contextlib.suppress(OSError):
                self._task.path.unlink()
