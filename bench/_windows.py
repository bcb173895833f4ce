"""What the load generator sends: windows of Beats events, built before the clock starts.

Every event differs from every other one: identical events inflate three times
faster and would flatter us.  The same arguments give the same bytes on every
machine.  Built windows are kept in the user's cache directory.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from _documents import MARK, MARK_AT, Shippers

__all__ = ["MARK", "MARK_AT", "Windows", "build", "cached"]

_FORMAT = 4  # of the windows below; part of the cache's key


@dataclass(frozen=True)
class Windows:
    """Ready to be written to a socket, one after the other, round and round."""

    events: int
    """In each window."""
    frames: list[bytes]
    """One `2W` and its events, as Filebeat writes them in one go."""
    payload_bytes: int
    """Mean size of an event's JSON."""


def build(
    count: int,
    events: int = 2048,
    level: int = 3,
    seed: int = 1,
    first: int = 0,
    kind: str = "access",
) -> Windows:
    """*count* distinct windows; the first one is marked with the number *first*."""
    shippers = Shippers(seed, first)
    frames = []
    payload = 0
    for number in range(first, first + count):
        bodies = shippers.window(kind, number, events)
        payload += sum(map(len, bodies))
        frames.append(_window(bodies, level))
    return Windows(events, frames, round(payload / (count * events)))


def _window(bodies: list[bytes], level: int) -> bytes:
    frames = b"".join(
        b"2J" + struct.pack(">II", seq, len(body)) + body
        for seq, body in enumerate(bodies, 1)
    )
    head = b"2W" + struct.pack(">I", len(bodies))
    if level == 0:
        return head + frames
    packed = zlib.compress(frames, level)
    return head + b"2C" + struct.pack(">I", len(packed)) + packed


def cached(
    count: int, events: int, level: int, seed: int, first: int, kind: str
) -> Windows:
    """Like `build`, from the cache if it has been built before."""
    of = f"{count}-{events}-{level}-{seed}-{first}-{kind}"
    key = f"{_FORMAT}-{of}-{zlib.ZLIB_VERSION}"
    name = hashlib.sha256(key.encode()).hexdigest()[:20]
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    path = home / "gateway-bench" / f"{name}.windows"
    if path.exists():
        kept: Windows = pickle.loads(path.read_bytes())
        return kept
    windows = build(count, events, level, seed, first, kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_suffix(f".{os.getpid()}")
    hidden.write_bytes(pickle.dumps(windows, protocol=5))
    hidden.rename(path)
    return windows
