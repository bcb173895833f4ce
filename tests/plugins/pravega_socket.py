"""Pravega's segment store over sockets of ours: requests one at a time, and a producer."""

import socket
import struct
from typing import Any

from gateway.protocols.pravega.client import EventWriter
from gateway.protocols.pravega.codec import REPLIES, decode, encode
from gateway.protocols.pravega.frames import Frames
from gateway.protocols.pravega.wire import Hello

__all__ = ["RESET", "Client", "produce"]

RESET = struct.pack("ii", 1, 0)
"""With `SO_LINGER` a connection ends with a reset."""


class Client:
    """Asks one thing at a time; raises OSError when the daemon is gone."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address)
        self._frames = Frames(REPLIES)
        self._replies: list[Any] = []
        self.ask(Hello(17, 5), Hello)

    def ask(self, message: Any, reply: type) -> Any:
        self._socket.sendall(encode(message))
        while not self._replies:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionResetError
            self._replies += [decode(*each) for each in self._frames.feed(data)]
        found = self._replies.pop(0)
        assert isinstance(found, reply), found
        return found

    def close(self) -> None:
        self._socket.close()


def produce(writer: EventWriter, port: int, events: list[bytes], stop: int) -> None:
    """Write until *stop* of the events are known to be stored; then vanish."""
    writer.add(events)
    with socket.create_connection(("127.0.0.1", port), 60) as wire:
        wire.sendall(writer.connected())
        stored = 0
        while stored < stop:
            for data in writer.blocks(most=200):
                wire.sendall(data)
            stored += writer.received(wire.recv(1 << 16))
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
