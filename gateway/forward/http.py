"""HTTP/1.1 at a client's end, which blocks: one connection to a hub, by h11.

An answer may come while the body is still sent: no more of that is sent then, and the
connection ends with it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import h11
from attrs import define, field

from gateway.config.model import Forward
from gateway.sdk.outgoing import OTHER_NAME, meant
from gateway.store.objects.bucket import BucketError

PIECE_BYTES = 1 << 14
"""Bytes of a body between two looks whether it is answered already."""
SILENT_SECONDS = 60.0
"""A hub that takes nothing and says nothing for so long is not there."""
_MOST_BYTES = 1 << 26
"""Bytes of an answer: two million ranges of lsns."""


class Lost(BucketError):
    """A connection was not made, or ended; the text says why."""


class Reply(NamedTuple):
    """An answer."""

    code: int
    fields: Mapping[str, str]
    """Header fields by name, in small letters."""
    body: bytes


def connect(url: str, settings: Forward) -> socket.socket:
    """A connection to one of the hubs, as configured.  Raises OSError, ValueError."""
    to = urlsplit(url)
    if to.scheme == "unix":
        found = socket.socket(socket.AF_UNIX)
        found.settimeout(SILENT_SECONDS)
        found.connect(to.path)
        return found
    host, port = to.hostname or "", to.port or (443 if to.scheme == "https" else 80)
    found = socket.create_connection((host, port), SILENT_SECONDS)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if to.scheme == "https":
        try:
            return _context(settings).wrap_socket(found, server_hostname=host)
        except BaseException:
            found.close()
            raise
    return found


def _context(settings: Forward) -> ssl.SSLContext:
    """Certificates are read anew for each connection."""
    try:
        context = ssl.create_default_context(cafile=settings.ca)
    except OSError as why:  # it was another file when it was configured
        raise ValueError(f"{settings.ca}: {why_lost(why)}") from None
    # Private authorities often lack what RFC 5280 wants of their certificates.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if (certificate := settings.certificate) is not None:
        key = settings.private_key or certificate
        try:
            context.load_cert_chain(certificate, key)
        except OSError as why:  # as while they are renewed
            fit = "do not match" if "MISMATCH" in str(why) else why_lost(why)
            raise ValueError(f"{certificate} with {key}: {fit}") from None
    return context


def why_lost(why: Exception) -> str:
    """The reason why a connection could not be made, or ended, in words."""
    if isinstance(why, ssl.SSLCertVerificationError):
        other = "match" in why.verify_message
        return OTHER_NAME if other else meant(f"verify failed: {why.verify_message}")
    if isinstance(why, ssl.SSLError):
        return meant((why.reason or str(why)).replace("_", " ").lower())
    if isinstance(why, TimeoutError):
        return f"nothing was heard for {SILENT_SECONDS:g} s"
    told = isinstance(why, OSError) and why.strerror
    return told or str(why) or type(why).__name__


@define(eq=False, slots=False)
class HubLine:
    """A connection; one thread at a time, but for `hang_up`."""

    _socket: socket.socket
    _host: str
    _path: str
    """The beginning of each target."""
    _http: h11.Connection = field(factory=lambda: h11.Connection(h11.CLIENT))
    over: bool = False
    """True once it can not be used again."""

    def ask(
        self,
        method: str,
        target: str,
        fields: Mapping[str, str],
        body: Iterable[bytes] = (),
        size: int = 0,
    ) -> Reply:
        """Send a request with *size* bytes of *body*; the answer.  Raises `Lost`, and what
        *body* raises.
        """
        head = {"Host": self._host, **fields}
        if method == "PUT":
            head["Content-Length"] = str(size)
        self.over = True  # until the answer is whole
        pieces = iter(body)
        try:
            self._send(
                h11.Request(
                    method=method, target=self._path + target, headers=[*head.items()]
                )
            )
            if self._sent_all(pieces):
                self._send(h11.EndOfMessage())
            return self._reply()
        except h11.ProtocolError as why:
            raise Lost(f"the hub says what it must not: {why}") from None
        finally:
            if self.over:
                self.close()

    def _sent_all(self, body: Iterator[bytes]) -> bool:
        for piece in body:
            if (data := self._peek()) is not None:
                self._take(data)
                return False
            self._send(h11.Data(data=piece))
        return True

    def _send(self, event: h11.Event) -> None:
        with _lost():
            self._socket.sendall(self._http.send(event) or b"")

    def _reply(self) -> Reply:
        head, body = None, bytearray()
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _MOST_BYTES:
                    raise Lost("the hub's answer has no end")
            elif isinstance(event, h11.EndOfMessage):
                break
            elif not isinstance(event, h11.Event):
                with _lost():
                    data = self._socket.recv(1 << 16)
                self._take(data)
        assert head is not None
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self.over = False
        fields = {key.decode(): value.decode("latin-1") for key, value in head.headers}
        return Reply(head.status_code, fields, bytes(body))

    def _take(self, data: bytes) -> None:
        if not data and self._http.their_state is not h11.SEND_BODY:
            raise Lost("the hub has hung up")
        self._http.receive_data(data)

    def _peek(self) -> bytes | None:
        """Bytes that have come, without waiting; None: none."""
        with _lost():
            self._socket.settimeout(0)
            try:
                return self._socket.recv(1 << 16)
            except (BlockingIOError, ssl.SSLWantReadError):
                return None
            finally:
                self._socket.settimeout(SILENT_SECONDS)

    @property
    def is_idle(self) -> bool:
        """Whether nothing has come since the last answer, as its end."""
        with contextlib.suppress(Lost):
            return not self.over and self._peek() is None
        return False

    def hang_up(self) -> None:
        """Wake who waits for it, and closes it then.  Any thread: closed by another one, its
        number might be that of another file when OpenSSL writes once more.
        """
        self.over = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        self._socket.close()


@contextlib.contextmanager
def _lost() -> Iterator[None]:
    """Raise `Lost` for what sockets raise."""
    try:
        yield
    except (OSError, ValueError) as why:
        raise Lost(why_lost(why)) from None
