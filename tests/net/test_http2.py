"""A connection over HTTP/2, from its preface to GOAWAY; the package h2 is the client."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.settings import SettingCodes
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
)
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from wsproto.events import BytesMessage

from gateway.net.reading import READ_BYTES
from gateway.protocols.rsio.options import Options
from gateway.protocols.rsio.server import RsioListener
from gateway.sdk.interfaces import Publishing, Refusal, Yielding
from gateway.testing import ManualJournal
from gateway_testkit.settings import settings as settings_of
from gateway_testkit.streams import damaged, slices
from making import Make

#: As a protocol has it that is served over HTTP/2.
PORT: dict[str, Any] = {
    "http2": "application/x-chat",
    "alpn": [b"chat/0"],
    "mixed": True,
}
POST = {
    ":method": "POST",
    ":scheme": "http",
    ":authority": "gw",
    ":path": "/chat",
    "content-type": "application/x-chat",
}
CONNECT = {
    ":method": "CONNECT",
    ":protocol": "x-chat",
    ":scheme": "http",
    ":authority": "gw",
    ":path": "/",
}
WEBSOCKET = SimpleNamespace(path="/ws", origins=[])


class Client:
    """h2 at the far end of a connection."""

    def __init__(self, send: Callable[[bytes], None], got: Callable[[], bytes]) -> None:
        self.send, self.got = send, got
        self.h2 = H2Connection(H2Configuration(client_side=True))
        self.events: list[Any] = []
        self.h2.initiate_connection()

    def exchange(self) -> None:
        """Carry what either side has for the other."""
        while True:
            out, back = self.h2.data_to_send(), self.got()
            if not out and not back:
                return
            if back:
                self.events += self.h2.receive_data(back)
            if out:
                self.send(out)

    def ask(self, fields: dict[str, str] | None = None, *, end: bool = False) -> int:
        """Send a request's head; its stream."""
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, list((fields or POST).items()), end_stream=end)
        self.exchange()
        return stream

    def say(self, data: bytes, *, end: bool = False) -> None:
        """In the first stream."""
        self.h2.send_data(1, data, end_stream=end)
        self.exchange()

    def of(self, kind: type) -> list[Any]:
        """The events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def status(self, stream: int) -> tuple[str, str]:
        """Of the answer: its status and content type."""
        [found] = [one for one in self.of(ResponseReceived) if one.stream_id == stream]
        fields = {bytes(k).decode(): bytes(v).decode() for k, v in found.headers}
        return fields[":status"], fields["content-type"]

    @property
    def data(self) -> bytes:
        """What came in the first stream; it is credited when this is asked."""
        return b"".join(one.data for one in self.of(DataReceived) if one.stream_id == 1)

    def credit(self) -> None:
        """Open the windows for all that came since the last time."""
        for event in self.of(DataReceived):
            self.h2.acknowledge_received_data(
                event.flow_controlled_length, event.stream_id
            )
            self.events.remove(event)
        self.exchange()


def client_of(peer: Any) -> Client:
    return Client(peer.send, peer.got)


@pytest.fixture
def met(make_net) -> Make[tuple[Any, Any, Client]]:
    """A listener, a peer, and its client; whose request is granted unless told."""

    def make(
        act: Make[None] | None = None, *, ask: bool = True, **changes: Any
    ) -> tuple[Any, Any, Client]:
        net = make_net(act, {**PORT, **changes.pop("port", {})}, **changes)
        peer = net.peer()
        client = client_of(peer)
        if ask:
            client.ask()
        return net, peer, client

    return make


def take_turns(net: Any) -> None:
    """Let all that waits for a turn have it."""
    for _ in range(100):
        net.clock.advance(0.001)


def echo(connection: Any, data: bytes) -> None:
    connection.write(data)


@pytest.mark.parametrize("fields", [POST, CONNECT], ids=["post", "connect"])
def test_one_stream_carries_bytes_both_ways(met, fields):
    """A POST or an extended CONNECT is granted at once; then DATA is bytes, either way,
    for as long as neither side ends."""
    net, _, client = met(echo, ask=False)
    stream = client.ask(fields)
    assert client.status(stream) == ("200", "application/x-chat")
    assert client.h2.remote_settings[SettingCodes.ENABLE_CONNECT_PROTOCOL] == 1
    client.say(b"one")
    assert client.data == b"one"
    client.say(b"two")
    assert client.data == b"onetwo"
    assert net.server.data == b"onetwo"
    assert not client.of(StreamEnded)


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, 400), max_size=40), frame=st.integers(1, 50))
def test_any_slicing_is_the_same(make_net, cuts, frame):
    """Wherever the network cuts the connection's bytes, and the client its frames."""
    net = make_net(None, PORT)
    sent = bytearray()
    client = Client(sent.extend, bytes)
    client.ask()
    said = bytes(range(200))
    for at in range(0, len(said), frame):
        client.say(said[at : at + frame])
    peer, at = net.peer(), 0
    for size in [*cuts, len(sent)]:
        if piece := bytes(sent[at : at + size]):
            peer.send(piece)
        at += size
    take_turns(net)
    assert net.server.data == said


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_costs_the_connection_only(make_net, data):
    """Whatever a client sends: it is served or refused, and its server hears of its end."""
    net = make_net(echo, PORT)
    sent = bytearray()
    client = Client(sent.extend, bytes)
    client.ask()
    client.say(b"some words")
    client.say(b"more", end=True)
    peer = net.peer()
    for piece in slices(data.draw(damaged(bytes(sent))), {30, 70}):
        peer.send(piece)
    take_turns(net)
    peer.lose()
    assert not net.listener.rejected["failure"]
    assert all(server.gone for server in net.servers)


def test_all_ways_to_one_port(make_net):
    """Plain bytes, a WebSocket and HTTP/2, told apart by their first bytes."""
    net = make_net(None, PORT, websocket=WEBSOCKET)
    net.peer().send(b"PLAIN")
    assert net.server.data == b"PLAIN"
    peer = net.peer()
    web = peer.upgrade()
    peer.send(web.send(BytesMessage(b"web")))
    assert net.server.data == b"web"
    client = client_of(net.peer())
    client.ask()
    client.say(b"two")
    assert net.server.data == b"two"
    assert len(net.servers) == 3


def test_a_browser_is_sent_to_http1_for_its_websocket(met):
    """One that looked at the port over HTTP/2 asks for it there, and hears where it is."""
    _, _, client = met(ask=False, websocket=WEBSOCKET)
    stream = client.ask({**CONNECT, ":protocol": "websocket"})
    [reset] = client.of(StreamReset)
    assert reset.stream_id == stream
    assert reset.error_code == ErrorCodes.HTTP_1_1_REQUIRED


def test_a_port_that_has_none_refuses_it(make_net, warnings):
    """As HTTP, which it is."""
    net = make_net()
    client = client_of(net.peer())
    client.send(client.h2.data_to_send())
    assert net.listener.rejected == {"language": 1}
    assert "an HTTP request on a port that speaks lumberjack" in warnings()[0]


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["h2"], "h2"), (["h2", "http/1.1"], "h2"), (["h2", "chat/0"], "chat/0")],
)
def test_tls(make_net, make_tls, tls_peer, offered, chosen):
    """ALPN says `h2`, behind the protocol's own name."""
    net = make_net(echo, PORT, tls=make_tls())
    sealed = tls_peer(net.peer(), alpn=offered)
    sealed.shake_hands()
    assert sealed.tls.selected_alpn_protocol() == chosen
    client = Client(sealed.send, sealed.read)
    client.ask()
    client.say(b"sealed")
    assert client.data == b"sealed"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({":method": "GET"}, "405"),
        ({"content-type": "text/plain"}, "415"),
        ({"content-type": ""}, "415"),
        ({**CONNECT, ":protocol": "websocket"}, "501"),
    ],
)
def test_other_requests_are_answered(met, warnings, change, status):
    """With what would be right; the connection may then have one that is.  The server
    that the port makes of a connection at once has gone unheard."""
    net, _, client = met(echo, ask=False)
    fields = change if ":protocol" in change else POST | change
    stream = client.ask(fields)
    assert client.status(stream) == (status, "text/plain")
    [text] = client.of(DataReceived)
    assert b"x-chat" in text.data
    assert f"answered with {status}" in warnings()[0]
    assert [server.gone for server in net.servers] == [True]
    client.ask()
    client.h2.send_data(stream + 2, b"right")
    client.exchange()
    assert net.server.data == b"right"


def test_an_answer_needs_no_window(met, warnings):
    """A client that takes no octets has the status of its wrong request, without the
    words, and may have a right one."""
    net, _, client = met(ask=False)
    client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    stream = client.ask(POST | {":method": "GET"})
    assert client.status(stream) == ("405", "text/plain")
    assert [end.stream_id for end in client.of(StreamEnded)] == [stream]
    client.ask()
    client.h2.send_data(stream + 2, b"right")
    client.exchange()
    assert net.server.data == b"right"
    assert len(warnings()) == 1


def test_a_server_that_refuses_at_once_is_heard(met, warnings):
    """Its words come in the stream that was asked for, as later ones would."""

    def accept(connection: Any) -> None:
        raise Refusal("no room", reply=b"bye")

    net, peer, client = met(ask=False)
    net.listener.accept = accept
    stream = client.ask()
    assert client.status(stream) == ("200", "application/x-chat")
    assert client.data == b"bye"
    assert client.of(StreamEnded)
    assert peer.transport.finished
    assert "refused: no room" in warnings()[0]


def test_a_second_stream_may_go_elsewhere(met, warnings):
    """It is refused as one that was never looked at, and the first goes on; the limit is
    in SETTINGS, before any request."""
    _, _, client = met(echo)
    assert client.h2.remote_settings.max_concurrent_streams == 1
    early = client.h2.get_next_available_stream_id()
    client.h2.remote_settings.max_concurrent_streams = 9
    client.h2.remote_settings.acknowledge()  # as one that has not seen it yet
    client.h2.send_headers(early, list(POST.items()))
    client.exchange()
    [reset] = client.of(StreamReset)
    assert (reset.stream_id, reset.error_code) == (early, ErrorCodes.REFUSED_STREAM)
    assert "streams of an HTTP/2 connection, limit 1" in warnings()[0]
    client.say(b"goes on")
    assert client.data == b"goes on"


def test_a_window_that_stays_shut_holds_little(met, warnings):
    """Output beyond the peer's window counts as unsent; a server that goes on writing to
    such a peer costs its connection, as over any transport."""
    net, peer, client = met()
    piece = bytes(1 << 16)
    for _ in range(20):
        net.server.connection.write(piece)
        client.exchange()  # which gives no credit
        assert net.server.connection.unsent_bytes <= 2 * READ_BYTES + len(piece)
        assert peer.connection.unsent_bytes == net.server.connection.unsent_bytes
    assert peer.transport.disconnected
    assert len(client.data) == (1 << 16) - 1
    assert "peer does not read what we send" in warnings()[0]


def test_a_publisher_waits_for_the_window(met):
    """It hears that nothing more is taken, stops, goes on when the window opens, and all
    comes whole and in order."""
    ready: list[bool] = []
    net, _, client = met(ask=False)
    sent = bytearray()

    def act(connection: Any, data: bytes) -> None:
        net.server.declare(Publishing, writable=ready.append)

    net.act = act
    client.ask()
    client.say(b"go")
    while False not in ready:
        sent += bytes([len(sent) // 5000 % 256]) * 5000
        net.server.connection.write(bytes(sent[-5000:]))
    assert READ_BYTES < net.server.connection.unsent_bytes < READ_BYTES + 5000
    got = b""
    while True not in ready:
        got += client.data
        client.credit()
        assert len(got) < len(sent)
    net.server.connection.write(b"more")
    while client.exchange() or client.data:
        got += client.data
        client.credit()
    assert got == bytes(sent) + b"more"
    assert not net.server.connection.unsent_bytes
    assert ready == [False, True]


def test_a_server_that_takes_nothing_is_not_read(met):
    """Its pause is the connection's; a peer has no more credit than its windows had."""
    net, peer, client = met(lambda connection, data: connection.pause())
    client.say(b"first")
    assert peer.transport.producerState == "paused"
    net.server.connection.resume()
    take_turns(net)
    assert peer.transport.producerState == "producing"
    client.say(b"then")
    assert net.server.chunks == [b"first", b"then"]


def test_frames_behind_a_pause_wait_here(met):
    """Nothing reaches a server that has paused, though it came in the same read."""
    net, peer, _ = met(lambda connection, data: connection.pause())
    frames = [DataFrame(1, b"%d" % (number % 10)) for number in range(2000)]
    peer.send(b"".join(frame.serialize() for frame in frames))
    first = len(net.server.data)
    assert 0 < first < 2000
    take_turns(net)
    assert len(net.server.data) == first
    size = len(frames[0].serialize())
    net.server.connection.hold(17)
    assert peer.connection.held.unfinished == (2000 - first) * size + 17
    net.act = echo
    net.server.act = echo
    net.server.connection.resume()
    take_turns(net)
    assert net.server.data == b"0123456789" * 200
    assert peer.connection.held.unfinished == 17


def test_what_is_not_taken_any_more_is_not_held(met):
    """Frames that wait for a server that only answers are dropped, as bytes would be."""
    net, peer, _ = met(lambda connection, data: connection.pause())
    peer.send(DataFrame(1, b"x").serialize() * 2000)
    assert peer.connection.held.unfinished
    net.server.connection.take_no_more()
    assert not peer.connection.held.unfinished


def test_small_frames_are_taken_in_turns(met):
    """What costs its sender little costs nobody else more than a turn each."""
    net, peer, _ = met()
    peer.send(DataFrame(1, b"x").serialize() * 5000)
    assert len(net.server.data) < 1000
    take_turns(net)
    assert len(net.server.data) == 5000
    assert len(net.server.chunks) > 5


def test_a_turn_that_the_server_asks_for_is_its_own(met):
    """Frames wait until the server has used what it has."""
    asked = [2]

    def act(connection: Any, data: bytes) -> None:
        if asked[0]:
            asked[0] -= 1
            connection.again()

    net, _, client = met(act)
    client.say(b"first")
    client.say(b"second")
    take_turns(net)
    assert (
        net.server.chunks == [b"first", b"", b"", b"second"][: len(net.server.chunks)]
    )
    assert net.server.data == b"firstsecond"


@pytest.mark.parametrize("fin", [False, True])
def test_an_end_is_answered_when_all_is(met, fin):
    """END_STREAM is a FIN, whether that of the connection follows it: who waits for an
    acknowledgement still gets it, then both directions are over."""
    net, peer, client = met(lambda connection, data: connection.busy(True))
    client.say(b"last", end=True)
    if fin:
        peer.fin()
    assert not client.of(StreamEnded)
    connection = net.server.connection
    connection.write(b"stored")
    connection.busy(False)
    take_turns(net)
    client.exchange()
    assert client.data == b"stored"
    assert client.of(StreamEnded)
    assert client.of(ConnectionTerminated)[0].error_code == ErrorCodes.NO_ERROR
    assert peer.transport.disconnecting if fin else peer.transport.finished


def test_a_close_comes_behind_what_is_written(met):
    """END_STREAM follows when the peer's window took the rest; when it has ended its side,
    too, GOAWAY and FIN do.  What it still says meets nobody."""
    net, peer, client = met()
    net.server.connection.write(bytes(1 << 17))
    net.server.connection.close()
    client.exchange()
    assert not client.of(StreamEnded)
    assert not peer.transport.finished
    got = b""
    while client.of(DataReceived):
        got += client.data
        client.credit()
    assert len(got) == 1 << 17
    assert client.of(StreamEnded)
    assert not peer.transport.finished  # its own end is waited for
    client.say(b"late words", end=True)
    assert net.server.data == b""
    assert client.of(ConnectionTerminated)
    assert peer.transport.finished


@pytest.mark.parametrize("size", [1, 1 << 17])
def test_nobody_waits_for_ever_at_the_end(met, size):
    """Neither for the peer's window nor for its end."""
    net, peer, client = met()
    net.server.connection.write(bytes(size))
    net.server.connection.close()
    net.pass_time(net.listener.linger + 1)
    client.exchange()
    resets = [one.error_code for one in client.of(StreamReset)]
    assert resets == ([] if size == 1 else [ErrorCodes.CANCEL])
    assert bool(client.of(StreamEnded)) == (size == 1)
    assert client.of(ConnectionTerminated)
    assert peer.transport.finished


def test_a_reset_is_a_lost_peer(met):
    """The server hears of it once, and the connection ends."""
    net, peer, client = met()
    client.say(b"some")
    client.h2.reset_stream(1, ErrorCodes.CANCEL)
    client.exchange()
    assert net.server.gone
    assert net.server.data == b"some"
    assert peer.transport.finished
    net.server.connection.write(b"late")
    peer.lose()
    assert peer.got().count(b"late") == 0


@pytest.mark.parametrize("behind", [b"", PingFrame(0, b"12345678").serialize()])
def test_what_came_before_goaway_is_served(met, warnings, behind):
    """A client that leaves says so behind its last bytes, maybe in the same packet; what
    it has to say behind that is no violation, and not heard."""
    net, peer, client = met()
    client.h2.send_data(1, b"the last words")
    peer.send(client.h2.data_to_send() + GoAwayFrame(0).serialize() + behind)
    assert net.server.data == b"the last words"
    assert net.server.gone
    assert peer.transport.finished
    assert not warnings()


def test_a_stop_lets_the_stream_end(met):
    """The server drains as ever; GOAWAY comes behind its last bytes."""
    net, peer, client = met()
    net.server.drain = lambda: None
    net.drain()
    net.server.connection.write(b"bye")
    client.exchange()
    assert client.data == b"bye"
    assert not client.of(ConnectionTerminated)
    net.server.connection.close()
    client.exchange()
    assert client.of(StreamEnded)
    client.say(b"", end=True)
    assert client.of(ConnectionTerminated)
    assert peer.transport.finished

    net, peer, client = met(ask=False)
    client.exchange()
    net.drain()
    assert peer.transport.finished


def test_a_refusal_reaches_the_peer_in_its_frames(met, refuse, warnings):
    """The protocol's last words, the stream's end, GOAWAY, FIN."""
    net, peer, client = met(refuse)
    client.say(b"bad")
    assert client.data == b"bye"
    assert client.of(StreamEnded)
    assert client.of(ConnectionTerminated)
    assert peer.transport.finished
    assert net.listener.rejected == {"protocol": 1}
    assert "bad frame, limit 7 (limits.frames)" in warnings()[0]


def test_wrong_credentials_wait_for_their_answer(met):
    """Not a byte of it comes before its time."""

    def act(connection: Any, data: bytes) -> None:
        raise Refusal("wrong", reply=b"no", wrong_credentials=True)

    net, _, client = met(act)
    client.say(b"token")
    assert client.data == b"no"  # the first one is a mistake
    client = client_of(net.peer())
    client.ask()
    client.say(b"token")
    assert client.data == b""
    net.pass_time(30)
    client.exchange()
    assert client.data == b"no"


def test_what_is_told_to_let_go_is_the_server(met):
    """And its words about what has begun are those of the log."""
    whys: list[Refusal] = []
    net, peer, client = met()
    net.server.declare(Yielding, give_up=whys.append, begun=lambda: "half of it")
    why = Refusal("all hold too much")
    peer.connection.calls.give_up(why)
    assert whys == [why]
    assert peer.connection.calls.begun() == "half of it"
    net.server.connection.refuse(why)
    client.exchange()
    assert client.of(StreamEnded)
    assert net.listener.rejected == {"protocol": 1}


def test_frames_without_end_are_refused(met, warnings):
    """ENHANCE_YOUR_CALM, and the key that allows more; frames that move data may come in
    any number."""
    net, peer, client = met(limits={"control_messages": 100})
    for _ in range(300):
        client.say(b"x")
    peer.send(PingFrame(0, b"12345678").serialize() * 150)
    client.exchange()
    assert client.of(ConnectionTerminated)[0].error_code == ErrorCodes.ENHANCE_YOUR_CALM
    assert "limits.control_messages" in warnings()[0]
    assert net.server.gone
    assert peer.transport.finished


def test_who_only_reads_may_credit_all_of_it(met):
    """Two windows for each frame that it got are no flood."""
    net, peer, client = met(limits={"control_messages": 20})
    for _ in range(200):
        net.server.connection.write(bytes(1 << 14))
        client.exchange()
        client.credit()
    assert not peer.transport.finished
    assert not net.server.gone


def test_what_is_no_http2_gets_goaway(met, warnings):
    """The server hears of a lost peer."""
    net, peer, client = met()
    frame = bytearray(DataFrame(1, b"to no stream").serialize())
    frame[8] = 0
    peer.send(bytes(frame))
    assert net.server.gone
    client.exchange()
    assert client.of(ConnectionTerminated)[0].error_code == ErrorCodes.PROTOCOL_ERROR
    assert "192.0.2.1:4000 refused: HTTP/2: " in warnings()[0]


def test_frames_are_refused_by_their_declared_length(met, warnings):
    """Before the bytes that it announces are kept for it."""
    net, peer, client = met()
    peer.send((1 << 14).to_bytes(3) + b"\0\0" + (1).to_bytes(4) + bytes(1 << 14))
    assert len(net.server.data) == 1 << 14
    peer.send(((1 << 14) + 1).to_bytes(3) + b"\0\0" + (1).to_bytes(4))
    client.exchange()
    assert client.of(ConnectionTerminated)[0].error_code == ErrorCodes.FRAME_SIZE_ERROR
    assert net.server.gone
    assert "HTTP/2: frame of 16385 bytes, limit 16384" in warnings()[0]


def test_heads_are_refused_by_their_declared_length(met, warnings):
    """However many frames one comes in, h2 keeps no more of it than fields may have."""
    net, peer, client = met()
    peer.send(HeadersFrame(3, bytes(1 << 14)).serialize())
    for _ in range(3):
        peer.send(ContinuationFrame(3, bytes(1 << 14)).serialize())
    take_turns(net)
    assert not net.server.gone
    peer.send(ContinuationFrame(3, b"x").serialize()[:9])
    take_turns(net)
    client.exchange()
    assert client.of(ConnectionTerminated)[0].error_code == ErrorCodes.FRAME_SIZE_ERROR
    assert net.server.gone
    assert "HTTP/2: head of 65537 bytes, limit 65536" in warnings()[0]


def settings_frame(first: int, count: int) -> bytes:
    """SETTINGS of so many identifiers, each 1."""
    entries = [n.to_bytes(2) + (1).to_bytes(4) for n in range(first, first + count)]
    return (6 * count).to_bytes(3) + b"\x04\0" + bytes(4) + b"".join(entries)


def test_settings_that_nobody_knows_are_forgotten(met):
    """h2 would keep 800 bytes for each of 65,536 identifiers; and each change of a table's
    size, for a head that never comes."""
    net, peer, client = met()
    for first in range(100, 10_000, 100):
        peer.send(settings_frame(first, 100))
        client.h2.update_settings({SettingCodes.HEADER_TABLE_SIZE: first})
        client.exchange()
        net.clock.advance(0.1)
    client.say(b"goes on")
    assert net.server.data == b"goes on"
    kept = net.server.connection._h2
    assert len(kept.remote_settings) < 10
    assert len(kept.encoder.table_size_changes) < 10


def test_streams_that_are_over_are_forgotten(met):
    """A client that asks for one after the other, and resets each, leaves little here."""
    net, peer, client = met()
    for stream in range(3, 3000, 2):
        head = HeadersFrame(stream, client.h2.encoder.encode(list(POST.items())))
        head.flags.add("END_HEADERS")
        peer.send(head.serialize() + RstStreamFrame(stream).serialize())
        peer.got()
        net.clock.advance(0.1)
    assert not net.server.gone
    kept = net.server.connection._h2
    assert len(kept.streams) + len(kept._closed_streams) < 1100


def test_a_preface_alone_is_not_enough(met):
    """The time for a request is limited; a stream has all the time that others have."""
    net, peer, client = met(ask=False)
    client.exchange()
    net.pass_time(13)
    assert peer.transport.finished
    assert net.listener.rejected == {"handshake": 1}
    net, peer, client = met()
    net.pass_time(13)
    assert not peer.transport.finished


def test_a_subscriber_of_rsio_that_opens_no_window_is_heard(make_net):
    """RS.io, with demand without an end: we hold little for it, hear its cancel, and
    what it reads later is whole.
    """
    net = make_net(None, PORT)
    checked = settings_of(Options, check_publishers=True)
    net.listener.accept = RsioListener(checked, ManualJournal(), net.clock)
    peer = net.peer()
    client = client_of(peer)
    client.ask()
    name, forever = b"check/large?n=1000000&octets=1000", b"\xff" * 8 + b"\x7f"
    client.say(b"\1\0\0" + b"\x10%c%s\1" % (len(name), name) + forever)
    held = set()
    for _ in range(200):
        net.clock.advance(0.01)
        client.exchange()
        held.add(peer.connection.unsent_bytes)
    assert 0 < max(held) < 1 << 20
    client.say(b"\x12\1" + b"\x10\7no/such\5\1")
    data = b""
    while b"E404" not in data[-200:]:
        assert client.of(DataReceived), data[-200:]
        data += client.data
        client.credit()
        net.clock.advance(0.01)
    head = data.index(b"\x20\1\0") + 3
    body = data[head : data.rindex(b"\x20\5\0")]
    assert len(body) % 1004 == 0
    assert body[::1004] == b"!" * (len(body) // 1004)
    assert not peer.connection.unsent_bytes
    peer.lose()
