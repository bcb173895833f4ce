"""A reader that comes late to a daemon, which has rolled what it took meanwhile."""

import socket
from typing import Any

import pytest

from gateway.protocols.pravega.client import V17Writer
from gateway.protocols.pravega.codec import REPLIES, Message, decode, encode
from gateway.protocols.pravega.frames import Frames
from gateway.protocols.pravega.wire import Hello
from gateway.protocols.pravega.wire_segments import (
    GetStreamSegmentInfo,
    StreamSegmentInfo,
)

SEGMENT = "plant/hall/0.#epoch.0"
KiB, MiB = 2**10, 2**20


def events(first: int, last: int) -> list[bytes]:
    """A KiB each, with their headers."""
    return [b"%1016d" % n for n in range(first, last)]


class Peer:
    """Asks for a segment, and writes to it."""

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
