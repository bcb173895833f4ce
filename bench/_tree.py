"""CPU and memory of a process and of all that it has started, by what each is."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

__all__ = ["Spent", "Watch", "spent"]

_TICKS = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS = 0.05


@dataclass
class Spent:
    """What the processes of a tree have used, by kind: `java` and `python`."""

    cpu: dict[str, float] = field(default_factory=dict)
    """Seconds of a core since they began, with the children that have ended."""
    compiling: float = 0.0
    """Seconds of a core of the threads in which Java compiles."""
    memory: dict[str, int] = field(default_factory=dict)
    """Bytes, of which those that several processes share are divided by them."""

    @property
    def total(self) -> float:
        """Seconds of a core of all kinds."""
        return sum(self.cpu.values())


def spent(leader: int, *, memory: bool = False) -> Spent:
    """The figures of now of process *leader* and all below it; *memory* costs some ms."""
    stats: dict[int, list[str]] = {}
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            stats[int(path.parent.name)] = _fields(path)
    for process, fields in stats.items():
        below.setdefault(int(fields[2]), []).append(process)
    found = Spent()
    left = [leader]
    while left:
        process = left.pop()
        left += below.get(process, [])
        if (one := stats.get(process)) is None:
            continue
        kind = "java" if one[0] == "java" else "python"
        seconds = sum(map(int, one[12:16])) / _TICKS
        found.cpu[kind] = found.cpu.get(kind, 0.0) + seconds
        if kind == "java":
            found.compiling += _compiling(process)
        if memory:
            found.memory[kind] = found.memory.get(kind, 0) + _memory(process)
    return found


def _fields(path: Path) -> list[str]:
    """The name without brackets, then the fields behind it: state, parent and so on."""
    name, _, rest = path.read_text().partition("(")[2].rpartition(")")
    return [name, *rest.split()]


def _compiling(process: int) -> float:
    ticks = 0
    for path in Path(f"/proc/{process}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            name, *fields = _fields(path)
            if "CompilerThre" in name:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def _memory(process: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


class Watch(threading.Thread):
    """Looks at a process until it ends: `last` is what it had spent then, all but."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self._process = process
        self._over = threading.Event()
        self.last = Spent()

    def run(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            now = spent(self._process.pid)
            if now.total >= self.last.total:
                self.last = now

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
