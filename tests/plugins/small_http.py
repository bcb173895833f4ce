"""A small HTTP server that answers as a test says: a game's service, or a gateway's admin port."""

import json
import socketserver
import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple, Self

from gateway_testkit.certificates import Pair

__all__ = ["Asked", "SmallHttp"]


class Asked(NamedTuple):
    """A request."""

    method: str
    path: str
    headers: Mapping[str, str]
    said: Any
    """Its body, which is JSON; None if it has none."""


class SmallHttp:
    """Serves from now on until it is closed, over keep-alive connections.

    *answer* gives the status and what to say as JSON; it runs in threads of the server's.
    It listens on the unix socket *path*, or else on a port, over TLS if it has a *pair*.
    """

    def __init__(
        self,
        answer: Callable[[Asked], tuple[int, object]],
        *,
        path: Path | None = None,
        pair: Pair | None = None,
    ) -> None:
        self.answer = answer
        server: socketserver.BaseServer
        if path is not None:
            server = _OverUnix(str(path), _Handler)
            self.url = f"unix:{path}:"
        else:
            server = _OverTcp(("127.0.0.1", 0), _Handler)
            self.port: int = server.server_address[1]
            self.url = f"http{'s' if pair else ''}://127.0.0.1:{self.port}"
            if pair is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(pair.certificate, pair.key)
                server.socket = context.wrap_socket(server.socket, server_side=True)
        server.double = self  # type: ignore[attr-defined]
        self._server = server
        threading.Thread(
            target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True
        ).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """From now on nobody is there."""
        self._server.shutdown()
        self._server.server_close()


_POLL_SECONDS = 0.01
"""Closing it takes so long."""


class _OverTcp(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


class _OverUnix(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = Asked(
            self.command,
            self.path,
            self.headers,  # type: ignore[arg-type] - a mapping, but for its name
            json.loads(body) if body else None,
        )
        double: SmallHttp = self.server.double  # type: ignore[attr-defined]
        status, said = double.answer(asked)
        answer = json.dumps(said, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = _serve  # noqa: N815 - the library's

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""
