"""What is private of Twisted is there, and does what we use it for."""

import contextlib
import socket
import struct
from collections.abc import Iterator
from functools import partial

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.main import CONNECTION_DONE
from twisted.internet.testing import MemoryReactor, StringTransport
from twisted.python.failure import Failure
from twisted.python.reflect import namedAny
from zope.interface import implementer

import twisted
from deadlines import eventually
from gateway.net.twisted_internals import (
    PRIVATE,
    AcceptedSocket,
    poll_plainly,
    send_little,
)
from gateway.sdk import native
from programs import lacking


def names_of(kind: type) -> set[str]:
    """Of its attributes, and of what its methods set or ask of themselves."""
    found = set(dir(kind))
    for base in kind.__mro__:
        for value in vars(base).values():
            if code := getattr(value, "__code__", None):
                found |= set(code.co_names)
    return found


@pytest.mark.parametrize("name", PRIVATE)
def test_twisted_has_what_is_private_and_used(name):
    """Another release may not: then `gateway.net.twisted_internals` is to be read again
    beside it, before `pyproject.toml` allows it."""
    missing = set(PRIVATE[name]) - names_of(namedAny(name))
    assert not missing, (
        f"Twisted {twisted.__version__}: {name} has no {', '.join(sorted(missing))} any "
        "more, which gateway/net/twisted_internals.py uses"
    )


class Outbox:
    """Sends nothing of its own accord."""

    def add(self, server: AcceptedSocket) -> None:
        self.waits = True

    def remove(self, server: AcceptedSocket) -> None:
        self.waits = False


def test_what_the_kernel_has_not_taken_is_unsent():
    """Before a socket is sent to, while the kernel is full, and when it took all."""
    own, peer = socket.socketpair()
    server = AcceptedSocket(
        own, StringTransport(), ("192.0.2.1", 4000), None, 1, MemoryReactor()
    )
    server.sends = Outbox()
    server.write(b"12345")
    assert server.unsent_bytes == 5
    size, got = 1 << 22, 0
    server.write(bytes(size))
    server.send()
    peer.setblocking(False)
    while server.unsent_bytes:
        with contextlib.suppress(BlockingIOError):
            got += len(peer.recv(size))
        server.doWrite()
    with contextlib.suppress(BlockingIOError):
        while data := peer.recv(size):
            got += len(data)
    assert got == 5 + size
    own.close()
    peer.close()


@pytest.fixture(params=["one call", "a call each"])
def kernel(request, monkeypatch):
    """With the kernel in C, and without it."""
    if request.param == "a call each":
        monkeypatch.setattr(native, "kernel", None)
    elif native.kernel is None:
        lacking("gateway-native is not installed: make native")


class Protocol:
    """Takes what comes, while it has *left* bytes of room."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.left = 1 << 20
        self.lost = False
        self.why: type | None = None

    def room(self) -> int:
        return self.left

    def dataReceived(self, data: bytes) -> None:
        self.got.append(data)

    def connectionLost(self, why: Failure) -> None:
        self.lost, self.why = True, why.type


class Pair(Protocol):
    """An accepted socket, whose protocol this is, and its peer."""

    def __init__(self, reactor: object, listening: socket.socket | None = None) -> None:
        super().__init__()
        if listening is None:
            own, self.peer = socket.socketpair()
        else:
            self.peer = socket.create_connection(listening.getsockname())
            own, _ = listening.accept()
        own.setblocking(False)
        address = ("192.0.2.1", 4000)
        self.server = AcceptedSocket(own, self, address, None, 1, reactor)
        self.server.sends = Outbox()

    def close(self) -> None:
        self.server.socket.close()
        self.peer.close()


def test_a_little_of_several_is_received(reactor, kernel):
    """In one call once each has had a little; and an end, much, of one without room nothing, and
    of one with some room no more than that."""
    pairs = one, other, third, last, tight = [Pair(reactor) for _ in range(5)]
    for pair in pairs:
        pair.server.startReading()
        pair.peer.send(b"first")
    reactor.iterate(0)
    one.peer.send(b"second")
    other.peer.close()
    much = bytes(5000)
    third.peer.send(much)
    last.left = 0
    last.peer.send(b"waits")
    tight.left = 100
    tight.peer.send(bytes(250))
    for _ in range(3):
        reactor.iterate(0)
    assert one.got == [b"first", b"second"]
    assert b"".join(third.got) == b"first" + much
    assert (other.got, other.lost) == ([b"first"], True)
    assert last.got == [b"first"]
    assert [len(some) for some in tight.got] == [5, 100, 100, 50]
    last.left = 1 << 20
    reactor.iterate(0)
    assert last.got == [b"first", b"waits"]
    for pair in (one, third, last, tight):
        assert not pair.lost
        pair.server.stopReading()
        pair.close()
    other.peer.close()


def test_a_reset_is_no_end(reactor, kernel):
    """The system says it once, and then that there is nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        gone, stays = pairs = [Pair(reactor, listening) for _ in range(2)]
    for pair in pairs:
        pair.server.startReading()
        pair.peer.send(b"first")
    eventually(lambda: reactor.iterate(0) or all(pair.got for pair in pairs), "these")
    asked: list[bool] = []

    def room() -> int:
        """Between epoll's answer and the call what was there is read, and it is reset."""
        if not asked:
            asked.append(True)
            gone.server.socket.recv(99)
            linger = struct.pack("ii", 1, 0)
            gone.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            gone.peer.close()
        return 1 << 20

    for pair in pairs:
        pair.room = room  # type: ignore[method-assign]
        pair.peer.send(b"second")
    eventually(lambda: reactor.iterate(0) or gone.lost, "the end")
    assert gone.why is ConnectionLost
    stays.server.stopReading()
    stays.close()


def test_what_was_received_is_its_connections_alone(reactor, kernel):
    """The one that is served first may have another read no more, as a full journal does, and
    end a third, whose number a new socket gets."""
    pairs = [Pair(reactor) for _ in range(3)]
    new: list[Pair] = []

    def serve(first: Pair, data: bytes) -> None:
        first.got.append(data)
        if new or data == b"first":
            return
        _, gone = others = [pair for pair in pairs if pair is not first]
        for pair in others:
            pair.server.stopReading()
        number = gone.server.fileno()
        gone.server.connectionLost(Failure(CONNECTION_DONE))
        new.append(Pair(reactor))
        assert new[0].server.fileno() == number
        new[0].server.startReading()

    for pair in pairs:
        pair.dataReceived = partial(serve, pair)  # type: ignore[method-assign]
        pair.server.startReading()
        pair.peer.send(b"first")
    reactor.iterate(0)
    for pair in pairs:
        pair.peer.send(b"second")
    reactor.iterate(0)
    kept = [pair for pair in pairs if not pair.lost]
    for pair in kept:
        pair.server.startReading()
    reactor.iterate(0)
    assert [pair.got for pair in kept] == [[b"first", b"second"]] * 2
    assert (new[0].got, new[0].lost) == ([], False)
    for pair in (*kept, *new):
        pair.server.stopReading()
        pair.close()


def test_a_little_for_several_is_sent(kernel):
    """What the kernel does not take, or a peer that is gone, is left to the reactor; what is much
    is sent alone."""
    reactor = MemoryReactor()
    pairs = fine, full, gone, much = [Pair(reactor) for _ in range(4)]
    for pair in pairs:
        pair.server.write(b"an ")
        pair.server.write(b"answer")
    with contextlib.suppress(BlockingIOError):
        while full.server.socket.send(bytes(1 << 16)):
            pass
    gone.peer.close()
    much.server.write(bytes(1 << 14))
    done = send_little([pair.server for pair in pairs])
    for pair in pairs:
        if pair.server not in done:
            pair.server.send()
    assert fine.peer.recv(99) == b"an answer"
    assert len(much.peer.recv(1 << 16)) == 9 + (1 << 14)
    unsent = [pair.server.unsent_bytes for pair in pairs]
    assert unsent == [0, 9, 9, 0]
    assert set(reactor.writers) == {full.server, gone.server}
    assert bool(done) == (native.kernel is not None)
    for pair in pairs:
        pair.close()


@implementer(IReadDescriptor)
class Reader:
    """One end of a socket pair."""

    def __init__(self, reactor: EPollReactor) -> None:
        self.reactor = reactor
        self.own, self.peer = socket.socketpair()
        self.got: list[bytes] = []
        self.lost: list[Failure] = []
        reactor.addReader(self)

    def fileno(self) -> int:
        return self.own.fileno()

    def logPrefix(self) -> str:
        return "reader"

    def doRead(self) -> Exception | None:
        self.got.append(self.own.recv(100))
        return None if self.got[-1] else CONNECTION_DONE

    def connectionLost(self, why: Failure) -> None:
        self.lost.append(why)

    def close(self) -> None:
        self.own.close()
        self.peer.close()


class Broken(Reader):
    """Its end is one, too."""

    def connectionLost(self, why: Failure) -> None:
        super().connectionLost(why)
        raise RuntimeError("a fault of ours")


class Leaving(Reader):
    """Ends the program, as it means to."""

    def doRead(self) -> Exception | None:
        raise SystemExit(3)


@pytest.fixture
def reactor() -> Iterator[EPollReactor]:
    reactor = EPollReactor()
    poll_plainly(reactor)
    yield reactor
    for reader in reactor.removeAll():
        if isinstance(reader, Reader):
            reader.close()


def test_what_is_ready_is_read(reactor):
    """All of it in one turn, and an end is told."""
    one, other, silent = (Reader(reactor) for _ in range(3))
    one.peer.send(b"a")
    other.peer.close()
    reactor.iterate(0)
    assert one.got == [b"a"]
    assert [why.type for why in other.lost] == [type(CONNECTION_DONE)]
    assert silent.got == silent.lost == one.lost == []


def test_one_that_raises_is_logged_and_others_are_served(reactor, logged):
    """Even where its end raises."""
    readers = [Broken(reactor), Reader(reactor), Broken(reactor)]
    readers[0].peer.close()
    readers[1].peer.send(b"a")
    readers[2].peer.close()
    reactor.iterate(0)
    assert readers[1].got == [b"a"]
    assert [len(one.lost) for one in readers] == [1, 0, 1]
    failures = [event["log_failure"].type for event in logged]
    assert failures == [RuntimeError, RuntimeError]


def test_nobody_ends_the_program_or_keeps_its_connection(reactor):
    """What raises anything at all is disconnected, as Twisted does it."""
    readers = [Leaving(reactor), Reader(reactor)]
    for one in readers:
        one.peer.send(b"a")
    reactor.iterate(0)
    assert [why.type for why in readers[0].lost] == [SystemExit]
    assert readers[1].got == [b"a"]
