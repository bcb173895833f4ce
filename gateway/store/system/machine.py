"""The machine that the store runs on; a simulation has one of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.sdk.disk import Disk
from gateway.store.system.disk import RealDisk
from gateway.store.system.threads import RealThreads, Threads


@dataclass(frozen=True, slots=True)
class Machine:
    """The disk, the clocks and the threads."""

    disk: Disk = field(default_factory=RealDisk)
    clock: Callable[[], float] = time.time
    """Seconds since the epoch; it may be set."""
    monotonic: Callable[[], float] = time.monotonic
    threads: Threads = field(default_factory=RealThreads)
