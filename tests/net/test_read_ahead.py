"""Paused connections are read on, in bounded memory, and their peers' ends are seen."""

import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.task import Clock
from wsproto.events import BytesMessage, CloseConnection

from gateway.net.memory import MemoryBudget
from gateway.net.read_ahead import STEP
from gateway.sdk.batches import BatchListener, Ready
from gateway.sdk.interfaces import Refusal, Yielding
from gateway.sdk.pressure import Valve
from gateway.sdk.section import Section
from gateway.store.journal import Journal, Log
from gateway.store.system.disk import RealDisk
from gateway.testing import FakeConnection, ManualJournal
from gateway_testkit.reactor import QueuedReactor
from gateway_testkit.settings import settings
from incarnations import A
from making import Make
from sections import journal_settings

LIMIT = 1 << 20
"""`limits.read_ahead_bytes` of these listeners."""


class Kernel:
    """What the kernel says of a peer's socket."""

    def __init__(self, peer: Any) -> None:
        self._ours, self._theirs = socket.socketpair()
        peer.transport.fileno = self._ours.fileno

    def hears(self) -> None:
        self._theirs.send(b"x")

    def was_read(self) -> None:
        self._ours.recv(1)

    def fin(self) -> None:
        self._theirs.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Both directions are shut: what that looks like to poll()."""
        self._theirs.close()

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


@pytest.fixture
def kernel() -> Iterator[Callable[[Any], Kernel]]:
    made: list[Kernel] = []

    def make(peer: Any) -> Kernel:
        made.append(Kernel(peer))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Room:
    """The common budget, and what is counted of it."""

    def __init__(self, most: int = 64 << 20) -> None:
        self.held = 0
        self.full = False
        self.on_less: Callable[[], None] | None = None
        self.budget = MemoryBudget(self._reserve, most)

    def _reserve(self, change: int) -> bool:
        self.held += change
        if change < 0 and self.on_less is not None:
            on_less, self.on_less = self.on_less, None
            on_less()
        return not self.full


@pytest.fixture
def room() -> Room:
    return Room()


def reads(peer: Any) -> bool:
    return bool(peer.transport.producerState == "producing")


@pytest.fixture
def held(make_paused, room) -> Make[tuple[Any, Any]]:
    """A listener and a peer whose server pauses at every byte that it gets, some seconds
    ago, and who has more to say.
    """

    def make(**keywords: Any) -> tuple[Any, Any]:
        net, peer = make_paused(memory=room.budget, **keywords)
        assert not reads(peer)
        net.pass_time(3)
        return net, peer

    return make


def go_on(net: Any) -> None:
    """The server takes all it gets."""
    net.server.act = lambda connection, data: None
    net.server.connection.resume()
    net.clock.advance(0)


def test_a_paused_peer_is_read_on(held, room):
    """Its server gets nothing before it goes on, and then all of it, in order."""
    net, peer = held()
    assert reads(peer)
    assert peer.transport.read_bytes == STEP
    peer.send(b"a" * STEP)
    peer.send(b"b" * 10)
    peer.send(b"c" * 10)
    assert net.server.data == b"x"
    assert room.held == STEP + 20 + STEP
    go_on(net)
    assert net.server.chunks == [b"x", b"a" * STEP, b"b" * 10 + b"c" * 10]
    assert reads(peer)
    assert peer.transport.read_bytes > STEP
    assert room.held == 0
    peer.send(b"d")
    assert net.server.data.endswith(b"d")


def test_a_short_pause_reads_nothing(make_paused, room):
    """It is over before the next look."""
    net, peer = make_paused(memory=room.budget)
    assert not reads(peer)
    net.server.connection.resume()
    assert reads(peer)
    assert room.held == 0


def test_nothing_is_read_while_that_is_delivered(held, room):
    """A piece in each turn; and a server that pauses again has the rest later."""
    net, peer = held()
    for _ in range(3):
        peer.send(bytes(STEP))
    net.server.act = lambda connection, data: connection.again() if data else None
    net.server.connection.resume()
    assert not reads(peer)
    net.clock.advance(0)
    taken = [len(chunk) for chunk in net.server.chunks]
    assert taken == [1, STEP, 0, STEP, 0, STEP, 0]
    assert reads(peer)

    net.server.act = lambda connection, data: connection.pause()
    peer.send(b"y")
    net.pass_time(3)
    for _ in range(3):
        peer.send(bytes(STEP))
    net.server.connection.resume()
    net.clock.advance(0)
    assert net.server.chunks[-2:] == [b"y", bytes(STEP)]
    assert room.held == 2 * STEP


def test_it_ends_at_the_limit(held, room):
    """`limits.read_ahead_bytes`: the rest waits in the kernel."""
    net, peer = held()
    sent = 0
    while reads(peer):
        peer.send(bytes(STEP))
        sent += STEP
    assert sent == LIMIT == room.held
    net.pass_time(30)
    assert not reads(peer)
    go_on(net)
    assert len(net.server.data) == 1 + LIMIT
    assert reads(peer)


def test_a_limit_of_nothing(make_net):
    """`read_ahead_bytes: 0B`."""
    net = make_net(
        lambda connection, data: connection.pause(), limits={"read_ahead_bytes": 0}
    )
    peer = net.peer()
    peer.send(b"x")
    net.pass_time(10)
    assert not reads(peer)


def test_many_paused_peers_share_what_there_is(make_net):
    """However many there are, and however much each has: the more, the less for each;
    and nobody is let go for it.
    """
    most = 4 << 20
    room = Room(most)
    net = make_net(lambda connection, data: connection.pause(), {"memory": room.budget})
    peers = [net.peer(f"192.0.2.{n % 9}") for n in range(2000)]
    for peer in peers:
        peer.send(b"x")
    for _ in range(5):
        net.pass_time(3)
        assert 0 < room.held <= most
        for peer in peers:
            while reads(peer):
                peer.send(bytes(STEP))
                assert room.held <= most
    assert net.listener.connections == 2000
    assert not net.listener.rejected
    for peer in peers:
        peer.lose()
    assert room.held == 0


def test_one_leaves_half_to_the_next(make_paused):
    """A sender with much can not keep a later one from being read at all."""
    room = Room(LIMIT)
    _, greedy = net, peer = make_paused(memory=room.budget)
    net.pass_time(3)
    while reads(greedy):
        greedy.send(bytes(STEP))
    assert room.held == LIMIT // 2
    peer = net.peer()
    peer.send(b"x")
    net.pass_time(3)
    assert reads(peer)


def test_memory_that_others_need_is_not_taken(held, room):
    """When all that peers make us hold is too much, nothing is read ahead; later it is."""
    net, peer = held()
    room.full = True
    peer.send(bytes(STEP))
    assert not reads(peer)
    assert room.held == STEP
    net.pass_time(5)
    assert not reads(peer)
    room.full = False
    net.pass_time(5)
    assert reads(peer)


def test_a_silent_peer_gives_its_room_back(held, kernel, room):
    net, peer = held()
    socket_ = kernel(peer)
    peer.send(b"more")
    net.pass_time(8)
    assert not reads(peer)
    assert room.held == 4
    socket_.hears()
    net.pass_time(3)
    assert reads(peer)
    assert room.held == 4 + STEP


def test_input_read_ahead_is_unread_input(held, kernel):
    """Whose peer waits, as if it were in the kernel still."""
    net, peer = held()
    kernel(peer)
    connection = net.server.connection
    assert not connection.unread_input
    peer.send(b"window")
    assert connection.unread_input
    go_on(net)
    assert not connection.unread_input


def test_of_a_lost_peer_nothing_is_delivered(held, room):
    """It will send that again."""
    net, peer = held()
    peer.send(b"window")
    peer.lose()
    go_on(net)
    assert net.server.data == b"x"
    assert room.held == 0


def test_a_fin_behind_it_gives_the_peer_up(held, kernel, room):
    """As one behind what the kernel holds, after some seconds."""
    net, peer = held()
    net.server.connection.busy(True)
    peer.send(b"window")
    kernel(peer).fin()
    peer.fin()
    net.pass_time(4)
    assert not peer.transport.disconnected
    net.pass_time(6)
    assert peer.transport.disconnected
    assert net.server.data == b"x"
    assert room.held == 0


def test_a_fin_comes_after_all_that_was_before_it(held, kernel):
    """If the server goes on in time: it stores that, acknowledges it, then closes."""
    net, peer = held()
    connection = net.server.connection
    connection.busy(True)
    peer.send(b"window")
    kernel(peer).fin()
    peer.fin()
    net.pass_time(2)
    net.server.act = lambda connection, data: connection.busy(True)
    connection.busy(False)
    connection.resume()
    net.clock.advance(0)
    assert net.server.data == b"xwindow"
    assert not peer.transport.disconnecting
    connection.write(b"ack")
    connection.busy(False)
    net.clock.advance(0)
    assert peer.got() == b"ack"
    assert peer.transport.disconnecting


def test_a_fin_of_a_peer_that_is_owed_nothing(held):
    """It gets the end once its input was taken."""
    net, peer = held(acknowledges=False)
    peer.send(b"line")
    peer.fin()
    net.pass_time(60)
    assert not peer.transport.disconnecting
    go_on(net)
    assert net.server.data == b"xline"
    assert peer.transport.disconnecting


class Layered:
    """A paused peer over TLS or WebSocket, which has sent a window more."""

    def __init__(self, net: Any, peer: Any, say: Callable[[bytes], None]) -> None:
        self.net = net
        self.peer = peer
        say(b"x")
        assert not reads(peer)
        net.pass_time(3)
        say(b"window")
        assert net.server.data == b"x"
        self.end: Callable[[], None]


@pytest.fixture(params=["tls", "websocket", "both"])
def layered(make_net, make_tls, tls_peer, request, room) -> Make[Layered]:
    def make(**keywords: Any) -> Layered:
        changes: dict[str, Any] = {}
        if request.param != "websocket":
            changes["tls"] = make_tls()
        if request.param != "tls":
            changes["websocket"] = SimpleNamespace(path="/ws", origins=[])
        keywords["memory"] = room.budget
        act = lambda connection, data: connection.pause()  # noqa: E731 - one line
        net = make_net(act, keywords, **changes)
        peer = net.peer()
        if request.param == "websocket":
            client = peer.upgrade()
            made = Layered(net, peer, lambda data: peer.send(_message(client, data)))
            made.end = lambda: peer.send(client.send(CloseConnection(1000)))
            return made
        tls = tls_peer(peer)
        tls.shake_hands()
        if request.param == "tls":
            made = Layered(net, peer, tls.send)
            made.end = tls.close_notify
            return made
        client = tls.upgrade()
        made = Layered(net, peer, lambda data: tls.send(_message(client, data)))
        made.end = lambda: tls.send(client.send(CloseConnection(1000)))
        return made

    return make


def _message(client: Any, data: bytes) -> bytes:
    return bytes(client.send(BytesMessage(data)))


def test_an_end_without_fin_is_seen(layered, room):
    """close_notify, or a Close: what is unread before it is dropped, as nobody listens."""
    made = layered()
    made.end()
    assert made.peer.transport.finished
    assert room.held == 0
    go_on(made.net)
    assert made.net.server.data == b"x"


def test_an_end_without_fin_of_who_waits_for_no_answer(layered):
    """It comes after all that was before it."""
    made = layered(acknowledges=False)
    made.end()
    made.net.pass_time(20)
    assert not made.peer.transport.finished
    go_on(made.net)
    assert made.net.server.data == b"xwindow"
    assert made.peer.transport.finished


def test_the_rest_of_a_turn_is_before_the_end(make_net, make_tls, tls_peer):
    """A server with input left has it though close_notify came in the same read."""
    turns: list[bytes] = []

    def act(connection: Any, data: bytes) -> None:
        turns.append(data)
        if len(turns) < 3:
            connection.again()

    net = make_net(act, {"acknowledges": False}, tls=make_tls())
    peer = net.peer()
    tls = tls_peer(peer)
    tls.shake_hands()
    tls.tls.write(b"lines")
    tls.close_notify()
    net.clock.advance(0)
    assert turns == [b"lines", b"", b""]
    assert peer.transport.finished


def test_a_fin_without_close_notify(layered, room):
    """TLS and WebSocket can not be half closed: nobody is there any more."""
    made = layered()
    made.peer.fin()
    assert made.peer.transport.disconnecting
    made.peer.lose()
    assert room.held == 0
    assert made.net.server.data == b"x"


def test_input_that_comes_while_paused_waits(make_paused, room):
    """Whatever the transport still brings is kept, and counted, and no more is read."""
    net, peer = make_paused(memory=room.budget)
    peer.send(b"late")
    assert net.server.data == b"x"
    assert room.held == 4
    assert not reads(peer)
    go_on(net)
    assert net.server.data == b"xlate"


def test_room_that_is_given_back_may_be_the_peers_own(held, kernel, room):
    """Its server goes on in that very moment, when the journal has room again: nothing
    is given back twice.
    """
    net, peer = held()
    room.on_less = net.server.connection.resume
    kernel(peer)
    net.pass_time(8)
    assert room.held == 0

    net.server.connection.pause()
    peer.transport.fileno = type(peer.transport)().fileno
    net.pass_time(3)
    net.server.act = lambda connection, data: None
    room.on_less = net.server.connection.resume
    peer.send(b"y")
    net.clock.advance(0)
    assert net.server.data == b"xy"
    assert room.held == 0


def test_any_number_of_peers_go_on_at_once(make_net, tmp_path):
    """When the journal has room again, which each makes some more of."""
    journal = Journal(
        Log(tmp_path, RealDisk(), 1, A),
        reactor=QueuedReactor(),
        **journal_settings(),
        on_sealed=pytest.fail,
        on_fatal=pytest.fail,
    )
    net = make_net(keywords={"memory": MemoryBudget(journal.reserve)})
    valves: list[Valve] = []
    net.act = lambda connection, data: valves[int(data)].regulate(0)
    peers = [net.peer(f"192.0.2.{n % 9}") for n in range(300)]
    for server in net.servers:
        number = len(valves)
        regulate = lambda n=number: valves[n].regulate(0)  # noqa: E731 - one line
        valves.append(Valve(server.connection, journal, 1000, regulate))
    journal.hold("spool", "full")
    for number, peer in enumerate(peers):
        peer.send(b"%d" % number)
    net.pass_time(3)
    assert all(map(reads, peers))
    journal.hold("spool", None)
    assert not any(valve.paused for valve in valves)
    net.clock.advance(0)
    assert all(map(reads, peers))
    assert journal.reserve(0)
    assert journal._reserved == 0


def test_a_peer_that_does_not_read_is_not_answered(held):
    """What was read ahead of it waits until it has read the answers so far."""
    net, peer = held()
    for _ in range(3):
        peer.send(bytes(STEP))
    net.server.act = lambda connection, data: peer.stop_reading()
    net.server.connection.resume()
    net.clock.advance(0)
    assert len(net.server.data) == 1 + STEP
    net.server.act = lambda connection, data: None
    peer.transport.unsent_bytes = 0
    peer.transport.producer.resumeProducing()
    net.clock.advance(0)
    assert len(net.server.data) == 1 + 3 * STEP
    assert reads(peer)


def test_an_answer_waits_for_its_penalty_though_a_fin_was_read(held):
    """Wrong credentials, the FIN right behind them, and both read ahead."""
    net, peer = held()
    for _ in range(20):
        net.listener.penalties.add("192.0.2.1")
    peer.send(b"token")
    peer.fin()

    def act(connection: Any, data: bytes) -> None:
        connection.busy(True)
        connection.busy(False)
        raise Refusal("wrong token", reply=b"no", wrong_credentials=True)

    net.server.act = act
    net.server.connection.resume()
    net.clock.advance(0)
    assert not peer.transport.disconnecting
    assert peer.got() == b""
    net.pass_time(60)
    assert peer.got() == b"no"
    assert peer.transport.disconnecting


def test_a_reset_behind_an_end_loses_nothing_that_nobody_sends_again(held, kernel):
    net, peer = held(acknowledges=False)
    peer.send(b"lines")
    peer.fin()
    kernel(peer).reset()
    net.pass_time(10)
    go_on(net)
    assert net.server.data == b"xlines"
    assert peer.transport.disconnecting


def test_of_a_lost_peer_that_waits_for_no_answer_all_is_delivered(held, room):
    """Its lines are nowhere else any more; then the server hears of its end."""
    net, peer = held(acknowledges=False)
    peer.send(bytes(STEP))
    peer.send(b"lines")
    peer.stop_reading()
    peer.lose()
    net.pass_time(60)
    assert not net.server.gone
    assert net.listener.connections == 1
    go_on(net)
    assert net.server.data == b"x" + bytes(STEP) + b"lines"
    net.clock.advance(0)
    assert net.server.gone
    assert net.listener.connections == 0
    assert room.held == 0


def test_who_is_lost_does_not_outlive_the_daemon(held):
    """Its server ends as that of any other."""
    net, peer = held(acknowledges=False)
    peer.send(b"lines")
    peer.lose()
    net.drain()
    net.pass_time(1)
    assert net.server.gone
    assert net.drained


def test_a_reset_of_who_waits_for_no_answer_ends_it_if_nothing_is_unread(held, kernel):
    """Though its server is paused: there is nothing to keep."""
    net, peer = held(acknowledges=False)
    kernel(peer).reset()
    net.pass_time(3)
    assert peer.transport.disconnected


def test_nothing_is_read_ahead_for_a_server_that_ends(held, room):
    """It answers what it has, and takes no more: by itself, or told to let go."""
    net, peer = held()
    peer.send(b"dropped")
    pause = net.server.connection.pause
    net.server.declare(Yielding, give_up=lambda why: pause())
    peer.connection.ending.let_go(Refusal("too much"))
    other = net.peer()
    other.send(b"x")
    net.pass_time(3)
    other.send(b"dropped")
    assert reads(other)
    net.server.connection.take_no_more()
    net.server.connection.busy(True)
    assert room.held == 0
    net.pass_time(10)
    assert not reads(peer)
    assert not reads(other)
    assert room.held == 0
    net.server.connection.write(b"ack")
    net.server.connection.close()
    assert other.got() == b"ack"
    assert other.transport.finished
    net.server.connection.take_no_more()
    assert reads(other)
    assert net.server.data == b"x"


def test_servers_that_end_say_so():
    """All that may owe answers then: else their input would be read ahead for nothing."""
    connection = FakeConnection()
    journal = ManualJournal()
    asked = settings(Section, unacknowledged_bytes=1000, control_messages=100)
    session = SimpleNamespace(
        held_bytes=0, received=lambda data: iter([Ready(1, data, 1, b"ack")])
    )
    listener = BatchListener(asked, journal, Clock(), lambda *_: session)
    connection.serve(listener(connection))
    connection.deliver(b"x")
    connection.drain()
    assert connection.takes_no_more
