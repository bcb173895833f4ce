"""Looks at file descriptors and memory: are they enough for what peers may take?"""

from __future__ import annotations

import contextlib
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from gateway.config import Config
from gateway.doctor.look import Look, fail, ok, warn
from gateway.spoken import size

_OWN_DESCRIPTORS = 1024
"""Descriptors for journal, spool and admin port."""
_LEAST_DESCRIPTORS = 256
_BASE_BYTES = 256 * 2**20
"""The daemon's memory without work, and for writing one Parquet file."""
_MEMORY = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def examine(config: Config) -> Iterator[Look]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield _descriptors(config, None if hard == resource.RLIM_INFINITY else hard)
    yield _memory(config, _granted())


def _descriptors(config: Config, hard: int | None) -> Look:
    """Compare with the hard limit, to which the daemon lifts its own."""
    wanted = sum(one.limits.connections for one in config.listeners)
    detail = f"{hard or 'any number'} for {wanted} connections (limits.connections)"
    if hard is None or hard >= wanted + _OWN_DESCRIPTORS:
        return ok("file descriptors", detail)
    advice = f"LimitNOFILE={wanted + _OWN_DESCRIPTORS} in the unit (`ulimit -Hn`), or lower the limits"
    if hard < _LEAST_DESCRIPTORS:
        return fail("file descriptors", detail, advice)
    return warn("file descriptors", f"{detail}: those beyond wait to be let in", advice)


def _granted() -> int | None:
    """Bytes that this machine, or this container, has; None if that is not known."""
    found = []
    with contextlib.suppress(OSError):
        total = re.search(r"MemTotal: +(\d+) kB", _MEMORY.read_text())
        found += [int(total[1]) * 1024] if total else []
    with contextlib.suppress(OSError):
        limit = _CGROUP.read_text().strip()
        found += [int(limit)] if limit.isdigit() else []
    return min(found, default=None)


def _memory(config: Config, granted: int | None) -> Look:
    """The journal's bound, which peers share, and a file's worth of rows."""
    wanted = config.journal.memory_bytes + config.journal.segment_bytes + _BASE_BYTES
    needs = f"{size(wanted)} at most, by journal.memory_bytes"
    if granted is None:
        return ok("memory", needs)
    detail = f"{needs}; {size(granted)} there"
    advice = "lower journal.memory_bytes, or give it more memory"
    if wanted > granted:
        return fail("memory", detail, advice)
    if wanted > granted * 0.8:
        return warn("memory", detail, advice)
    return ok("memory", detail)
