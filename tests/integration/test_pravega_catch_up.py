"""Readers that come late: from memory, the journal, the spool, the archive, and when
retention was quicker.
"""

import socket
from typing import Any

import pytest

from gateway.protocols.pravega.client import V17Writer
from gateway.protocols.pravega.codec import REPLIES, Message, decode, encode
from gateway.protocols.pravega.frames import Frames
from gateway.protocols.pravega.wire import Hello, SegmentIsTruncated
from gateway.protocols.pravega.wire_segments import (
    GetStreamSegmentInfo,
    ReadSegment,
    SegmentRead,
    StreamSegmentInfo,
)
from seaweeds import settings_of
from small_s3 import small_s3

SEGMENT = "plant/hall/0.#epoch.0"
KiB, MiB = 2**10, 2**20


def events(first: int, last: int) -> list[bytes]:
    """A KiB each, with their headers."""
    return [b"%1016d" % n for n in range(first, last)]


class Peer:
    """Reads a segment, and writes to it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._frames = Frames(REPLIES)
        assert self.ask(Hello(17, 5)) == Hello(17, 5)

    def ask(self, message: Message) -> Message:
        self._socket.sendall(encode(message))
        got: list[Message] = []
        while not got:
            data = self._socket.recv(1 << 16)
            assert data, "it hung up"
            got = [decode(*each) for each in self._frames.feed(data)]
        [answer] = got
        return answer

    def begin(self) -> int:
        """Of what is left of the segment."""
        info = self.ask(GetStreamSegmentInfo(1, SEGMENT))
        assert isinstance(info, StreamSegmentInfo)
        return info.start_offset

    def read(self, offset: int, end: int) -> list[bytes]:
        """The events from one offset to the other."""
        data = b""
        while offset + len(data) < end:
            at = offset + len(data)
            found = self.ask(ReadSegment(SEGMENT, at, MiB, "", 1))
            assert isinstance(found, SegmentRead), found
            assert found.offset == at
            assert found.data
            data += found.data
        return [data[at + 8 : at + KiB] for at in range(0, end - offset, KiB)]

    def write(self, writer: V17Writer, some: list[bytes]) -> None:
        with socket.create_connection(("127.0.0.1", self._port), 60) as wire:
            wire.sendall(writer.connected())
            writer.add(some)
            left = len(some)
            while left:
                for data in writer.blocks(most=16 * KiB):
                    wire.sendall(data)
                left -= writer.received(wire.recv(1 << 16))


@pytest.fixture
def late(serve) -> Any:
    """A daemon that keeps little in memory, and publishes only when it stops."""
    return serve(
        options={"recent_bytes": "64KiB"},
        spool={
            "roll_interval": "10m",
            "roll_bytes": "64MiB",
            "roll_events": 10**7,
            "retention": "1h",
        },
    )


def test_wherever_it_lies(late):
    """The same bytes from the journal, the spool and the archive, also from several at
    once; and where retention has taken a file, `SegmentIsTruncated` says what is left.
    """
    daemon = late.daemon
    writer = V17Writer(b"w" * 16, SEGMENT)
    Peer(late.port).write(writer, events(0, 1000))
    peer = Peer(late.port)
    assert not list(daemon.spool.glob("*.parquet"))
    assert peer.read(0, 1000 * KiB) == events(0, 1000)
    assert peer.read(990 * KiB, 1000 * KiB) == events(990, 1000)

    late.restart()
    [first] = daemon.spool.glob("*.parquet")
    assert Peer(late.port).read(0, 1000 * KiB) == events(0, 1000)
    Peer(late.port).write(writer, events(1000, 2000))
    assert Peer(late.port).read(0, 2000 * KiB) == events(0, 2000)

    late.restart()
    first.rename(daemon.archive / first.name)  # as the Spark job does
    peer = Peer(late.port)
    assert peer.read(0, 2000 * KiB) == events(0, 2000)
    Peer(late.port).write(writer, events(2000, 2500))
    assert peer.read(0, 2500 * KiB) == events(0, 2500)

    late.restart()  # what was read just now may still be in memory
    peer = Peer(late.port)
    (daemon.archive / first.name).unlink()  # as its retention does
    for each in (peer, Peer(late.port)):
        told = each.ask(ReadSegment(SEGMENT, 100 * KiB, MiB, "", 1))
        assert isinstance(told, SegmentIsTruncated)
        assert told.offset == 100 * KiB
        assert 1000 * KiB <= told.start_offset <= 1300 * KiB
        start = told.start_offset
        assert each.begin() == start
        assert each.read(start, 2500 * KiB) == events(start // KiB, 2500)
    late.restart()
    told = Peer(late.port).ask(ReadSegment(SEGMENT, 0, MiB, "", 1))
    assert isinstance(told, SegmentIsTruncated)
    assert told.start_offset == start


def test_where_the_spool_is_a_bucket(serve):
    """The same bytes, from the copies here, after a job has taken the files out of it."""
    with small_s3() as server:
        spool = {
            "directory": "s3://gateway/spool",
            "s3": settings_of(server.url),
            "roll_interval": "100ms",
            "retention": "1h",
        }
        late = serve(options={"recent_bytes": "64KiB"}, ack="spool", spool=spool)
        Peer(late.port).write(V17Writer(b"w" * 16, SEGMENT), events(0, 1000))
        late.daemon.settled(1000)
        for name in [name for name in server.objects if "/events-" in name]:
            del server.objects[name]
        assert Peer(late.port).read(0, 1000 * KiB) == events(0, 1000)
        late.restart()
        assert Peer(late.port).read(0, 1000 * KiB) == events(0, 1000)


@pytest.mark.needs_pravega
def test_the_published_client_comes_late(late, pravega_client, eventually):
    """It reads a stream from its head, wherever that lies; also when its file has left
    the archive.
    """
    client = pravega_client(late.controller)
    client.manager.create_scope("plant")
    client.manager.create_stream("plant", "hall", 1)
    client.kill()
    Peer(late.port).write(V17Writer(b"w" * 16, SEGMENT), events(0, 1000))

    def read(group: str, count: int) -> list[bytes]:
        # One that lost its daemon waits for some seconds before it asks for it again.
        client = pravega_client(late.controller)
        made = client.manager.create_reader_group(group, "plant", "hall")
        reader = made.create_reader("r")
        found: list[bytes] = client.whole.read(reader, count)
        reader.reader_offline()
        client.kill()
        return found

    assert read("journal", 1000) == events(0, 1000)
    late.restart()
    Peer(late.port).write(V17Writer(b"x" * 16, SEGMENT), events(1000, 2000))
    assert read("spool", 2000) == events(0, 2000)
    [path] = late.daemon.spool.glob("*.parquet")
    late.daemon.terminate()
    expired = late.daemon.archive / path.name
    path.rename(expired)
    config = late.daemon.config
    config.write_text(config.read_text().replace('"1h"', '"100ms"'))
    late.daemon.start()
    eventually(lambda: not expired.exists(), "the archive drops it")
    assert Peer(late.port).begin() == 0
    assert read("retained", 2000) == events(0, 2000)
