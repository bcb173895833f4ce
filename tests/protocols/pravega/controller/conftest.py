"""A controller on doubles, and clients that call it over HTTP/2 in memory."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from twisted.internet.task import Clock

from gateway.event import Stored
from gateway.protocols.pravega.container import Container
from gateway.protocols.pravega.controller import Controller, ControllerAccept
from gateway.protocols.pravega.options import Options
from gateway.protocols.pravega.segments import Segments
from gateway.testing import FakeConnection, ManualJournal
from gateway_testkit.settings import settings
from making import Make
from pravega_messages import decode, new

from .scaled import Scaled

SERVICE = "/io.pravega.controller.stream.api.grpc.v1.ControllerService/"

#: What each call answers with, where it is not one enum.
ANSWERS = {
    "getControllerServerList": "ServerResponse",
    "getCurrentSegments": "SegmentRanges",
    "getEpochSegments": "SegmentRanges",
    "getSegments": "SegmentsAtTime",
    "getSegmentsImmediatlyFollowing": "SuccessorResponse",
    "getSegmentsImmediatelyFollowing": "SuccessorResponse",
    "getSegmentsBetween": "StreamCutRangeResponse",
    "getURI": "NodeUri",
    "isSegmentValid": "BooleanResponse",
    "checkScopeExists": "BooleanResponse",
    "checkStreamExists": "BooleanResponse",
    "createTransaction": "CreateTxnResponse",
    "listCompletedTransactions": "ListCompletedTxnResponse",
    "listScopes": "ScopesResponse",
    "listStreamsInScope": "StreamsInScopeResponse",
    "listStreamsInScopeForTag": "StreamsInScopeResponse",
    "getDelegationToken": "DelegationToken",
    "scale": "ScaleResponse",
    "getCurrentSegmentsKeyValueTable": "SegmentRanges",
    "getKeyValueTableConfiguration": "KeyValueTableConfigResponse",
    "listKeyValueTablesInScope": "KeyValueTablesResponse",
    "getStreamConfiguration": "StreamConfig",
    "createReaderGroup": "CreateReaderGroupResponse",
    "getReaderGroupConfig": "ReaderGroupConfigResponse",
    "updateReaderGroup": "UpdateReaderGroupResponse",
    "listSubscribers": "SubscribersResponse",
}


def basic(name: str, password: str) -> str:
    """The header `authorization` with a password."""
    return "Basic " + b64encode(f"{name}:{password}".encode()).decode()


@dataclass
class Answer:
    """What became of a call."""

    head: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    trailers: dict[str, str] = field(default_factory=dict)
    reset: int | None = None

    @property
    def status(self) -> int | None:
        """gRPC's; None if it is not there yet."""
        found = self.trailers.get("grpc-status", self.head.get("grpc-status"))
        return None if found is None else int(found)

    @property
    def text(self) -> str:
        return self.trailers.get("grpc-message", self.head.get("grpc-message", ""))

    @property
    def message(self) -> bytes:
        assert self.status == 0, (self.status, self.text)
        assert self.body[0] == 0
        assert int.from_bytes(self.body[1:5]) == len(self.body) - 5
        return self.body[5:]


class Peer:
    """One client, whose HTTP/2 is h2's."""

    def __init__(self, service: Service, headers: dict[str, str] | None = None) -> None:
        self.service = service
        self.headers = headers or {}
        self.connection = FakeConnection(
            protocol="pravega", memory=service.journal.memory
        )
        self.connection.serve(service.accept(self.connection))
        self.h2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.answers: dict[int, Answer] = {}
        self.goodbye: events.ConnectionTerminated | None = None
        self.exchange()

    def output(self) -> bytes:
        """What the client would send now."""
        return self.h2.data_to_send()

    def exchange(self) -> None:
        """Until both sides have nothing more to send."""
        while True:
            out = self.output()
            if out:
                self.connection.deliver(out)
            back = self.connection.sent
            self.connection.clear()
            if back:
                for event in self.h2.receive_data(back):
                    self._see(event)
            if not out and not back:
                return

    def _see(self, event: events.Event) -> None:
        match event:
            case events.ResponseReceived() | events.InformationalResponseReceived():
                self._answer(event).head.update(_text(event.headers))
            case events.DataReceived():
                self._answer(event).body += event.data
                self.h2.acknowledge_received_data(
                    event.flow_controlled_length, event.stream_id
                )
            case events.TrailersReceived():
                self._answer(event).trailers.update(_text(event.headers))
            case events.StreamReset():
                self._answer(event).reset = int(event.error_code)
            case events.ConnectionTerminated():
                self.goodbye = event

    def _answer(self, event: Any) -> Answer:
        return self.answers.setdefault(event.stream_id, Answer())

    def begin(
        self, method: str, headers: dict[str, str] | None = None, **more: Any
    ) -> int:
        """The head of a call, not sent yet; its stream."""
        stream = self.h2.get_next_available_stream_id()
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": SERVICE + method,
            ":authority": "gateway.example:9090",
            "content-type": "application/grpc",
            "te": "trailers",
            **self.headers,
            **(headers or {}),
        }
        self.h2.send_headers(stream, list(fields.items()), **more)
        self.answers[stream] = Answer()
        return stream

    def send(
        self, method: str, message: bytes, headers: dict[str, str] | None = None
    ) -> Answer:
        """A call, whole; nothing becomes durable."""
        stream = self.begin(method, headers)
        body = b"\0" + len(message).to_bytes(4) + message
        self.h2.send_data(stream, body, end_stream=True)
        self.exchange()
        return self.answers[stream]

    def try_(self, method: str, message: Any) -> Answer:
        """A call, and all that it changes becomes durable."""
        answer = self.send(method, message.SerializeToString())
        self.service.store()
        self.exchange()
        return answer

    def call(self, method: str, message: Any) -> Any:
        """The answer to a call that must succeed."""
        answer = self.try_(method, message)
        return decode(ANSWERS.get(method, "Status"), answer.message)

    def status(self, method: str, message: Any) -> int:
        """The same, where the answer is one enum."""
        found: int = self.call(method, message).status
        return found


def _text(headers: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in headers}


class Service:
    """A controller and its container."""

    def __init__(
        self,
        *,
        state: Segments | None = None,
        journal: ManualJournal | None = None,
        clock: Clock | None = None,
        reader: Any = None,
        replayed: Iterable[Stored] = (),
        advertise: Any = lambda host: (host, 12345),
        **more: Any,
    ) -> None:
        self.clock = clock or Clock()
        if clock is None:
            self.clock.advance(1_700_000_000)
        self.journal = journal or ManualJournal()
        self.more = more
        self.container = Container(self.journal, self.clock, reader=reader)
        if state is not None:
            self.container.state = self.container.reads.state = state
        for stored in replayed:
            self.container.replay(stored)
        self.advertise = advertise
        self.settings = settings(Options, **more)

    def start(self) -> Service:
        self.controller = Controller(
            self.container, self.settings.options, self.advertise
        )
        self.accept = ControllerAccept(self.settings, self.controller)
        self.container.start()
        self.controller.start()
        self.store()
        return self

    def store(self) -> None:
        """Everything submitted becomes durable."""
        self.journal.store_all()
        self.clock.advance(0)

    def peer(self, **headers: str) -> Peer:
        return Peer(self, headers)

    def restarted(self, *, changes: int | None = None, later: float = 1) -> Service:
        """Another run, from the first *changes* of this one's journal, so many seconds
        *later* by the clock.
        """
        clock = Clock()
        clock.advance(self.clock.seconds() + later)
        replayed = self.journal.stored[:changes]
        return Service(
            clock=clock, replayed=replayed, advertise=self.advertise, **self.more
        ).start()

    def submit(
        self,
        name: str,
        data: bytes,
        *,
        events: int = 1,
        writer: bytes = b"w" * 16,
        number: int | None = None,
        **more: Any,
    ) -> None:
        """A block of some writer, with so many events; it is not durable yet."""
        state, now = self.container.state, self.container.now
        last = state.find(name).number_of(writer)
        number = number or max(last, 0) + events
        change = state.append(
            name, writer, number, data, now, claimed=events, last=last, **more
        )
        self.container.submit(change)

    def append(self, name: str, data: bytes, **more: Any) -> None:
        """A block as `submit` takes it, and all becomes durable."""
        self.submit(name, data, **more)
        self.store()

    @property
    def names(self) -> set[str]:
        """Of all segments but the controller's own."""
        return {
            name
            for name in self.container.state.segments
            if not name.startswith("_system/")
        }


@pytest.fixture
def make_service() -> Make[Service]:
    """Makes a controller with users, limits and so on."""
    return lambda **more: Service(**more).start()


@pytest.fixture
def service() -> Service:
    """A controller that asks nobody who they are."""
    return Service().start()


@pytest.fixture
def peer(service) -> Peer:
    """One client of `service`."""
    return service.peer()


@pytest.fixture
def stream_info() -> Make:
    """`StreamInfo` of a stream in `sc`."""
    return lambda stream="st", scope="sc": new("StreamInfo", scope=scope, stream=stream)


@pytest.fixture
def config(stream_info) -> Make:
    """`StreamConfig` of a stream in `sc`."""

    def make(stream: str = "st", segments: int = 1, *tags: str) -> Any:
        return new(
            "StreamConfig",
            stream_info=stream_info(stream),
            scaling=new("ScalingPolicy", segments=segments),
            tags=new("Tags", tag=tags),
        )

    return make


@pytest.fixture
def stream(peer, config) -> Peer:
    """A client of `service`, who has made `sc/st` with two segments."""
    assert peer.status("createScope", new("ScopeInfo", scope="sc")) == 0
    assert peer.status("createStream", config("st", 2)) == 0
    return peer


@pytest.fixture
def scaled(stream) -> Scaled:
    """`sc/st`, and who scales it."""
    return Scaled(stream)
