"""The line of an edge to its hub, on this machine: what comes is passed on, unless it is cut."""

from __future__ import annotations

import contextlib
import socket
import threading

__all__ = ["Line"]

_CHUNK_BYTES = 1 << 16


class Line:
    """A line from the port *begin* to the port *end* of this machine; it is there until `close`."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self._end = begin, end
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._listening: socket.socket | None = None
        self.carried = 0
        """Bytes towards the end."""
        self.mend()

    def mend(self) -> None:
        listening = socket.create_server(("127.0.0.1", self.begin))
        self._listening = listening
        threading.Thread(target=self._accept, args=[listening], daemon=True).start()

    def cut(self) -> None:
        """Cut connections in the middle, and refuse new ones."""
        listening, self._listening = self._listening, None
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for each in (*([listening] if listening else ()), *sockets):
            _end(each)

    close = cut

    def _accept(self, listening: socket.socket) -> None:
        while listening is self._listening:
            with contextlib.suppress(OSError):
                near, _ = listening.accept()
                self._connect(listening, near)

    def _connect(self, listening: socket.socket, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._end))
        except OSError:
            near.close()
            return
        with self._lock:
            cut = listening is not self._listening
            if not cut:
                self._sockets |= {near, far}
        if cut:
            near.close()
            far.close()
            return
        for pair in ((near, far), (far, near)):
            threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        up = near.getsockname()[1] == self.begin
        with contextlib.suppress(OSError):
            while data := near.recv(_CHUNK_BYTES):
                self.carried += len(data) if up else 0
                far.sendall(data)
        for each in (near, far):
            _end(each)
        with self._lock:
            self._sockets -= {near, far}


def _end(each: socket.socket) -> None:
    """End a socket; a thread that waits for it is told."""
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
