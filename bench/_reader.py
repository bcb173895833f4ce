"""The cheapest possible Lumberjack reader: skips what is in a window and acks it.

It stores nothing and inflates nothing; against it the load generator shows its own
ceiling.  Prints its port, then serves until its standard input closes.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import ssl
import struct
import sys
from dataclasses import dataclass

_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(slots=True, eq=False)
class Stream:
    """Where one connection is in its stream."""

    sock: socket.socket
    head: bytes = b""
    skip: int = 0
    window: int = 0
    left: int = 0

    def received(self, data: memoryview) -> bytes:
        """The acks that are due after *data*."""
        acks = b""
        while data:
            if self.skip:
                step = min(self.skip, len(data))
                self.skip -= step
                data = data[step:]
                if self.skip:
                    break
                if self.left == 0:  # `left` can not be 0 between a W and its events
                    acks += b"2A" + struct.pack(">I", self.window)
            need = 10 if self.head[:2] == b"2J" else 6
            taken = need - len(self.head)
            self.head += bytes(data[:taken])
            data = data[taken:]
            if len(self.head) < need:
                break
            if need == 6 and self.head[:2] == b"2J":
                continue
            self._frame()
        return acks

    def _frame(self) -> None:
        kind, number = struct.unpack_from(">2sI", self.head)
        if kind == b"2W":
            self.window = self.left = number
        elif kind == b"2C":
            self.skip, self.left = number, 0
        elif kind == b"2J":
            self.skip = struct.unpack_from(">I", self.head, 6)[0]
            self.left -= 1
        else:
            raise ValueError(kind)
        self.head = b""


def serve(certificate: str | None) -> None:
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    watch = selectors.DefaultSelector()
    watch.register(listener, selectors.EVENT_READ)
    watch.register(sys.stdin, selectors.EVENT_READ)
    print(listener.getsockname()[1], flush=True)
    room = bytearray(1 << 18)
    view = memoryview(room)
    while True:
        for key, _ in watch.select():
            if key.fileobj is sys.stdin:
                return
            if key.fileobj is listener:
                sock, _ = listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if context is not None:
                    sock = context.wrap_socket(sock, server_side=True)
                sock.setblocking(False)
                watch.register(sock, selectors.EVENT_READ, Stream(sock))
                continue
            stream = key.data
            while True:  # a TLS socket may hold more than the kernel shows
                try:
                    size = stream.sock.recv_into(room)
                except _WAIT:
                    break
                except OSError:
                    size = 0
                if not size:
                    watch.unregister(stream.sock)
                    stream.sock.close()
                    break
                if acks := stream.received(view[:size]):
                    stream.sock.sendall(acks)
                if context is None:
                    break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--certificate", help="PEM with its key: TLS")
    serve(parser.parse_args().certificate)
