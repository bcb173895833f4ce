"""What is private of Twisted is there, and does what we use it for."""

import contextlib
import socket
from collections.abc import Iterator
from typing import cast

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.main import CONNECTION_DONE
from twisted.internet.testing import MemoryReactor, StringTransport
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.python.reflect import namedAny
from zope.interface import implementer

import twisted
from gateway.net.twisted_internals import PRIVATE, AcceptedSocket, poll_plainly


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


def test_one_that_raises_is_logged_and_others_are_served(reactor):
    """Even where its end raises."""
    events: list[LogEvent] = []
    observer = cast(ILogObserver, events.append)
    readers = [Broken(reactor), Reader(reactor), Broken(reactor)]
    readers[0].peer.close()
    readers[1].peer.send(b"a")
    readers[2].peer.close()
    globalLogPublisher.addObserver(observer)
    try:
        reactor.iterate(0)
    finally:
        globalLogPublisher.removeObserver(observer)
    assert readers[1].got == [b"a"]
    assert [len(one.lost) for one in readers] == [1, 0, 1]
    failures = [event["log_failure"].type for event in events]
    assert failures == [RuntimeError, RuntimeError]


def test_nobody_ends_the_program_or_keeps_its_connection(reactor):
    """What raises anything at all is disconnected, as Twisted does it."""
    readers = [Leaving(reactor), Reader(reactor)]
    for one in readers:
        one.peer.send(b"a")
    reactor.iterate(0)
    assert [why.type for why in readers[0].lost] == [SystemExit]
    assert readers[1].got == [b"a"]
