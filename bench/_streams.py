"""A client of Pravega's controller, as small as one can be: unary calls, many at once."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from _report import Broken
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, TrailersReceived

from gateway.protocols.pravega.controller.messages import (
    Message,
    ScalingPolicy,
    ScopeInfo,
    SegmentRanges,
    Status,
    StreamConfig,
    StreamInfo,
    decode,
)

__all__ = ["Controller", "make_streams", "missing_streams"]

_SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"
_AT_ONCE = 50


class Controller:
    """One connection."""

    def __init__(self, address: str) -> None:
        """*address* is HOST:PORT."""
        host, _, port = address.rpartition(":")
        self._sock = socket.create_connection((host, int(port)), timeout=120)
        self._h2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self._h2.initiate_connection()

    def close(self) -> None:
        """End it."""
        self._sock.close()

    def calls(self, method: str, requests: Sequence[Message]) -> list[bytes]:
        """The answers, encoded, in the order of the requests."""
        streams: dict[int, bytes] = {}
        for request in requests:
            raw = request.SerializeToString()
            stream = self._h2.get_next_available_stream_id()
            head = {
                ":method": "POST",
                ":scheme": "http",
                ":path": _SERVICE + method,
                ":authority": "127.0.0.1:9090",
                "content-type": "application/grpc",
                "te": "trailers",
            }
            self._h2.send_headers(stream, list(head.items()))
            body = b"\0" + len(raw).to_bytes(4) + raw
            self._h2.send_data(stream, body, end_stream=True)
            streams[stream] = b""
        left = set(streams)
        while left:
            self._sock.sendall(self._h2.data_to_send())
            data = self._sock.recv(1 << 16)
            if not data:
                raise Broken("the controller closed its connection")
            for event in self._h2.receive_data(data):
                match event:
                    case DataReceived():
                        streams[event.stream_id] += event.data
                        self._h2.acknowledge_received_data(
                            event.flow_controlled_length, event.stream_id
                        )
                    case ResponseReceived() | TrailersReceived():
                        code = dict(event.headers).get("grpc-status", "0")
                        if code != "0":
                            raise Broken(f"{method}: {dict(event.headers)}")
                    case StreamEnded():
                        left.discard(event.stream_id)
        return [body[5:] for body in streams.values()]


def make_streams(address: str, count: int, segments: int) -> None:
    """So many streams of so many segments each, `bench/streamN`."""
    controller = Controller(address)
    controller.calls("createScope", [ScopeInfo(scope="bench")])
    for first in range(0, count, _AT_ONCE):
        configs = [
            StreamConfig(
                stream_info=StreamInfo(scope="bench", stream=f"stream{at}"),
                scaling=ScalingPolicy(segments=segments),
            )
            for at in range(first, min(first + _AT_ONCE, count))
        ]
        for answer in controller.calls("createStream", configs):
            if decode(Status, answer).status:
                raise Broken(f"createStream: {decode(Status, answer)}")
    controller.close()


def missing_streams(address: str, count: int, segments: int) -> int:
    """Of a hundred of these, how many do not have their segments."""
    controller = Controller(address)
    asked = [
        StreamInfo(scope="bench", stream=f"stream{at}")
        for at in range(0, count, max(1, count // 100))
    ]
    found = controller.calls("getCurrentSegments", asked)
    controller.close()
    return sum(len(decode(SegmentRanges, each).ranges) != segments for each in found)
