"""What the figures were measured on, and the floors they are compared with.

A floor is work that nobody who takes these windows and keeps them can avoid,
measured in the same run on the same machine, alone, on one core.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from _windows import build

from gateway.sdk import native

__all__ = [
    "Floors", "best", "cores", "fdatasync_seconds", "floors", "machine",
    "processor_seconds",
]  # fmt: skip

_TICK = os.sysconf("SC_CLK_TCK")
_PACKAGES = ("gateway", "twisted", "pyarrow", "isal", "cryptography", "pyspark")


def machine(directory: Path) -> dict[str, str]:
    """Machine and versions; *directory* is where the gateway will write."""
    facts = {
        "cpu": _cpu_model(),
        "cores": str(cores()),
        "memory": f"{_memory_bytes() / 2**30:.1f} GiB",
        "kernel": platform.release(),
        "file system": _file_system(directory),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }
    for package in _PACKAGES:
        try:
            facts[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            facts[package] = "from the source tree" if package == "gateway" else "none"
    facts["gateway-native"] = native.said
    return facts


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _file_system(directory: Path) -> str:
    """The type, and a warning where fdatasync means nothing."""
    found, longest = "unknown", -1
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if directory.resolve().is_relative_to(point) and len(point) > longest:
            found, longest = kind, len(point)
    return f"{found} (in memory: fdatasync is free)" if found == "tmpfs" else found


def processor_seconds() -> dict[str, float]:
    """What all processors did since boot, in seconds: busy, idle, stolen."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, idle, iowait, irq, softirq, steal, *_ = map(int, fields)
    return {
        "busy": (user + nice + system + irq + softirq) / _TICK,
        "idle": (idle + iowait) / _TICK,
        "stolen": steal / _TICK,
    }


@dataclass(frozen=True)
class Floors:
    """Microseconds per event on one core, unless the name says otherwise."""

    memcpy_us: float
    """To copy the inflated frames once."""
    isal_us: float
    """To inflate with Intel's ISA-L, as the gateway does."""
    zlib_us: float
    """To inflate with zlib, as most readers do."""

    def json(self) -> dict[str, Any]:
        return asdict(self)


def floors(events: int = 2048) -> Floors:
    """Measure now; takes two seconds."""
    from isal import isal_zlib

    sample = build(8, events, seed=7)
    packed = [frame[12:] for frame in sample.frames]
    raw = [zlib.decompress(body) for body in packed]
    room = memoryview(bytearray(max(map(len, raw))))

    def copy(body: bytes) -> None:
        room[: len(body)] = body

    count = len(packed) * events
    inflate: Callable[[bytes], object] = zlib.decompress
    fast: Callable[[bytes], object] = isal_zlib.decompress
    return Floors(
        memcpy_us=best(copy, raw) / count * 1e6,
        isal_us=best(fast, packed) / count * 1e6,
        zlib_us=best(inflate, packed) / count * 1e6,
    )


def best(work: Callable[[bytes], object], bodies: list[bytes]) -> float:
    """Seconds of CPU for one round over *bodies*, the best of many."""
    best = float("inf")
    end = time.perf_counter() + 0.5
    while time.perf_counter() < end or best == float("inf"):
        begin = time.process_time()
        for body in bodies:
            work(body)
        best = min(best, time.process_time() - begin)
    return best


_SYNCS, _ROUNDS, _PAUSE_SECONDS = 40, 10, 0.01


def fdatasync_seconds(directory: Path, group: bytes) -> tuple[float, float]:
    """Median and p99, to write *group* over old bytes of a file and sync it, as the journal does.

    A hundred a second, as a disk that is asked once answers otherwise than one that is busy.
    """
    path = directory / "fdatasync-floor"
    spent = []
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(fd, _SYNCS * group)
        os.fsync(fd)
        for number in range(_ROUNDS * _SYNCS):
            if number % _SYNCS == 0:
                os.lseek(fd, 0, os.SEEK_SET)
            begin = time.perf_counter()
            os.write(fd, group)
            os.fdatasync(fd)
            spent.append(time.perf_counter() - begin)
            time.sleep(_PAUSE_SECONDS)
    finally:
        os.close(fd)
        path.unlink()
    return statistics.median(spent), statistics.quantiles(spent, n=100)[98]


if __name__ == "__main__":
    here = Path.cwd()
    for fact, value in machine(here).items():
        print(f"{fact:16} {value}")
    for floor, figure in floors().json().items():
        print(f"{floor:24} {figure:.3f}")
    sys.exit(0)
