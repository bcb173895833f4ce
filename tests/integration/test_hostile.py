"""Peers that mean ill, against the real daemon: what they cost is bounded, the log has
one clear line about each, and a well-behaved client beside them notices nothing.
"""

import struct
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from pylogbeat import PyLogBeatClient

from daemons import listener
from deadlines import eventually
from gateway.protocols.pomelo import wire as pomelo
from gateway.protocols.pravega.codec import encode
from gateway.protocols.pravega.wire import (
    AppendBlockEnd,
    AppendSetup,
    DataAppended,
    Hello,
    SetupAppend,
)
from gateway.protocols.pravega.wire_segments import (
    CreateSegment,
    ReadSegment,
    SegmentCreated,
)
from making import Make
from pravega_socket import Client
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


# Memory, whatever it is taken with


MEMORY = 64 * MiB
ATTACKER = "127.0.9.1"


def in_a_package(kind: int, size: int) -> bytes:
    return struct.pack(">I", kind << 24 | size)


GREETING = pomelo.package(1, b'{"sys":{"type":"js-websocket"},"user":{}}')
GREETING += pomelo.package(2)


@pytest.fixture
def crowd(connect) -> Make[list[Any]]:
    """Peers from the attacker's address, each with a thread that sends what *says*."""

    def crowd(address: tuple[str, int], count: int, says: bytes) -> list[Any]:
        peers = [connect(address, ATTACKER) for _ in range(count)]
        for peer in peers:
            threading.Thread(target=say, args=[peer, says], daemon=True).start()
        return peers

    def say(peer: Any, data: bytes) -> None:
        try:
            peer.send(data)
        except OSError:  # cut off
            peer.socket.close()

    return crowd


def attacked(start: Make) -> Any:
    """A daemon with little memory, and listeners of three protocols."""
    return start(
        journal={"memory_bytes": f"{MEMORY}B"},
        listeners=[
            listener("beats", "lumberjack"),
            listener(
                "game",
                "pomelo",
                limits={"message_bytes": "16MiB"},
                options={"heartbeat": "0s", "handshake_timeout": "1h"},
            ),
            listener("streams", "pravega"),
        ],
    )


def let_go(daemon: Any, name: str) -> int:
    """How many connections were closed for what they made the daemon hold."""
    rejected = daemon.listener(name)["rejected"]
    return int(rejected.get("memory", 0) + rejected.get("protocol", 0)) + int(
        rejected.get("unread", 0)
    )


def assert_bounded(daemon: Any, *rules: str) -> None:
    """It never had more than it may, and the log blames the attacker alone, by one of
    these *rules*: all that is held for all peers, if there are none."""
    peak = daemon.memory()
    print(f"at most {peak / MiB:.1f} MiB")
    assert peak < MEMORY + 200 * MiB
    lines = [line for line in daemon.log.splitlines() if " warn " in line]
    rules = rules or ("(journal.memory_bytes)",)
    assert any(rule in line for line in lines for rule in rules)
    assert [line for line in lines if f" {ATTACKER}:" not in line] == []


@pytest.mark.slow
def test_unfinished_messages_of_many(start, crowd):
    """Sixty game clients without a token, each with 15 MiB of one message: two fit, the
    others wait, and are read as those are let go that do not go on.
    """
    daemon = attacked(start)
    says = GREETING + in_a_package(4, 16 * MiB - 10) + bytes(15 * MiB)
    with friend(daemon):
        crowd(daemon.address("game"), 60, says)
        eventually(lambda: let_go(daemon, "game") >= 3, "three are let go", 300)
    assert_bounded(daemon, "(journal.memory_bytes)", "(limits.minimum_rate)")


@pytest.mark.slow
def test_a_few_that_trickle_keep_nobody_out(start, connect):
    """Six addresses hold all there is, and send just enough: who comes then is taken."""
    daemon = start(journal={"memory_bytes": f"{MEMORY}B"})
    peers = [connect(daemon.address(), f"127.0.8.{n}") for n in range(1, 7)]
    over = threading.Event()

    def trickle(peer: Any) -> None:
        with suppress(OSError):
            peer.send(frame(b"2W", 100) + frame(b"2J", 1, 15 * MiB))
            peer.send(bytes(MEMORY // 2 // 6 - 60_000))
            while not over.wait(0.5):
                peer.send(bytes(100))

    threads = [threading.Thread(target=trickle, args=[peer]) for peer in peers]
    for thread in threads:
        thread.start()
    eventually(
        lambda: daemon.status()["memory"]["held_bytes"] > MEMORY // 3, "they hold it"
    )
    for number in range(1, 5):
        honest = connect(daemon.address(), f"127.0.7.{number}")
        honest.send(honest.window(b"{}"))
        assert honest.ack() == 1
    over.set()
    for thread in threads:
        thread.join()


@pytest.mark.slow
def test_replies_that_nobody_reads(start, crowd):
    """A few bytes ask for a megabyte, many times."""
    daemon = attacked(start)
    writer, event = b"w" * 16, struct.pack(">II", 0, MiB - 8) + bytes(MiB - 8)
    client = Client(daemon.address("streams"))
    client.ask(CreateSegment(1, "s", 0, 0), SegmentCreated)
    client.ask(SetupAppend(1, writer, "s"), AppendSetup)
    client.ask(AppendBlockEnd(writer, len(event), event, 1, 1, 9), DataAppended)
    client.close()
    asks = encode(Hello(17, 5)) + encode(ReadSegment("s", 0, MiB)) * 100
    with friend(daemon):
        crowd(daemon.address("streams"), 60, asks)
        eventually(lambda: let_go(daemon, "streams") >= 40, "most are let go", 300)
    # Each asks for more than one alone may leave unread, too: what is looked at first.
    assert_bounded(daemon, "(journal.memory_bytes)", "does not read what we send")
