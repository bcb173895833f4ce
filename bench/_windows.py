"""What the load generator sends: windows of Beats events, built before the clock starts.

Every event differs from every other one: identical events inflate three times
faster and would flatter us.  The same arguments give the same bytes on every
machine.  Built windows are kept in the user's cache directory.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import struct
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

__all__ = ["MARK", "MARK_AT", "Windows", "build", "cached"]

#: `message` begins with this, so that a row in the lake tells its window.
MARK = "w{:06d} "
#: Where the six digits of the mark are in the payload.
MARK_AT = len('{"@timestamp":"2026-01-01T00:00:00.000Z","message":"w')

_FORMAT = 3  # of the events below; part of the cache's key
_EVENT = (
    '{{"@timestamp":"{stamp}Z","message":"{mark}{ip} - - [{nginx}] '
    '\\"{verb} /{a}/{b}?q={c} HTTP/1.1\\" {status} {size} \\"https://{d}.example/'
    '\\" \\"{agent}\\" {took}","@metadata":{{"beat":"filebeat","type":"_doc",'
    '"version":"8.13.4"}},"log":{{"offset":{offset},"file":{{"path":"{path}"}}}},'
    '"input":{{"type":"log"}},"ecs":{{"version":"8.0.0"}},"host":{{"name":"{host}"}},'
    '"agent":{{"id":"{id}","type":"filebeat","version":"8.13.4"}}}}'
)
_AGENTS = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/126.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Safari/604.1",
    "curl/8.5.0",
    "python-requests/2.32.3",
    "kube-probe/1.29",
]
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Windows:
    """Ready to be written to a socket, one after the other, round and round."""

    events: int
    """In each window."""
    frames: list[bytes]
    """One `2W` and its events, as Filebeat writes them in one go."""
    payload_bytes: int
    """Mean size of an event's JSON."""
    wire_bytes: float
    """Mean bytes on the wire per event, before TLS."""


def build(
    count: int, events: int = 2048, level: int = 3, seed: int = 1, first: int = 0
) -> Windows:
    """*count* distinct windows; the first one is marked with the number *first*."""
    chance = random.Random(seed * 1_000_003 + first)
    words = [
        "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789-_", k=k))
        for k in range(3, 13)
        for _ in range(400)
    ]
    hosts = [f"web-{n:02d}.{words[n]}" for n in range(30)]
    ids = [f"{chance.getrandbits(128):032x}" for _ in hosts]
    paths = [f"/var/log/nginx/{words[n + 50]}.access.log" for n in range(8)]
    frames = []
    payload = 0
    for number in range(first, first + count):
        bodies = _bodies(chance, number, events, words, hosts, ids, paths)
        payload += sum(map(len, bodies))
        frames.append(_window(bodies, level))
    wire = sum(map(len, frames)) / (count * events)
    return Windows(events, frames, round(payload / (count * events)), wire)


def _bodies(
    chance: random.Random,
    number: int,
    events: int,
    words: list[str],
    hosts: list[str],
    ids: list[str],
    paths: list[str],
) -> list[bytes]:
    """A window comes from one shipper: one host, one file, rising offsets."""
    which = chance.randrange(len(hosts))
    mark = MARK.format(number)
    host, agent_id, path = hosts[which], ids[which], chance.choice(paths)
    now = _START + timedelta(seconds=number)
    offset = chance.randrange(10**9)
    picks = iter(chance.choices(words, k=4 * events))
    bodies = []
    for _ in range(events):
        now += timedelta(milliseconds=chance.randrange(3))
        offset += chance.randrange(150, 320)
        stamp = now.isoformat(timespec="milliseconds")[:23]
        body = _EVENT.format(
            stamp=stamp,
            mark=mark,
            ip=".".join(map(str, chance.getrandbits(32).to_bytes(4, "big"))),
            nginx=stamp[:19],
            verb="POST" if chance.random() < 0.2 else "GET",
            a=next(picks),
            b=next(picks),
            c=next(picks),
            d=next(picks),
            status=chance.choice((200, 200, 200, 204, 301, 404, 500)),
            size=chance.randrange(10**6),
            agent=chance.choice(_AGENTS),
            took=f"{chance.random():.3f}",
            offset=offset,
            path=path,
            host=host,
            id=agent_id,
        )
        bodies.append(body.encode())
    return bodies


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
    count: int, events: int = 2048, level: int = 3, seed: int = 1, first: int = 0
) -> Windows:
    """Like `build`, from the cache if it has been built before."""
    key = f"{_FORMAT}-{count}-{events}-{level}-{seed}-{first}-{zlib.ZLIB_VERSION}"
    name = hashlib.sha256(key.encode()).hexdigest()[:20]
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    path = home / "gateway-bench" / f"{name}.windows"
    if path.exists():
        kept: Windows = pickle.loads(path.read_bytes())
        return kept
    windows = build(count, events, level, seed, first)
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_suffix(f".{os.getpid()}")
    hidden.write_bytes(pickle.dumps(windows, protocol=5))
    hidden.rename(path)
    return windows
