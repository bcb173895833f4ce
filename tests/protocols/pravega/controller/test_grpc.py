"""gRPC's rules over HTTP/2 as its clients see them, and its messages byte for byte."""

import itertools
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.pravega.controller.grpc import Call, Calls, Code
from gateway.protocols.pravega.controller.messages import Undecodable
from gateway.sdk.costs import Turn
from gateway.sdk.interfaces import Refusal
from pravega_messages import decode, new

CREATE = new("ScopeInfo", scope="sc").SerializeToString()


def test_an_answer_waits_for_the_disk(service, peer):
    """Nothing is said of a scope before it is durable; then message and status."""
    answer = peer.send("createScope", CREATE)
    assert answer.status is None
    assert answer.head == {}
    assert peer.connection.waiting
    service.store()
    peer.exchange()
    assert answer.head == {":status": "200", "content-type": "application/grpc"}
    assert answer.message == b""
    assert answer.trailers == {"grpc-status": "0"}
    assert not peer.connection.waiting


def test_a_question_waits_for_what_it_tells(service, peer):
    """Who hears that a scope exists hears it when that is durable, and not before."""
    first = peer.send("createScope", CREATE)
    second = service.peer().send("checkScopeExists", CREATE)
    assert (first.status, second.status) == (None, None)


def test_a_question_alone_is_answered_at_once(peer):
    """Nothing of the controller waits for the disk: no commit is waited for."""
    assert peer.send("checkScopeExists", CREATE).message == b""


def test_an_unknown_method(peer):
    """UNIMPLEMENTED, in headers alone, with a text."""
    answer = peer.send("getControllerToBucketMapping", b"")
    assert answer.status == Code.UNIMPLEMENTED
    assert answer.head["content-type"] == "application/grpc"
    assert answer.text == "the gateway has one controller, without buckets"
    assert answer.trailers == {}


def test_another_service(peer):
    """A method of ours under a strange name is not ours."""
    stream = peer.begin("x", {":path": "/other.Service/createScope"})
    peer.h2.send_data(stream, b"\0\0\0\0\0", end_stream=True)
    peer.exchange()
    assert peer.answers[stream].status == Code.UNIMPLEMENTED


def test_texts_are_percent_encoded(peer):
    """`grpc-message` carries any text in printable ASCII."""
    answer = peer.send("getCurrentSegments", b"\x0a\x04\xc3\xa4%\n\x12\x01s")
    assert answer.status == Code.NOT_FOUND
    assert answer.text == "no stream %C3%A4%25%0A/s"


def test_garbage_instead_of_a_message(peer):
    """INVALID_ARGUMENT, and the connection goes on."""
    assert peer.send("createScope", b"\x0a\xff").status == Code.INVALID_ARGUMENT
    assert peer.send("checkScopeExists", CREATE).status == 0


def test_a_large_message_is_refused_by_its_length(make_service):
    """Before it arrives; the client is told to stop sending; others go on."""
    peer = make_service(message_bytes=100).peer()
    stream = peer.begin("createScope")
    peer.h2.send_data(stream, b"\0" + (101).to_bytes(4))
    peer.exchange()
    answer = peer.answers[stream]
    assert answer.status == Code.RESOURCE_EXHAUSTED
    assert "101 bytes, limit 100" in answer.text.replace("%20", " ")
    assert answer.reset == ErrorCodes.NO_ERROR
    assert peer.send("checkScopeExists", CREATE).status == 0


def test_what_comes_behind_a_refusal_costs_no_window(make_service):
    """Bytes on their way when a call is refused are taken off, and made room for."""
    peer = make_service(message_bytes=100).peer()
    for _ in range(6):
        stream = peer.begin("createScope")
        peer.h2.send_data(stream, b"\0" + (200_000).to_bytes(4))
        for _ in range(3):
            peer.connection.deliver(peer.output())
            peer.h2.send_data(stream, bytes(10_000))
        peer.exchange()
        assert peer.answers[stream].status == Code.RESOURCE_EXHAUSTED
    assert peer.service.journal.reserved == 0


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"\1\0\0\0\x04gzip", Code.UNIMPLEMENTED),
        (b"\0\0\0\0\0" * 2, Code.UNIMPLEMENTED),
        (None, Code.INVALID_ARGUMENT),
        (b"", Code.INVALID_ARGUMENT),
        (b"\0\0\0", Code.INVALID_ARGUMENT),
        (b"\0\0\0\0\x09sc", Code.INVALID_ARGUMENT),
    ],
)
def test_what_is_not_one_message(peer, body, code):
    """One that is compressed, by its flag alone; two of them; none; a part of one."""
    stream = peer.begin("createScope", end_stream=body is None)
    if body is not None:
        peer.h2.send_data(stream, body, end_stream=True)
    peer.exchange()
    assert peer.answers[stream].status == code


@pytest.mark.parametrize(
    ("headers", "status"),
    [({":method": "GET"}, "405"), ({"content-type": "text/html"}, "415")],
)
def test_not_grpc(peer, headers, status):
    """Whoever speaks HTTP/2 but not gRPC gets an HTTP status."""
    stream = peer.begin("createScope", headers, end_stream=True)
    peer.exchange()
    assert peer.answers[stream].head == {":status": status}


def test_a_deadline(service, peer):
    """DEADLINE_EXCEEDED when the disk is slower; what happens later is not told."""
    answer = peer.send("createScope", CREATE, {"grpc-timeout": "1500m"})
    service.clock.advance(1.4)
    peer.exchange()
    assert answer.status is None
    service.clock.advance(0.2)
    peer.exchange()
    assert answer.status == Code.DEADLINE_EXCEEDED
    service.store()
    peer.exchange()
    assert answer.body == b""
    assert peer.send("checkScopeExists", CREATE).message == b"\x08\x01"


def test_a_deadline_that_is_met(service, peer):
    """No timer is left behind."""
    timers = len(service.clock.getDelayedCalls())
    peer.send("createScope", CREATE, {"grpc-timeout": "10S"})
    service.store()
    assert len(service.clock.getDelayedCalls()) == timers


def test_a_cancelled_call(service, peer):
    """A client that resets its call gets no answer; the connection goes on."""
    stream = peer.begin("createScope")
    peer.h2.send_data(stream, b"\0" + len(CREATE).to_bytes(4) + CREATE, end_stream=True)
    peer.exchange()
    peer.h2.reset_stream(stream)
    peer.exchange()
    service.store()
    peer.exchange()
    assert peer.answers[stream].status is None
    assert peer.send("checkScopeExists", CREATE).status == 0


def test_answers_wait_for_windows(service):
    """A client that takes ten bytes at a time gets its answer ten bytes at a time."""
    peer = service.peer()
    peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
    peer.exchange()
    for scope in "abcdefgh":
        message = new("ScopeInfo", scope=scope * 50)
        assert peer.status("createScope", message) == 0
    stream = peer.begin("listScopes")
    peer.h2.send_data(stream, b"\0\0\0\0\0", end_stream=True)
    peer.connection.deliver(peer.output())
    [event] = [
        each
        for each in peer.h2.receive_data(peer.connection.sent)
        if type(each).__name__ == "DataReceived"
    ]
    assert len(event.data) == 10
    peer.connection.clear()
    peer.h2.acknowledge_received_data(10, stream)
    peer.answers[stream].body = event.data
    peer.exchange()
    scopes = decode("ScopesResponse", peer.answers[stream].message).scopes
    assert [scope[0] for scope in scopes] == list("abcdefgh")


def test_windows_for_requests_are_refilled(service):
    """Many requests on one connection are more than its first window."""
    peer = service.peer()
    message = new("ScopeInfo", scope="x" * 10_000).SerializeToString()
    for _ in range(20):
        assert peer.send("checkScopeExists", message).status == 0


def test_calls_at_once_are_limited(peer):
    """As the settings say; who does not care is cut off with GOAWAY."""
    assert peer.h2.remote_settings.max_concurrent_streams == 1000
    assert peer.h2.remote_settings.max_header_list_size == 16384
    peer.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 2000
    peer.h2.remote_settings.acknowledge()
    for _ in range(1001):
        peer.begin("createScope")
    peer.connection.deliver(peer.output())
    assert "HTTP/2" in str(peer.connection.refused)
    peer.h2.receive_data(peer.connection.sent)


def test_headers_are_limited(peer):
    """More than 16 KiB of them are no call."""
    peer.begin("createScope", {"x-much": "x" * 17_000})
    peer.connection.deliver(peer.output())
    assert "HTTP/2" in str(peer.connection.refused)


def test_another_language(service):
    """What is not HTTP/2 is refused, with GOAWAY, and the reason in the log."""
    peer = service.peer()
    peer.connection.deliver(b"\0\0\0\0\0\0\0\0\0" * 3)
    assert "HTTP/2" in str(peer.connection.refused)
    peer.exchange()
    assert peer.goodbye is not None
    assert peer.goodbye.error_code == ErrorCodes.PROTOCOL_ERROR


def test_drain(service, peer):
    """GOAWAY; open calls are answered, new ones refused; then FIN."""
    answer = peer.send("createScope", CREATE)
    peer.connection._server.drain()
    # Behind GOAWAY h2's client would read nothing more, so it does not get it.
    assert peer.connection.sent == bytes.fromhex(
        "000008 07 00 00000000  00000001 00000000"
    )
    peer.connection.clear()
    late = peer.send("createScope", CREATE)
    assert late.reset == ErrorCodes.REFUSED_STREAM
    assert not peer.connection.closed
    service.store()
    assert peer.connection.closed
    peer.exchange()
    assert answer.status == 0


def test_drain_without_calls(peer):
    """Nothing is waited for."""
    peer.connection._server.drain()
    assert peer.connection.closed


def test_a_client_that_says_goodbye(peer):
    """Its GOAWAY ends the connection, with no complaint."""
    peer.h2.close_connection()
    peer.exchange()
    assert peer.connection.closed
    assert peer.connection.refused is None


def test_a_connection_that_is_lost(service, peer):
    """What waited is forgotten, timers too."""
    timers = len(service.clock.getDelayedCalls())
    peer.send("createScope", CREATE, {"grpc-timeout": "10S"})
    peer.connection.lose()
    assert len(service.clock.getDelayedCalls()) == timers
    service.store()
    assert peer.connection.sent == b""


def test_nothing_can_be_stored(service, peer):
    """UNAVAILABLE: to those who wait, and to those who ask then."""
    answer = peer.send("createScope", CREATE)
    service.journal.refuse()
    peer.exchange()
    assert answer.status == Code.UNAVAILABLE
    assert peer.send("createScope", CREATE).status == Code.UNAVAILABLE


def test_calls_are_answered_though_the_journal_is_full(service, peer):
    """Those that change something, when that is durable."""
    service.journal.full = True
    assert peer.send("checkScopeExists", CREATE).status == 0
    answer = peer.send("createScope", CREATE)
    assert answer.status is None
    service.store()
    peer.exchange()
    assert answer.status == 0
    assert not peer.connection.paused


def test_calls_that_were_reset_wait_for_the_disk_all_the_same(service, peer):
    """So what they hold is bounded by pausing."""
    answers = [peer.send("createScope", CREATE) for _ in range(1000)]
    assert peer.connection.paused
    service.store()
    peer.exchange()
    assert not peer.connection.paused
    assert all(answer.status == 0 for answer in answers)


def test_unfinished_calls_count_as_memory(service, peer):
    """Bytes of calls that do not end are reserved, and given back."""
    stream = peer.begin("createScope")
    peer.h2.send_data(stream, b"\0" + (1000).to_bytes(4) + bytes(500))
    peer.exchange()
    assert service.journal.reserved == 505
    service.journal.reservable = 600
    peer.h2.send_data(stream, bytes(200))
    peer.exchange()
    assert "journal.memory_bytes" in str(peer.connection.refused)
    assert service.journal.reserved == 0


def test_a_bug_is_answered(service, peer, monkeypatch):
    """INTERNAL: a call that fails is answered, and its reason is in the log."""

    def broken(*_: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(service.controller, "call", broken)
    assert peer.send("createScope", CREATE).status == Code.INTERNAL


def conversation() -> bytes:
    """What a client sends for three calls."""
    client = H2Connection(H2Configuration(header_encoding="utf-8"))
    client.initiate_connection()
    for path in ("/s/one", "/s/two", "/s/three"):
        stream = client.get_next_available_stream_id()
        head = {":method": "POST", ":scheme": "http", ":path": path}
        more = {":authority": "a", "content-type": "application/grpc"}
        client.send_headers(stream, list((head | more).items()))
        body = b"\0" + len(CREATE).to_bytes(4) + CREATE
        client.send_data(stream, body, end_stream=True)
    return client.data_to_send()


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 400), max_size=12))
def test_any_slicing(cuts):
    """However the network slices them, the same calls come out."""
    data = conversation()

    def calls(pieces: list[bytes]) -> list[tuple[str, bytes]]:
        server = Calls(message_bytes=1000, streams=10)
        return [
            (call.path.rpartition("/")[2], call.message)
            for piece in pieces
            for call in server.received(piece, Turn(1e9))
        ]

    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(places)]
    assert calls(pieces) == calls([data]) != []


@settings(max_examples=100, deadline=None)
@given(junk=st.binary(max_size=200), at=st.integers(0, 300))
def test_any_junk(junk, at):
    """Bytes that are no HTTP/2 lead to a `Refusal` or to nothing, never further."""
    data = conversation()
    server = Calls(message_bytes=1000, streams=10)
    with suppress(Refusal):
        for call in server.received(data[:at] + junk + data[at:], Turn(1e9)):
            assert isinstance(call, Call)
            server.answer(call, b"x")
    server.output()


@pytest.mark.parametrize("method", ["checkScopeExists", "nothing"])
def test_a_call_that_is_reset_as_it_comes(peer, method):
    """Whoever resets a call together with its end gets no answer, and goes on."""
    stream = peer.begin(method)
    peer.h2.send_data(stream, b"\0\0\0\0\0", end_stream=True)
    peer.h2.reset_stream(stream)
    peer.exchange()
    assert peer.connection.refused is None
    assert peer.answers[stream].status is None
    assert peer.send("checkScopeExists", CREATE).message == b""


def test_answers_that_nobody_takes_are_bounded(service):
    """A client with its window shut gets no more than fits; those that it has go on."""
    peer = service.peer()
    for scope in range(40):
        peer.call("createScope", new("ScopeInfo", scope=f"{scope:0250}"))
    peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    peer.exchange()
    waiting = [peer.send("listScopes", b"") for _ in range(900)]
    assert waiting[0].status is None
    assert waiting[-1].status == Code.RESOURCE_EXHAUSTED
    peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20})
    peer.exchange()
    assert len(decode("ScopesResponse", waiting[0].message).scopes) == 40
    assert peer.send("listScopes", b"").status == 0


def test_many_windows_at_once_are_looked_at_once(peer, monkeypatch):
    """Frames that say little cost little, however many answers wait."""
    peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    peer.exchange()
    for _ in range(10):
        peer.send("listScopes", b"")
    pushed: list[int] = []
    push = Calls._push

    def count(self: Calls, stream: int, found: Any) -> None:
        pushed.append(stream)
        push(self, stream, found)

    monkeypatch.setattr(Calls, "_push", count)
    for _ in range(100):
        peer.h2.increment_flow_control_window(1)
    peer.exchange()
    assert len(pushed) == 10


VECTORS = Path(__file__).parents[3] / "vectors" / "pravega-controller.yaml"


@pytest.mark.parametrize("vector", yaml.safe_load(VECTORS.read_text()))
def test_bytes(vector):
    """Of the published client and of the reference compiler, both ways."""
    name, data = vector["message"], bytes.fromhex(vector["hex"])
    message = new(name, **vector["fields"])
    assert decode(name, data) == message
    assert decode(name, message.SerializeToString(deterministic=True)) == message  # type: ignore[attr-defined]
    assert len(message.SerializeToString()) == len(data)  # type: ignore[attr-defined]


def test_depth():
    """Messages in messages have an end, whatever a peer sends."""
    raw = b""
    for _ in range(1000):
        raw = b"\x0b" + raw + b"\x0c"  # groups, which nest without lengths
    with pytest.raises(Undecodable):
        decode("ScopeInfo", raw)
