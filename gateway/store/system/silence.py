"""The time for which a process of ours has got nowhere, as far as the kernel can tell.

A slow machine is no hang.  Time in which the process was ready to run, and waited for a
CPU that others had, does not count.  All that it reads or writes is progress, as are the
modules that it imports when it starts.  A process that is stopped, or hangs in the disk,
does neither.  One that calculates without an end waits no longer than it does that.

Linux says so (/proc/PID/task/TID/schedstat, /proc/PID/io); elsewhere every second counts.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

_PROC = Path("/proc")
_MOVED = ("rchar", "wchar", "read_bytes", "write_bytes")
"""Keys of /proc/PID/io that grow as bytes are read and written, in part of a call as well."""


class Silence:
    """The silence of one process.  One thread calls; others may read `seconds`."""

    def __init__(
        self,
        pid: int,
        proc: Path = _PROC,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = proc / str(pid)
        self._clock = clock
        self.end()

    def end(self) -> None:
        """End it: the process was heard of just now."""
        self.seconds = 0.0
        """Seconds as of the last look."""
        self._at = self._clock()
        self._waits, self._bytes = self._waited(), self._moved()

    def look(self) -> float:
        """Look at it: `seconds` as of now."""
        now, waits, moved = self._clock(), self._waited(), self._moved()
        if moved != self._bytes:
            self.seconds = 0.0
        else:
            # The thread that does the work is one; the others wait for it.
            longest = max(
                (waits[tid] - self._waits.get(tid, 0.0) for tid in waits), default=0.0
            )
            self.seconds += max(0.0, now - self._at - max(0.0, longest))
        self._at, self._waits, self._bytes = now, waits, moved
        return self.seconds

    def _waited(self) -> dict[str, float]:
        """Seconds for which each thread was ready to run, and did not."""
        found: dict[str, float] = {}
        with contextlib.suppress(OSError):
            for task in (self._directory / "task").iterdir():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    nanoseconds = (task / "schedstat").read_text().split()[1]
                    found[task.name] = int(nanoseconds) / 1e9
        return found

    def _moved(self) -> list[str]:
        """How many bytes it has read and written."""
        try:
            lines = (self._directory / "io").read_text().splitlines()
        except OSError:
            return []
        return [line for line in lines if line.partition(":")[0] in _MOVED]
