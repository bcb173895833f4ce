"""The client on asyncio, talking to our own server over a socket."""

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.protocols.rsio.client import Fenced, on_asyncio
from gateway.protocols.rsio.client.runtime import Condition
from gateway.protocols.rsio.events import decode
from gateway.sdk.sender import Unacknowledged


@pytest.fixture
def refusing() -> Iterator[int]:
    """A port that refuses connections, and that no other test can listen on meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


class Server(asyncio.Protocol):
    """Carries a socket to a gate whose disk is quick."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate
        self.connection, _ = gate.connect()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self.connection.closed:
            self.connection.deliver(data)
        self.settle()

    def settle(self) -> None:
        """Write what there is to be written, until there is no more."""
        self.gate.clock.advance(0)
        self.gate.journal.store_all()
        if answer := self.connection.sent:
            self.connection.clear()
            self.transport.write(answer)
            asyncio.get_running_loop().call_soon(self.settle)
        elif self.connection.closed:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connection.lose()


def test_asyncio(gate):
    """The same on asyncio, over a socket."""

    async def run() -> list[bytes]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Server(gate), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with on_asyncio.connect(host, port, compress=True) as peer:
            async with peer.publisher("events") as publisher:
                await publisher.send_all([b'{"n":%d}' % n for n in range(5000)])
            found = [one async for one in peer.subscribe("check/count?n=5000")]
        server.close()
        return found

    assert asyncio.run(run()) == [b"%d" % n for n in range(5000)]
    assert sum(batch.count for batch in gate.journal.submitted) == 5000


def test_a_sender_on_asyncio(gate):
    """It connects again and again, and each element is stored once, in order."""
    servers: list[Server] = []

    def serve() -> Server:
        servers.append(Server(gate))
        return servers[-1]

    async def run() -> int:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()

        def again() -> Any:
            return on_asyncio.connect(host, port, name="meter")

        async with on_asyncio.Sender(again) as sender:
            for life in range(3):
                ids = range(life * 200, life * 200 + 200)
                sending = asyncio.ensure_future(
                    sender.send([b'{"n":%d}' % n for n in ids])
                )
                if life:
                    servers[-1].transport.abort()
                await sending
            connections = sender.connections
        server.close()
        return connections

    assert asyncio.run(run()) == len(servers) == 3
    found = [
        json.loads(one)["n"]
        for batch in gate.journal.submitted
        if batch.count
        for one in decode(batch.body).each()
    ]
    assert found == list(range(600))


def test_a_sender_on_asyncio_that_is_stopped(refusing):
    """While nobody answers it ends at once, and says what was not acknowledged."""

    async def run() -> str:
        def refused() -> Any:
            return on_asyncio.connect("127.0.0.1", refusing)

        sender = on_asyncio.Sender(refused)
        async with sender:
            sending = asyncio.ensure_future(sender.send([b"{}"]))
            while not sender.trouble:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0)
        with pytest.raises(Unacknowledged):
            await sending
        return sender.trouble

    assert "127" in asyncio.run(run())


def test_a_sender_on_asyncio_that_can_not_connect_at_all():
    """A mistake of the program is no outage: `send` raises it, now and later."""

    async def run() -> str:
        async with on_asyncio.Sender(lambda: on_asyncio.connect("::1", 70000)) as one:
            with pytest.raises(OverflowError):
                await one.send([b"{}"])
            with pytest.raises(OverflowError):
                await one.send([b"{}"])
        return one.trouble

    assert "65535" in asyncio.run(run())


def test_a_sender_on_asyncio_that_is_fenced(gate):
    """Another one of its name began later: it ends by itself, with an error."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Server(gate), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()

        def again() -> Any:
            return on_asyncio.connect(host, port, name="meter")

        async with on_asyncio.Sender(again) as old:
            await old.send([b"1"])
            async with on_asyncio.Sender(again) as new:
                await new.send([b"2"])
                with pytest.raises(Fenced):
                    await old.send([b"3"])
                await new.send([b"4"])
        server.close()

    asyncio.run(run())


def test_asyncio_no_one_there(refusing):
    """A port that nobody listens on is an OSError, at once."""

    async def run() -> None:
        async with on_asyncio.connect("127.0.0.1", refusing):
            pass

    with pytest.raises(OSError, match="127"):
        asyncio.run(run())


def test_who_waits_no_more_is_forgotten():
    """Timeouts on a quiet stream may come for months."""

    async def run() -> None:
        runtime = on_asyncio._Runtime(asyncio.get_running_loop())
        changed = Condition(runtime)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(changed.wait(), 0)
            waiting = asyncio.ensure_future(changed.wait())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.sleep(0)
        assert not changed._wakes
        waiting = asyncio.ensure_future(changed.wait())
        await asyncio.sleep(0)
        changed.notify_all()
        await waiting

    asyncio.run(run())
