"""Demand from end to end: a spool that nobody empties reaches the senders' own code."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import warm
from daemons import Daemon, archiving, listener
from deadlines import eventually, finish, rest
from gateway.protocols.rsio.client import Outbox
from gateway.protocols.rsio.client.on_asyncio import connect

WINDOW = 256
FILLING = "x" * 2000
SETTINGS: dict[str, Any] = {
    "listeners": [listener("reactive", "rsio", options={"window": WINDOW})],
    # Nothing may be small because it is compressed well.
    "spool": {"max_bytes": "2MiB", "roll_bytes": "256KiB", "compression": "none"},
    "journal": {"segment_bytes": "256KiB"},
}


class Program(threading.Thread):
    """A user's: `await publisher.send(…)` in a loop, on asyncio."""

    def __init__(self, address: tuple[str, int], count: int, name: str | None) -> None:
        super().__init__(daemon=True)
        self.returned = 0
        """So many `send`s have returned."""
        self.outbox = Outbox()
        self.failed: BaseException | None = None
        self.done = False
        self._address = address
        self._count = count
        self._name = name

    def run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as why:
            self.failed = why
            raise

    async def _main(self) -> None:
        async with connect(*self._address, name=self._name) as peer:
            async with peer.publisher("events", outbox=self.outbox) as publisher:
                for number in range(self._count):
                    event = {"id": number, "who": self._name, "more": FILLING}
                    await publisher.send(json.dumps(event).encode())
                    self.returned += 1
            self.done = True


class World:
    """A daemon that is full, and those that publish to it."""

    def __init__(self, daemon: Daemon, home: Path) -> None:
        self.daemon = daemon
        address = daemon.address("reactive")
        self.programs = [Program(address, 4000, None), Program(address, 4000, "meter")]
        for each in self.programs:
            each.start()
        self.acked = home / "sent.acked"
        self.sender = warm.start(
            [
                sys.executable, "-m", "gateway.cli", "send", "rsio",
                "{}:{}".format(*address), "--generate", "10000", "--json",
                "--packed", "512", "--patience", "100000", "--acked", str(self.acked),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def progress(self) -> tuple[int, ...]:
        """Whatever moves while anything does."""
        acked = self.acked.stat().st_size if self.acked.exists() else 0
        lsn = self.daemon.status()["journal"]["durable_lsn"]
        return (lsn, acked, *(each.returned for each in self.programs))

    def stuck(self) -> None:
        """Wait until the spool is full and everyone waits for demand."""

        def full() -> bool:
            return "spool.max_bytes" in (
                self.daemon.status()["journal"]["why_full"] or ""
            )

        def still() -> bool:
            before = self.progress()
            rest(1.0)
            _, acked, *_ = before  # whoever comes late has a first window, too
            waiting = all(each.outbox.unsent == 1 for each in self.programs)
            return waiting and acked > 0 and full() and self.progress() == before

        eventually(full, "the spool is full", 300)
        eventually(still, "nobody sends any more", 300)

    def assert_suspended(self) -> None:
        """Each program sits in a `send`, within a window of what is known to be safe."""
        for each in self.programs:
            outbox = each.outbox
            assert each.failed is None
            assert not each.done
            assert 0 < outbox.confirmed <= outbox.sent <= outbox.confirmed + WINDOW
            assert outbox.unsent == 1, "one element is in its hands, and no more"
            assert each.returned == outbox.sent
        assert self.sender.poll() is None

    def assert_flat(self, before: int) -> None:
        """They stay suspended, and that costs nothing."""
        still = self.progress()
        rest(3.0)
        assert self.progress() == still
        assert self.daemon.memory() - before < 8 << 20

    def finish(self) -> None:
        """Everyone comes to an end by itself, well."""
        for each in self.programs:
            each.join()
            assert each.failed is None
            assert each.done
        totals = json.loads(finish(self.sender, seconds=300)[0])
        assert totals["complete"]
        assert totals["resent"] == 0

    def kill(self) -> None:
        if self.sender.poll() is None:
            self.sender.kill()
        self.sender.communicate()

    def assert_there_once(self) -> None:
        """Every element, in its sender's order."""
        found: dict[str, list[Any]] = {}
        for row in self.daemon.rows():
            event = json.loads(row["payload"])
            who = event.get("who", "send")
            what = event["id"] if "who" in event else event["event"]["id"]
            found.setdefault(str(who), []).append(what)
        assert found.pop("None") == list(range(4000))
        assert found.pop("meter") == list(range(4000))
        sent = found.pop("send")
        assert len(sent) == len(set(sent)) == 10_000
        assert set(sent) == set(self.acked.read_text().split())
        assert not found


@pytest.fixture
def world(start, tmp_path) -> Iterator[World]:
    made = World(start(**SETTINGS), tmp_path)
    yield made
    made.kill()


@pytest.mark.fresh
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_full_spool_suspends_senders(world):
    """With nobody to take files away there is no demand, at no cost; when somebody
    does, again and again, everything arrives, once.
    """
    daemon = world.daemon
    world.stuck()
    world.assert_suspended()
    world.assert_flat(daemon.memory())
    with archiving(daemon):
        eventually(lambda: world.programs[0].returned > 1500, "it flows again")
    world.stuck()  # the next time is like the first
    world.assert_suspended()
    with archiving(daemon):
        world.finish()
    daemon.settled()
    daemon.terminate()
    world.assert_there_once()
