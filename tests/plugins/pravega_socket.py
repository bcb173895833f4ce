"""Pravega's segment store over a socket of ours, one request at a time."""

import socket
from typing import Any

from gateway.protocols.pravega.codec import REPLIES, decode, encode
from gateway.protocols.pravega.frames import Frames
from gateway.protocols.pravega.wire import Hello

__all__ = ["Client"]


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
