"""Connections of the published Pravega client that break at the worst moments, and
producers that come back: every event is stored once.
"""

import asyncio
import contextlib
import os
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.protocols.pravega.client import DraftWriter, V17Writer
from making import Make
from pravega_socket import RESET, produce

SEED = int(os.environ.get("GATEWAY_KILL_SEED", "20261121"))
HEADER = struct.Struct(">iI")
ASKED = {4: "append", 89: "append", 9: "read"}
ANSWERED = {7: "append", 10: "read"}

FATES = ("before", "within", "behind", "within the answer")
"""Where the connection is reset: before the request gets through, in its middle, when
it is answered and the answer is not yet through, in the middle of the answer."""


class Cutting:
    """A way to the gateway on which some requests meet a fate."""

    def __init__(self, port: int, target: int) -> None:
        self._target = target
        self.fates: dict[str, Iterator[str]] = {}
        """By kind of request; an empty fate lets it through."""
        self.cuts: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._serving = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", port)
        )
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there = await asyncio.open_connection("127.0.0.1", self._target)
        doomed: dict[str, str] = {}

        async def ask() -> None:
            async for kind, frame in frames(reader):
                what = ASKED.get(kind, "")
                fate = next(self.fates.get(what, iter(())), "")
                if fate:
                    doomed[what] = fate
                    self.cuts[f"{what}: {fate}"] += 1
                if fate == "before":
                    return
                if fate == "within":
                    there[1].write(frame[: len(frame) // 2])
                    await there[1].drain()
                    await asyncio.sleep(0.01)
                    return
                there[1].write(frame)

        async def answer() -> None:
            async for kind, frame in frames(there[0]):
                fate = doomed.get(ANSWERED.get(kind, ""))
                if fate == "behind":
                    return
                if fate == "within the answer":
                    writer.write(frame[: len(frame) // 2])
                    await writer.drain()
                    await asyncio.sleep(0.01)
                    return
                writer.write(frame)

        both = [asyncio.ensure_future(ask()), asyncio.ensure_future(answer())]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for each in both:
            each.cancel()
        for end in (writer, there[1]):
            wire = end.get_extra_info("socket")
            with contextlib.suppress(OSError):
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.transport.abort()


async def frames(reader: asyncio.StreamReader) -> Any:
    """Kinds and whole frames, until the connection ends."""
    with contextlib.suppress(asyncio.IncompleteReadError, OSError):
        while True:
            header = await reader.readexactly(HEADER.size)
            kind, length = HEADER.unpack(header)
            yield kind, header + await reader.readexactly(length)


def fates(chance: random.Random, turns: int) -> Iterator[str]:
    """Every fate so often, in any order, and never two at once."""
    drawn = list(FATES) * turns
    chance.shuffle(drawn)
    for fate in drawn:
        yield fate
        yield from [""] * chance.randrange(1, 4)


@pytest.fixture
def cut(serve, free_port) -> Iterator[Make[tuple[Any, Cutting]]]:
    """A daemon, and a `Cutting` where its controller sends clients."""
    made: list[Cutting] = []

    def cut() -> tuple[Any, Cutting]:
        port = free_port()
        streams = serve(options={"advertise": f"127.0.0.1:{port}"})
        made.append(Cutting(port, streams.port))
        return streams, made[-1]

    yield cut
    for each in made:
        each.close()


@pytest.mark.needs_pravega
def test_connections_reset_around_the_store(cut, pravega_client, gateway_command):
    """Appends whose connection is reset before the store, within, behind it, and in the
    acknowledgement; reads as well.  Every event is once in the segments as they are
    read back, and once in the files, in order for each key; the audit agrees.
    """
    print("seed", SEED)
    chance = random.Random(SEED)
    streams, cutting = cut()
    client = pravega_client(streams.controller)
    manager = client.manager
    manager.create_scope("s")
    manager.create_stream("s", "t", 2)
    events = [b"event %d" % n for n in range(400)]
    keyed = [(event, str(n % 4)) for n, event in enumerate(events)]
    cutting.fates["append"] = fates(chance, 5)
    client.whole.write(manager.create_writer("s", "t"), keyed[:100])
    quick = manager.create_writer("s", "t", 50)
    client.whole.write(quick, keyed[100:])
    quick.flush()
    transaction = manager.create_transaction_writer("s", "t", 1).begin_txn()
    cutting.fates["append"] = fates(chance, 1)
    together = [b"together %d" % n for n in range(20)]
    client.whole.write(transaction, [(event, "k") for event in together])
    transaction.commit()

    cutting.fates["read"] = fates(chance, 2)
    reader = manager.create_reader_group("g", "s", "t").create_reader("r")
    everything = Counter(events + together)
    found = client.whole.read(reader, len(everything))
    print(dict(cutting.cuts))
    assert sum(cutting.cuts.values()) >= 20
    for fate in FATES:
        assert cutting.cuts[f"append: {fate}"]
    assert Counter(found) == everything
    rows = streams.payloads()
    assert Counter(rows) == everything
    for key in range(4):
        mine = events[key::4]
        assert [each for each in rows if each in set(mine)] == mine
    audit = gateway_command("audit", "--data-dir", streams.daemon.data)
    assert audit.returncode == 0, audit.stdout


# -- our own producers ---------------------------------------------------------------

SEGMENT = "plant/hall/0.#epoch.0"
W = b"0123456789abcdef"


@pytest.mark.parametrize("kind", [V17Writer, DraftWriter])
def test_a_producer_that_starts_anew(serve, kind):
    """With the same writer id and the same numbers it adds nothing twice; not when it
    vanished in the middle, nor when the gateway was killed in between.
    """
    streams = serve()
    events = [b"event %d" % n for n in range(1000)]
    produce(kind(W, SEGMENT), streams.port, events[:400], 200)
    produce(kind(W, SEGMENT), streams.port, events[:700], 500)
    streams.daemon.kill()
    streams.daemon.start()
    produce(kind(W, SEGMENT), streams.port, events, 1000)
    produce(kind(W, SEGMENT), streams.port, events, 1000)
    assert streams.payloads() == events
