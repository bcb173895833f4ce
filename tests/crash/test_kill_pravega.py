"""kill -9 under a published Pravega client that writes; then every event is there once.

What the client was told is stored must be there; what it was not told it sends again by
itself, to the daemon's next life; and nothing may be twice, in the segments as they are
read back or in the files.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

SEED = int(os.environ.get("GATEWAY_KILL_SEED", "20261121"))
KILLS = 20
LOTS = (300, 600, 1500, 100)
"""Events: by writers with more and more in flight, and in a transaction."""

pytestmark = [pytest.mark.long, pytest.mark.needs_pravega]


class Relay:
    """Ports that never close: who connects while the daemon is down waits for it.

    The client would wait for ten seconds each time that nobody is there.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def to(self, target: int, port: int) -> None:
        async def serve(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            while True:
                with contextlib.suppress(OSError):
                    there = await asyncio.open_connection("127.0.0.1", target)
                    break
                await asyncio.sleep(0.02)
            await asyncio.wait(
                [
                    asyncio.ensure_future(carry(reader, there[1])),
                    asyncio.ensure_future(carry(there[0], writer)),
                ]
            )

        made = asyncio.start_server(serve, "127.0.0.1", port)
        asyncio.run_coroutine_threadsafe(made, self._loop).result(10)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one of them is gone."""
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture
def relay() -> Iterator[Relay]:
    made = Relay()
    yield made
    made.close()


def test_kill_the_daemon_while_a_client_writes(
    serve: Callable[..., Any],
    pravega_client: Callable[..., Any],
    gateway_command: Callable[..., Any],
    free_port: Callable[[], int],
    relay: Relay,
) -> None:
    """Twenty kills at random instants: each event is read back once and in the files once,
    in order for each key; a transaction is there whole, or not at all.
    """
    print("seed", SEED)
    chance = random.Random(SEED)
    store, controller = free_port(), free_port()
    streams = serve(
        options={"advertise": f"127.0.0.1:{store}"},
        journal={"segment_bytes": "64KiB"},
        spool={"roll_interval": "300ms"},
    )
    daemon = streams.daemon
    relay.to(streams.port, store)
    relay.to(streams.controller_port, controller)
    client = pravega_client(f"tcp://127.0.0.1:{controller}")
    manager = client.manager
    manager.create_scope("s")
    manager.create_stream("s", "t", 2)
    writers = [manager.create_writer("s", "t", window) for window in (0, 20, 100)]
    together = manager.create_transaction_writer("s", "t", 1)
    events: list[bytes] = []
    transactions: list[tuple[list[bytes], str]] = []
    interrupted = 0
    for life in range(KILLS):
        kind = life % 4
        lot = [b"%d/%d" % (life, n) for n in range(LOTS[kind])]
        keyed = [(event, str(n % 4)) for n, event in enumerate(lot)]
        if kind == 3:
            client.begin(-1, "transact", together, keyed)
        else:
            events += lot
            client.begin(-1, "write", writers[kind], keyed)
        time.sleep(chance.uniform(0.0, 0.15))
        interrupted += client.waits
        daemon.kill()
        daemon.start()
        found = client.finish()
        if kind == 3:
            transactions.append((lot, found))
    for writer in writers:
        writer.flush()
    print(f"{interrupted} of {KILLS} kills while it wrote")
    assert interrupted > KILLS // 2

    rows = streams.payloads()
    stored = Counter(rows)
    for lot, failure in transactions:
        there = [event for event in lot if stored[event]]
        print(f"of {len(lot)} events {len(there)}: {failure or 'committed'}")
        assert there in ([], lot)
        assert there or failure
        events += there
    assert stored == Counter(events)
    for key in range(4):
        assert_in_order([event for event in rows if number(event)[1] % 4 == key])
    reader = manager.create_reader_group("g", "s", "t").create_reader("r")
    assert Counter(client.whole.read(reader, len(events))) == stored
    audit = gateway_command("audit", "--data-dir", daemon.data)
    assert audit.returncode == 0, audit.stdout


def number(event: bytes) -> tuple[int, int]:
    life, _, n = event.partition(b"/")
    return int(life), int(n)


def assert_in_order(events: list[bytes]) -> None:
    """Of each life: three writers go on side by side."""
    for life in range(KILLS):
        mine = [number(event) for event in events if number(event)[0] == life]
        assert mine == sorted(mine)
