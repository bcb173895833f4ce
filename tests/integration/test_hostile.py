"""Peers that mean ill, against the real daemon: what they cost is bounded, the log has
one clear line about each, and a well-behaved client beside them notices nothing.
"""

import struct
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from pylogbeat import PyLogBeatClient

from daemons import listener
from deadlines import eventually
from samples import some_of

pytestmark = pytest.mark.fresh  # what they cost is measured

MiB = 1 << 20
MANY = 0xFFFFFFFF
PEERS = some_of(8, 3)


def frame(kind: bytes, *numbers: int) -> bytes:
    return kind + struct.pack(f">{len(numbers)}I", *numbers)


def squeezed(pieces: Iterator[bytes], level: int = 1) -> bytes:
    packer = zlib.compressobj(level)
    body = b"".join([*map(packer.compress, pieces), packer.flush()])
    return frame(b"2C", len(body)) + body


def one_event_of_a_gigabyte() -> bytes:
    """A megabyte that inflates to a thousand times as much."""
    packer = zlib.compressobj(9)
    begin = packer.compress(frame(b"2J", 1, 1024 * MiB))
    begin += packer.flush(zlib.Z_FULL_FLUSH)
    # What stands behind such a flush refers to nothing before it, and so may be repeated.
    piece = packer.compress(bytes(MiB)) + packer.flush(zlib.Z_FULL_FLUSH)
    body = begin + piece * 1024
    return frame(b"2W", 1) + frame(b"2C", len(body)) + body


def many_events() -> bytes:
    """Each is small, all together are more than twice `limits.inflated_bytes`, and nine
    hundred times what is sent."""
    count = 2500
    event = b'{"m":"' + bytes(100_000).replace(b"\0", b"x") + b'"}'

    def pieces() -> Iterator[bytes]:
        for number in range(1, count + 1):
            yield frame(b"2J", number, len(event)) + event

    return frame(b"2W", count) + squeezed(pieces(), level=9)


def event_after_event_without_end() -> bytes:
    """The window says two; empty events come by the million."""
    more = frame(b"2J", 1, 0) * 10_000
    return frame(b"2W", 2) + squeezed(more for _ in range(100))


LIES = {
    "window of 2^32-1": (frame(b"2W", MANY), "(options.window_events)"),
    "event of 4 GiB": (
        frame(b"2W", 1) + frame(b"2J", 1, MANY), "(limits.inflated_bytes)"
    ),
    "compressed frame of 4 GiB": (
        frame(b"2W", 1) + frame(b"2C", MANY), "(options.compressed_bytes)"
    ),
    "2^32-1 pairs": (frame(b"1W", 1) + frame(b"1D", 1, MANY), "(options.pairs)"),
    "key of 4 GiB": (
        frame(b"1W", 1) + frame(b"1D", 1, 1, MANY), "(limits.inflated_bytes)"
    ),
    "bomb in one event": (one_event_of_a_gigabyte, "(limits.inflated_bytes)"),
    "bomb in many events": (many_events, "(limits.inflated_bytes)"),
    "bomb in empty events": (event_after_event_without_end, "(options.window_events)"),
}  # fmt: skip


@contextmanager
def friend(daemon: Any) -> Iterator[int]:
    """A client that sends window after window meanwhile, on one connection.

    Gives the most memory that the daemon had before anybody else came: writing the
    first Parquet file takes 45 MiB that it takes but once.
    """
    over = threading.Event()
    sent: list[bytes] = []
    trouble: list[BaseException] = []

    def work() -> None:
        try:
            with PyLogBeatClient(*address) as client:
                while not over.wait(0.01):
                    events = [b'{"n":%d}' % (len(sent) + n) for n in range(50)]
                    client.send(events)
                    sent.extend(events)
        except BaseException as why:
            trouble.append(why)

    address = daemon.address()
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        eventually(
            lambda: sent and daemon.status()["spool"]["published_lsn"],
            "the friend's first events are published",
        )
        yield daemon.memory()
    finally:
        over.set()
        thread.join()
    assert not trouble
    assert sent
    daemon.settled()
    rows = [row for row in daemon.rows() if row["payload"].startswith(b'{"n":')]
    assert [row["payload"] for row in rows] == sent
    assert len({row["session"] for row in rows}) == 1


def grown(daemon: Any, before: int) -> int:
    grown: int = daemon.memory() - before
    print(f"memory grew by {grown / MiB:.1f} MiB")
    return grown


def lines_about(daemon: Any, source: str) -> list[str]:
    """Warnings; that a connection ended is said of everybody."""
    warnings = [line for line in daemon.log.splitlines() if " warn " in line]
    return [line for line in warnings if f" {source}:" in line]


def test_lies_about_sizes_are_refused(start, connect):
    """From the declared length on, or at the limit: FIN, one line with limit and key,
    no memory, nothing stored; several of each at a time.
    """
    daemon = start()
    with friend(daemon) as before:
        for number, (lie, key) in enumerate(LIES.values(), start=1):
            data = lie() if callable(lie) else lie
            source = f"127.0.1.{number}"
            peers = [connect(daemon.address(), source) for _ in range(PEERS)]
            with ThreadPoolExecutor(len(peers)) as pool:
                # Raises BrokenPipeError or ConnectionResetError if RST comes.
                list(pool.map(lambda peer: peer.send(data), peers))  # noqa: B023
            # Who waits while others are served hears that we live, and nothing else.
            heard = [peer.rest().replace(b"2A\0\0\0\0", b"") for peer in peers]
            assert heard == [b""] * PEERS
            (line,) = lines_about(daemon, source)
            assert " refused: " in line
            assert ", limit " in line
            assert line.endswith(key)
    assert {row["peer"].partition(":")[0] for row in daemon.rows()} == {"127.0.0.1"}
    # At most eight at a time, each with up to 65,536 acknowledgements owed: about 40 MiB.
    assert grown(daemon, before) < 64 * MiB


def test_slow_writers_cost_little(start, connect):
    """Peers that send an endless window byte by byte keep their connection and hardly
    any memory; there may be as many as `limits.connections_per_peer`, and one line in
    the log about the others.
    """
    limits = {"connections_per_peer": 200}
    daemon = start(listeners=[listener("beats", "lumberjack", limits=limits)])
    address = daemon.address()
    with friend(daemon) as before:
        peers = [connect(address, "127.0.4.1") for _ in range(250)]
        eventually(
            lambda: daemon.listener()["rejected"].get("connections_per_peer") == 50,
            "fifty are turned away",
        )
        data = frame(b"2W", 1000) + frame(b"2J", 1, 15 * MiB) + bytes(100)
        for at in range(len(data)):
            for peer in peers[:200]:
                peer.send(data[at : at + 1])
        assert daemon.listener()["connections"] == 201
    (line,) = lines_about(daemon, "127.0.4.1")
    assert "limit 200 (limits.connections_per_peer)" in line
    assert grown(daemon, before) < 64 * MiB
