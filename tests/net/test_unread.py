"""Peers that do not read what is written to them, and connections that nobody reads."""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from wsproto.events import BytesMessage

from gateway.net.reading import READ_BYTES
from gateway.sdk.interfaces import Publishing
from making import Make


def test_we_stop_reading_from_a_peer_that_does_not_read(net, peer):
    """Its unread answers grow no further; when it has read, it goes on."""
    peer.transport.producer.pauseProducing()
    assert peer.transport.producerState == "paused"
    net.server.connection.pause()
    peer.transport.producer.resumeProducing()
    assert peer.transport.producerState == "paused"
    net.server.connection.resume()
    assert peer.transport.producerState == "producing"


def test_a_server_that_resumes_does_not_overrule_that(net, peer):
    """Reading needs both: a server that wants to and a peer that reads."""
    peer.transport.producer.pauseProducing()
    net.server.connection.resume()
    assert peer.transport.producerState == "paused"


def test_a_peer_that_does_not_read_is_cut_off(make_net, warnings):
    """When more than `unread_bytes` are written to it, with one line."""
    net = make_net(keywords={"unread_bytes": 100})
    peer = net.peer()
    connection = net.server.connection
    peer.stop_reading()
    connection.write(bytes(100))
    assert not peer.transport.disconnected
    peer.transport.unsent_bytes += 100
    peer.transport.producer.pauseProducing()  # Twisted's transport says so at every write
    connection.write(b"x")
    assert peer.transport.disconnected
    [line] = warnings()
    assert f"does not read what we send, limit {READ_BYTES + 100}" in line
    assert net.listener.rejected == {"unread": 1}


def test_a_peer_that_reads_again_starts_afresh(make_net):
    """Slow is fine, stuck is not."""
    net = make_net(keywords={"unread_bytes": 100})
    peer = net.peer()
    for _ in range(10):
        peer.stop_reading()
        net.server.connection.write(bytes(100))
        peer.transport.unsent_bytes = 0
        peer.transport.producer.resumeProducing()
    assert not peer.transport.disconnected


def test_a_peer_that_reads_as_fast_as_we_write_stays(make_net):
    """However much goes through: what waits for it is what counts."""
    net = make_net(keywords={"unread_bytes": 100})
    peer = net.peer()
    peer.stop_reading()
    for _ in range(10):
        net.server.connection.write(bytes(100))
    assert not peer.transport.disconnected


def test_a_peer_that_never_reads_is_cut_off_in_time(net, peer, warnings):
    """45 s in which nothing is sent, even when nothing more is written."""
    peer.stop_reading()
    net.pass_time(43)
    assert not peer.transport.disconnected
    net.pass_time(6)
    assert peer.transport.disconnected
    assert len(warnings()) == 1


def test_a_slow_but_steady_reader_is_not_cut_off(make_net):
    """Neither as stuck nor as idle, while the least bit goes out, all the time."""
    net = make_net(limits={"idle": 60.0})
    peer = net.peer()
    peer.stop_reading()
    for _ in range(10):
        net.pass_time(40)
        peer.transport.unsent_bytes -= 1
    net.pass_time(40)
    assert not peer.transport.disconnected
    assert not peer.transport.finished
    net.pass_time(10)
    assert peer.transport.disconnected


def test_what_we_write_meanwhile_does_not_hide_what_it_reads(make_net):
    net = make_net(keywords={"unread_bytes": 1000})
    reads, deaf = net.peer(), net.peer()
    for peer in (reads, deaf):
        peer.stop_reading()
    for _ in range(3):
        net.pass_time(20)
        for server in net.servers:
            server.connection.write(bytes(10))
        reads.transport.unsent_bytes += 9
        deaf.transport.unsent_bytes += 10
    assert not reads.transport.disconnected
    assert deaf.transport.disconnected


@dataclass
class Paused:
    """A connection that is not read, and the real socket that it asks."""

    net: Any
    peer: Any
    ours: socket.socket
    theirs: socket.socket

    @property
    def connection(self) -> Any:
        return self.net.server.connection

    def kept(self, seconds: float) -> bool:
        """Whether the peer is still there after so long."""
        self.net.pass_time(seconds)
        return not self.peer.transport.disconnected


@pytest.fixture
def beside_a_socket(make_paused) -> Iterator[Make[Paused]]:
    """Makes one; its sockets are closed in the end."""
    with contextlib.ExitStack() as sockets:

        def make(**keywords: Any) -> Paused:
            net, peer = make_paused(**keywords)
            ours, theirs = map(sockets.enter_context, socket.socketpair())
            peer.transport.fileno = ours.fileno
            return Paused(net, peer, ours, theirs)

        yield make


@pytest.fixture
def paused(beside_a_socket) -> Paused:
    return beside_a_socket()


def test_a_reset_is_noticed_though_paused(paused):
    """Within seconds."""
    assert paused.kept(5)
    paused.theirs.close()  # both directions are shut: what a reset looks like to poll()
    assert not paused.kept(5)


def test_a_peer_that_closed_is_given_up(paused):
    """It hears no acknowledgement any more: what is unread of it is dropped."""
    paused.theirs.send(b"unread")
    paused.theirs.shutdown(socket.SHUT_WR)
    assert paused.kept(3)
    assert not paused.kept(8)


def test_a_half_closed_peer_waits_for_its_acknowledgement(paused):
    """It has closed its own direction, and all that it sent is submitted."""
    paused.connection.busy(True)
    paused.theirs.shutdown(socket.SHUT_WR)
    assert paused.kept(60)
    paused.connection.hold(7)  # an unfinished message, or one that waits for room
    assert paused.kept(3)
    assert not paused.kept(8)


def test_a_half_closed_peer_that_is_gone_is_noticed(paused):
    """Its server waits for events to send it, and reads on: nobody else would look."""
    paused.connection.busy(True)
    paused.connection.resume()
    paused.theirs.shutdown(socket.SHUT_WR)
    paused.peer.fin()
    assert paused.kept(60)
    paused.theirs.close()
    assert not paused.kept(3)


def test_who_is_owed_answers_by_a_server_that_ends_gets_them(paused):
    """What is unread behind them will not be stored here, however long they take."""
    connection = paused.connection
    connection.busy(True)
    paused.theirs.send(b"unread")
    paused.theirs.shutdown(socket.SHUT_WR)
    connection.take_no_more()
    assert paused.kept(60)
    connection.write(b"ack")
    connection.close()
    assert paused.peer.got() == b"ack"
    assert paused.peer.transport.finished


def test_a_peer_that_is_read_again_is_not(paused):
    """Its FIN comes behind its data, as ever."""
    paused.theirs.shutdown(socket.SHUT_WR)
    paused.net.pass_time(3)
    paused.connection.resume()
    assert paused.kept(60)


def test_a_peer_that_waits_for_no_acknowledgement_is_kept(beside_a_socket):
    """All that it sent is to be stored, however long that takes."""
    paused = beside_a_socket(acknowledges=False)
    paused.theirs.shutdown(socket.SHUT_WR)
    assert paused.kept(60)


def test_unread_input_is_seen(paused):
    """What the kernel holds of a peer that waits."""
    assert not paused.connection.unread_input
    paused.theirs.send(b"more")
    assert paused.connection.unread_input
    paused.ours.close()
    paused.theirs.close()
    assert not paused.connection.unread_input


# Servers that stop writing instead


def publishing(net: Any) -> list[bool]:
    """Let its server be one that can stop; what it is told."""
    told: list[bool] = []
    net.server.declare(Publishing, writable=told.append)
    return told


def test_a_publisher_is_heard_while_its_peer_does_not_read(net, peer):
    """It is told to send nothing, and to go on; reading is up to it alone."""
    told = publishing(net)
    choke, free = (
        peer.transport.producer.pauseProducing,
        peer.transport.producer.resumeProducing,
    )
    choke()
    choke()  # Twisted's transport says so at every write
    assert told == [False]
    assert peer.transport.producerState == "producing"
    peer.send(b"cancel")
    assert net.server.data == b"cancel"
    net.server.connection.pause()
    net.server.connection.resume()
    assert peer.transport.producerState == "producing"
    net.server.connection.pause()
    free()
    assert told == [False, True]
    assert peer.transport.producerState == "paused"


def test_a_method_of_that_name_makes_no_publisher(net, peer):
    """A server that does not declare it is not read while its peer does not read."""
    net.server.writable = None
    peer.transport.producer.pauseProducing()
    assert peer.transport.producerState == "paused"
    peer.transport.producer.resumeProducing()
    assert peer.transport.producerState == "producing"


def test_a_publisher_is_cut_off_like_others(make_net, warnings):
    """By its peer's silence, and by what it writes nevertheless."""
    net = make_net(keywords={"unread_bytes": 100})
    stuck, flooded = net.peer(), net.peer()
    for peer, server in zip((stuck, flooded), net.servers, strict=True):
        server.declare(Publishing, writable=lambda ready: None)
        peer.stop_reading()
    net.servers[1].connection.write(bytes(101))
    assert flooded.transport.disconnected
    net.pass_time(50)
    assert stuck.transport.disconnected
    assert net.listener.rejected == {"unread": 2}


def test_a_publisher_hears_nothing_of_it_at_its_end(net, peer):
    """Once it has closed, its transport is none of its business."""
    told = publishing(net)
    net.server.connection.close()
    peer.transport.producer.pauseProducing()
    peer.transport.producer.resumeProducing()
    peer.lose()
    peer.transport.producer.resumeProducing()
    assert told == []


def test_a_publisher_over_tls_and_websocket_is_told_too(make_net, make_tls, tls_peer):
    """What lies between does not matter: its socket is what fills."""
    net = make_net(tls=make_tls(), websocket=SimpleNamespace(path="/ws", origins=[]))
    peer = net.peer()
    tls = tls_peer(peer)
    tls.shake_hands()
    client = tls.upgrade()
    told = publishing(net)
    peer.transport.producer.pauseProducing()
    tls.send(client.send(BytesMessage(b"cancel")))
    assert net.server.data == b"cancel"
    peer.transport.producer.resumeProducing()
    assert told == [False, True]
