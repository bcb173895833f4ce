"""go-lumber's client, which is Filebeat's, while the gateway holds its senders back.

`go_client/main.go` sends as Filebeat does: windows of 2048, two unacknowledged, and after
a timeout it connects again and sends again.  However long the hold, it has no reason to:
one connection, nothing twice.

A hold means something when the client's timeout passes several times in it.  `make test`
has short ones; `make long ONLY=pressure` has Filebeat's 30 s and holds of minutes.
"""

import contextlib
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daemons import Daemon, archiving, listener, tls
from deadlines import eventually, finish
from gateway.protocols.pravega import wire_segments as ws
from gateway.protocols.pravega.wire import (
    AppendBlockEnd,
    AppendSetup,
    DataAppended,
    SetupAppend,
)
from making import Make
from pravega_socket import Client
from programs import go_program

pytestmark = [pytest.mark.slow, pytest.mark.needs_go, pytest.mark.timeout(900)]

MiB = 1 << 20
FULL = os.environ.get("PRESSURE") == "full"
TIMEOUT = 30 if FULL else 5
"""Seconds after which the client gives up a connection."""
HOLD = 180 if FULL else 16
"""Seconds for which a full spool stays as it is."""
DISK_HOLD = 90 if FULL else 16
EVENTS = 98_304 if FULL else 20_480
"""Of each sender: more than a spool takes."""
PROJECT = Path(__file__).with_name("go_client")

SMALL = {
    "spool": {"max_bytes": "1MiB", "roll_bytes": "256KiB", "compression": "none"},
    "journal": {"segment_bytes": "256KiB"},
}
"""A spool that is full at once, and of which nothing is small for being compressed."""
EVENT = b"\0\0\0\0\0\0\0\4four"


@pytest.fixture(scope="session")
def go_client() -> Path:
    """The client's program."""
    return go_program(PROJECT)


class Gate:
    """A daemon that will hold its senders back, and all who have to do with it."""

    def __init__(self, daemon: Daemon, program: Path, gateway_command: Make) -> None:
        self.daemon = daemon
        self.senders: dict[str, subprocess.Popen[str]] = {}
        self._program = program
        self._gateway_command = gateway_command

    def send(self, name: str, *more: object) -> None:
        words = {
            "-address": "{}:{}".format(*self.daemon.address()),
            "-sender": name,
            "-events": EVENTS,
            "-timeout": f"{TIMEOUT}s",
        }
        command = [*(each for pair in words.items() for each in pair), *more]
        self.senders[name] = subprocess.Popen(
            [str(self._program), *map(str, command)], stdout=subprocess.PIPE, text=True
        )

    def write_to_a_segment(self) -> None:
        """An event that a reader will ask for."""
        client = Client(self.daemon.address("streams"))
        client.ask(ws.CreateSegment(1, "s", 0, 0), ws.SegmentCreated)
        client.ask(SetupAppend(1, b"w" * 16, "s"), AppendSetup)
        client.ask(AppendBlockEnd(b"w" * 16, 12, EVENT, 1, 1, 9), DataAppended)
        client.close()

    @property
    def why_full(self) -> str:
        return self.daemon.status()["journal"]["why_full"] or ""

    def held(self, *reasons: str) -> None:
        """Wait until the daemon holds its senders back, for one of these reasons."""
        eventually(
            lambda: any(each in self.why_full for each in reasons),
            f"held back: {reasons}",
        )

    def stays(self, seconds: int) -> None:
        """So it stays, and meanwhile everyone else is served: a tap now and in the end,
        as it is a program to start, readers all the time.
        """
        end = time.monotonic() + seconds
        self.assert_tap_answers()
        while time.monotonic() < end:
            self.assert_pravega_answers()
            for name, sender in self.senders.items():
                assert sender.poll() is None, f"{name} has ended"
            assert self.why_full
            time.sleep(0.2)
        self.assert_tap_answers()
        assert self.daemon.listener()["connections"] == len(self.senders)

    def assert_tap_answers(self) -> None:
        """A new subscriber gets what is durable."""
        address = "{}:{}".format(*self.daemon.address("readers"))
        durable = self.daemon.status()["journal"]["durable_lsn"]
        count = min(durable, 1000)  # a disk may be full before there are more
        words = ("tap", address, "--from", 1, "--count", count)
        done = self._gateway_command(*words)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == count

    def assert_pravega_answers(self) -> None:
        """A new connection is told what there is, and reads it."""
        client = Client(self.daemon.address("streams"))
        about = client.ask(ws.GetStreamSegmentInfo(1, "s"), ws.StreamSegmentInfo)
        assert about.write_offset == len(EVENT)
        read = client.ask(ws.ReadSegment("s", 0, 100), ws.SegmentRead)
        assert bytes(read.data) == EVENT
        client.close()

    def finish(self, events: int = EVENTS) -> None:
        """Every sender comes to its end on its first connection, having sent all once."""
        for name, sender in self.senders.items():
            totals = json.loads(finish(sender, seconds=300)[0])
            print(name, totals)
            assert totals["errors"] == []
            assert totals["connections"] == 1
            assert totals["resent"] == 0
            assert totals["acknowledged"] == totals["events"] == events

    def assert_there_once(self, events: int = EVENTS) -> None:
        """Each event of each sender, in its order, over one connection."""
        found: dict[str, list[int]] = {name: [] for name in self.senders}
        sessions: dict[str, set[str]] = {name: set() for name in self.senders}
        for row in self.daemon.rows():
            if row["listener"] != "beats":
                continue
            event = json.loads(row["payload"])
            found[event["sender"]].append(event["id"])
            sessions[event["sender"]].add(row["session"])
        for name, ids in found.items():
            assert max(Counter(ids).values()) == 1, f"{name}: doubled"
            assert ids == list(range(events))
            assert len(sessions[name]) == 1

    def kill(self) -> None:
        for each in self.senders.values():
            each.kill()
            each.communicate()


@pytest.fixture
def gate(go_client, prepare, gateway_command) -> Iterator[Make[Gate]]:
    """A gate whose daemon is not started yet."""
    made: list[Gate] = []

    def gate(beats: dict[str, Any] | None = None, **settings: Any) -> Gate:
        options = {"keepalive_interval": "3s" if FULL else "1s"}
        beats = beats or {}
        beats = {**beats, "options": options | beats.get("options", {})}
        listeners = [
            listener("beats", "lumberjack", **beats),
            listener("readers", "rsio", options={"publish": ["tap", "events"]}),
            listener("streams", "pravega"),
        ]
        daemon = prepare(listeners=listeners, **settings)
        made.append(Gate(daemon, go_client, gateway_command))
        return made[-1]

    yield gate
    for each in made:
        each.kill()


def full_for_a_while(gate: Gate, *names: str, more: tuple[object, ...] = ()) -> None:
    """Nobody empties the spool; then somebody does."""
    gate.daemon.start()
    gate.write_to_a_segment()
    for name in names:
        gate.send(name, *more)
    gate.held("spool.max_bytes")
    gate.stays(HOLD)
    assert gate.daemon.log.count("Senders are held back since") == 1
    with archiving(gate.daemon):
        gate.finish()
        gate.daemon.settled()
    gate.assert_there_once()


@pytest.mark.smoke
def test_a_full_spool(gate):
    """One connection, nothing sent again, everything there once; taps and Pravega's
    readers are answered meanwhile.
    """
    full_for_a_while(gate(**SMALL), "a")


def test_a_full_spool_over_tls(gate, authority):
    """The same where the keepalives are TLS records."""
    pair = authority.issue("localhost")
    gated = gate({"tls": tls(pair)}, **SMALL)
    full_for_a_while(gated, "a", more=("-ca", authority.ca))


def test_a_full_spool_and_a_short_stall_timeout(gate):
    """Who knows why it waits gives nobody up for waiting."""
    options = {"stall_timeout": "20s" if FULL else "3s"}
    full_for_a_while(gate({"options": options}, **SMALL), "a")


def test_a_full_spool_and_large_windows(gate):
    """Of 2 MB each as they travel: their sender can finish writing them."""
    full_for_a_while(gate(**SMALL), "a", "b", more=("-size", 2000))


def test_four_senders_and_a_full_spool(gate):
    """Nobody is given up for others."""
    full_for_a_while(gate(**SMALL), "a", "b", "c", "d")


@pytest.mark.parametrize("level", [3, 0])
def test_windows_that_are_too_large_for_a_batch(gate, authority, level):
    """2048 events of 20 KB, of which a batch may have a tenth: compressed, and bare.

    Each window is acknowledged, on one connection, and nothing is sent again; over TLS.
    """
    pair = authority.issue("localhost")
    gated = gate({"tls": tls(pair), "limits": {"inflated_bytes": "2MiB"}})
    gated.daemon.start()
    words = ("-size", 20_000, "-repeat", 20, "-level", level, "-ca", authority.ca)
    gated.send("a", "-events", 3 * 2048, *words)
    gated.finish(3 * 2048)
    gated.daemon.settled()
    gated.assert_there_once(3 * 2048)
    parts = gated.daemon.status()["lumberjack"]
    assert parts["parts"] > 3 * 8
    assert parts["cut_events"] == 0


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path, int], None]]:
    """Mount a file system of so many bytes."""
    mounted: list[Path] = []

    def mount(path: Path, size: int) -> None:
        path.mkdir(parents=True)
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no right to mount a small file system: {done.stderr.strip()}")
        mounted.append(path)

    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_disk(small_disk, gate):
    """The disk has room for a part of what comes, and then somebody takes the rest of
    it: the same.
    """
    gated = gate(journal={"segment_bytes": "1MiB"}, spool={"compression": "none"})
    daemon = gated.daemon
    small_disk(daemon.data, 192 * MiB)
    ballast = daemon.data / "ballast"
    ballast.write_bytes(bytes(187 * MiB))
    daemon.start()
    gated.write_to_a_segment()
    gated.send("a")
    gated.held("the disk of", "No space left")
    with ballast.open("ab", buffering=0) as more, contextlib.suppress(OSError):
        while True:
            more.write(bytes(4096))
    gated.stays(DISK_HOLD)
    ballast.unlink()
    gated.finish()
    daemon.settled()
    gated.assert_there_once()
