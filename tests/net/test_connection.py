"""One connection from its first byte to its last, in memory: its phases, and its age."""

import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.address import IPv6Address, UNIXAddress

from gateway.net.phase import FOLLOWS, Phase
from gateway.sdk.interfaces import Aging, Refusal

# Plain


def test_bytes_reach_the_server_as_they_come(net, peer):
    """Nothing is added, held back or taken away."""
    peer.send(b"2")
    peer.send(b"W\0\0\0\1")
    assert net.server.chunks == [b"2", b"W\0\0\0\1"]
    net.server.connection.write(b"2A\0\0\0\1")
    assert peer.got() == b"2A\0\0\0\1"


def test_the_origin_says_who_it_is(net):
    """Listener, protocol, session and peer; each connection has its own."""
    net.peer("192.0.2.1")
    net.peer("192.0.2.2")
    one, other = (server.connection.origin for server in net.servers)
    assert (one.protocol, one.listener, one.peer) == (
        "lumberjack", "beats", "192.0.2.1:4000",
    )  # fmt: skip
    assert other.peer == "192.0.2.2:4000"
    assert one.session != other.session
    assert one.principal is None


def test_ipv6_peers_are_written_readably(net):
    """In brackets, and a mapped IPv4 address as what it is."""
    for host in ("2001:db8::1", "::ffff:192.0.2.1"):
        net.connect(IPv6Address("TCP", host, 9))
    peers = [server.connection.origin.peer for server in net.servers]
    assert peers == ["[2001:db8::1]:9", "192.0.2.1:9"]


def test_it_counts(net, peer):
    """Connections, bytes off the wire, events that the server says are durable."""
    peer.send(b"12345")
    net.server.connection.count(events=3)
    listener = net.listener
    assert (listener.traffic.accepted, listener.connections) == (1, 1)
    assert (listener.traffic.bytes, listener.traffic.events) == (5, 3)
    net.server.connection.report(Refusal("odd", limit=9))
    [seen] = listener.seen()
    assert (seen.bytes, seen.events, seen.unacknowledged) == (5, 3, 0)
    assert (seen.peer, seen.listener) == (net.server.connection.origin.peer, "beats")
    assert seen.last_error == "odd, limit 9"
    [recent] = net.listener.rejections._rate.recent
    assert (recent.listener, recent.count, recent.why) == ("beats", 1, "odd, limit 9")
    peer.lose()
    assert (listener.traffic.accepted, listener.connections) == (1, 0)


def test_the_server_is_told_of_the_end_once(net, peer):
    """And what it writes, pauses or closes then goes nowhere."""
    peer.lose()
    assert net.server.gone
    connection = net.server.connection
    for do in (connection.close, connection.abort, connection.pause, connection.resume):
        do()
    connection.write(b"late")
    assert peer.got() == b""


def test_pause_and_resume_reach_the_transport(make_paused):
    """Two pauses need one resume."""
    net, peer = make_paused()
    net.server.connection.pause()
    assert peer.transport.producerState == "paused"
    net.server.connection.resume()
    assert peer.transport.producerState == "producing"


# The end


def test_close_sends_fin_and_waits_for_the_peers(net, peer):
    """Written bytes first; what comes then is dropped; the peer's FIN ends it."""
    net.server.connection.write(b"last")
    net.server.connection.close()
    net.server.connection.write(b"late")
    assert peer.got() == b"last"
    assert peer.transport.finished
    assert not peer.transport.disconnecting
    peer.send(b"too late")
    assert net.server.data == b""
    peer.fin()
    assert peer.transport.disconnecting


def test_a_paused_connection_reads_again_when_it_closes(make_paused):
    """Or it would never see the peer's FIN."""
    net, peer = make_paused()
    net.server.connection.close()
    assert peer.transport.producerState == "producing"


def test_a_peer_that_does_not_answer_fin_is_dropped(net, peer):
    """After the linger time."""
    net.server.connection.close()
    net.pass_time(4)
    assert not peer.transport.disconnected
    net.pass_time(4)
    assert peer.transport.disconnected


def test_a_peer_that_has_sent_fin_still_gets_its_ack(net, peer):
    """While the server is busy the connection stays; then what is owed, then FIN."""
    peer.send(b"window")
    connection = net.server.connection
    connection.busy(True)
    peer.fin()
    assert not peer.transport.disconnecting
    connection.busy(False)
    connection.write(b"ack")
    net.pass_time(0.25)
    assert peer.got() == b"ack"
    assert peer.transport.disconnecting


def test_a_peer_that_is_owed_nothing_leaves_at_once(peer):
    """FIN from an idle peer closes."""
    peer.fin()
    assert peer.transport.disconnecting


def test_a_refusal_is_answered_logged_and_closed(make_net, refuse, logged, warnings):
    """One line with peer, rule, limit and key, in text and as fields."""
    told: list[str | None] = []
    net = make_net(refuse, {"on_refused": told.append})
    peer = net.peer()
    peer.send(b"x")
    assert peer.got() == b"bye"
    assert peer.transport.finished
    assert warnings() == [
        "beats: 192.0.2.1:4000 refused: bad frame, limit 7 (limits.frames)"
    ]
    [event] = [event for event in logged if "rule" in event]
    assert (event["rule"], event["limit"], event["key"]) == (
        "bad frame", 7, "limits.frames",
    )  # fmt: skip
    assert net.listener.rejected == {"protocol": 1}
    assert told == ["limits.frames"]


# Time


def test_a_silent_peer_is_closed(make_net, warnings):
    """After limits.idle, with FIN; that is no reason for a line in the log."""
    net = make_net(limits={"idle": 60.0})
    peer = net.peer()
    net.pass_time(55)
    peer.send(b"x")
    net.pass_time(58)
    assert not peer.transport.finished
    net.pass_time(6)
    assert peer.transport.finished
    assert warnings() == []
    assert net.listener.rejected == {"idle": 1}


def test_a_peer_that_waits_for_us_is_not_idle(make_net):
    """Busy and paused connections are ours to end; then the time starts afresh."""
    net = make_net(limits={"idle": 10.0})
    busy, paused = net.peer(), net.peer()
    net.servers[0].connection.busy(True)
    net.servers[1].connection.pause()
    net.pass_time(60)
    assert not busy.transport.finished
    assert not paused.transport.finished
    net.servers[0].connection.busy(False)
    net.servers[1].connection.resume()
    net.pass_time(9)
    assert not busy.transport.finished
    net.pass_time(6)
    assert busy.transport.finished
    assert paused.transport.finished


def test_a_unix_peer_is_named_by_its_user(net, make_transport):
    """It has no address; the kernel knows who it is."""
    ours, theirs = socket.socketpair()
    wire = make_transport()
    wire.getHandle = lambda: ours
    net.connect(UNIXAddress(b"/x"), wire)
    assert (
        net.server.connection.origin.peer == f"unix:uid={os.getuid()},pid={os.getpid()}"
    )
    ours.close()
    theirs.close()


def aging(net: Any) -> list[None]:
    """The latest server is told of its age, and closes."""
    told: list[None] = []
    server = net.server

    def aged() -> None:
        told.append(None)
        server.connection.close()

    server.declare(Aging, aged=aged)
    return told


def test_its_server_is_told_once(make_net):
    """Not before its age, whatever it does; within a fifth of that, and of a look, after."""
    net = make_net(limits={"connection_age": 100.0, "idle": 1000.0})
    peer = net.peer()
    told: list[None] = []
    net.server.declare(Aging, aged=lambda: told.append(None))
    net.pass_time(99)
    peer.send(b"window")
    assert not told
    net.pass_time(24)
    assert len(told) == 1
    net.pass_time(200)
    assert len(told) == 1


def test_who_came_together_does_not_leave_together(make_net):
    """Else all would come to the next gateway at once, as after a restart."""
    net = make_net(limits={"connection_age": 1000.0, "idle": 10_000.0})
    for number in range(200):
        net.peer(f"192.0.2.{number}")
        aging(net)
    net.pass_time(1000)
    left = []
    for _ in range(4):
        net.pass_time(50)
        left.append(sum(server.connection.transport.finished for server in net.servers))
    net.pass_time(5)
    assert all(server.connection.transport.finished for server in net.servers)
    assert 20 < left[0] < 80
    assert 120 < left[2] < 180


def test_a_server_that_can_not_is_left_alone(make_net):
    """As one of a protocol whose peers would lose something."""
    net = make_net(limits={"connection_age": 10.0})
    peer = net.peer()
    net.pass_time(60)
    assert not peer.transport.finished


def test_who_has_no_server_yet_is_told_later(make_net):
    """It is shaking hands, for which it has a limit of its own."""
    net = make_net(
        limits={"connection_age": 5.0, "handshake": 60.0},
        websocket=SimpleNamespace(path="/ws", origins=[]),
    )
    peer = net.peer()
    net.pass_time(20)
    assert not peer.transport.finished
    peer.upgrade()
    told = aging(net)
    net.pass_time(3)
    assert told == [None]


@pytest.mark.parametrize("left", [True, False])
def test_the_log_says_why(make_net, left):
    """That it was its age; or the peer, if that left before."""
    net = make_net(limits={"connection_age": 10.0})
    peer = net.peer()
    aging(net)
    if not left:
        net.pass_time(15)
    peer.fin()
    assert peer.connection.ending.why == ("peer" if left else "age")


@pytest.mark.parametrize("phase", Phase)
def test_it_only_goes_on(phase):
    """Never back, and it may be lost at any time."""
    assert all(later > phase for later in FOLLOWS[phase])
    assert Phase.LOST in FOLLOWS[phase] or phase is Phase.LOST


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase > Phase.NEW])
def test_something_leads_to_each(phase):
    """No state is there for nothing."""
    assert any(phase in following for following in FOLLOWS.values())


def test_a_connection_keeps_to_it(net, peer):
    """From its transport to its end; what the table does not have is a fault of ours."""
    connection = peer.connection
    assert connection.phase is Phase.FIRST_BYTES
    peer.send(b"2W")
    assert connection.phase is Phase.SERVING
    with pytest.raises(AssertionError, match="FIRST_BYTES"):
        connection.become(Phase.FIRST_BYTES)
    connection.take_no_more()
    assert connection.phase is Phase.ANSWERING
    connection.close()
    assert connection.phase is Phase.CLOSING
    peer.lose()
    assert connection.phase is Phase.LOST
