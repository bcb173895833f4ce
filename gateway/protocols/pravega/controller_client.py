"""One call of Pravega's controller after the other, for commands: gRPC over a blocking socket.

with ControllerClient("gw.example", 9090) as controller:
    found = controller.call("getSegments", request, messages.SegmentsAtTime)
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Self, TypeVar

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError

from gateway.protocols.pravega.controller.messages import Message, decode
from gateway.sdk.command import WrongUse, failure

_SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"
_PREFIX = 5
_SECONDS = 30.0
_READ_BYTES = 1 << 16
_Answer = TypeVar("_Answer", bound=Message)


class CallFailed(Exception):
    """The controller does not do it, or does not answer; the text says why."""


class ControllerClient:
    def __init__(
        self,
        host: str,
        port: int,
        *,
        authorization: str = "",
        tls: bool = False,
        ca: Path | None = None,
    ) -> None:
        """*authorization* is the header of that name.  Raises `CallFailed`, `WrongUse`."""
        self._host = f"{host}:{port}"
        self._scheme = "https" if tls else "http"
        self._authorization = authorization
        self._h2 = H2Connection(H2Configuration(client_side=True))
        try:
            context = ssl.create_default_context(cafile=ca) if tls else None
        except OSError as why:
            raise WrongUse(f"--ca {ca}: {failure(why)}") from None
        try:
            self._socket = socket.create_connection((host, port), _SECONDS)
            if context is not None:
                context.set_alpn_protocols(["h2"])
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except OSError as why:
            raise CallFailed(f"{self._host}: {why.strerror or why}") from None
        self._h2.initiate_connection()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, method: str, request: Message, kind: type[_Answer]) -> _Answer:
        """Call a method; return its answer.  Raises `CallFailed`."""
        stream = self._h2.get_next_available_stream_id()
        fields = {
            ":method": "POST", ":scheme": self._scheme, ":authority": self._host,
            ":path": _SERVICE + method, "te": "trailers", "content-type": "application/grpc",
        }  # fmt: skip
        if self._authorization:
            fields["authorization"] = self._authorization
        body = request.SerializeToString()
        try:
            self._h2.send_headers(stream, list(fields.items()))
            self._h2.send_data(
                stream, b"\0" + len(body).to_bytes(4) + body, end_stream=True
            )
            answer, said = self._answer()
        except (OSError, ProtocolError) as why:
            raise CallFailed(f"{self._host}: {why}") from None
        code = said.get("grpc-status")
        if code != "0":
            text = (
                said.get("grpc-message")
                or f"gRPC status {code}, HTTP {said.get(':status')}"
            )
            raise CallFailed(f"{self._host} says: {text}")
        return decode(kind, answer[_PREFIX:])

    def _answer(self) -> tuple[bytes, Mapping[str, str]]:
        """The body, and the fields before and behind it."""
        body, said, over = b"", dict[str, str](), False
        while not over:
            self._socket.sendall(self._h2.data_to_send())
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise CallFailed(f"{self._host}: hung up; is that a controller?")
            for event in self._h2.receive_data(data):
                if isinstance(event, DataReceived):
                    body += event.data
                    size, stream = event.flow_controlled_length or 0, event.stream_id
                    self._h2.acknowledge_received_data(size, stream or 0)
                over = _heard(event, said) or over
        self._socket.sendall(self._h2.data_to_send())
        return body, said


def _heard(event: Event, said: dict[str, str]) -> bool:
    """Take the fields of an event; whether it is the last of its call."""
    match event:
        case ResponseReceived() | TrailersReceived():
            for name, value in event.headers or ():
                said[bytes(name).decode()] = bytes(value).decode(errors="replace")
            return "grpc-status" in said
        case StreamReset() | ConnectionTerminated():
            return True
    return False
