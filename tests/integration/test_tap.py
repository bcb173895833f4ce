"""`gateway tap` beside a daemon, as a user runs it."""

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest

import script
import warm
from daemons import Daemon, listener
from deadlines import eventually, finish, next_line
from making import Make
from seaweeds import settings_of
from small_s3 import small_s3

# Whoever starts the tests may ignore SIGINT, as nohup and `&` in a script do, and what
# is ignored is inherited.
_START = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from gateway.cli import main
sys.exit(main())
"""
_READERS = listener(
    "readers", "rsio", options={"subscribe": ["events"], "publish": ["tap", "events"]}
)


class Gate:
    """A daemon with a port for readers, and what feeds and reads it."""

    def __init__(self, daemon: Daemon, command: Make) -> None:
        self.daemon = daemon
        self.command = command
        self.address = "{}:{}".format(*daemon.address("readers"))
        self.processes: list[subprocess.Popen[bytes]] = []

    def send(self, count: int) -> None:
        beats = "{}:{}".format(*self.daemon.address("beats"))
        done = self.command("send", "lumberjack", beats, "--generate", count)
        assert done.returncode == 0, done.stderr

    def tap(self, *words: object) -> subprocess.Popen[bytes]:
        process = warm.start(
            script.words(_START, "tap", self.address, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.processes.append(process)
        return process


@pytest.fixture
def gate(start, gateway_command) -> Iterator[Gate]:
    gate = Gate(
        start(listeners=[listener("beats", "lumberjack"), _READERS]), gateway_command
    )
    yield gate
    for process in gate.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def status(tap: subprocess.Popen[bytes]) -> int | None:
    """The exit status, once it has ended; its output is not read."""
    eventually(lambda: tap.poll() is not None, "it has ended")
    return tap.returncode


def lsns(output: bytes) -> list[int]:
    return [json.loads(line)["lsn"] for line in output.splitlines()]


def test_all_events_from_the_first_on(gate):
    """Published, journalled and still to come: each lsn once, then the end."""
    gate.send(3000)
    gate.daemon.settled()
    gate.send(3000)
    reading = gate.tap("--from", 1, "--count", 7000)
    first = next_line(reading)
    gate.send(1000)
    rest, errors = finish(reading)
    assert reading.returncode == 0, errors
    assert lsns(first.encode() + rest) == list(range(1, 7001))


def test_all_events_where_the_spool_is_a_bucket(start, gateway_command):
    """Also what a job has taken out of it since, and over a restart: there are copies here."""
    with small_s3() as server:
        spool = {
            "directory": "s3://gateway/spool",
            "s3": settings_of(server.url),
            "roll_interval": "100ms",
        }
        beats = listener("beats", "lumberjack")
        daemon = start(ack="spool", listeners=[beats, _READERS], spool=spool)
        Gate(daemon, gateway_command).send(3000)
        daemon.settled(3000)
        assert not list(daemon.spool.glob("events-*"))
        for name in [name for name in server.objects if "/events-" in name]:
            del server.objects[name]
        daemon.restart()
        gate = Gate(daemon, gateway_command)
        gate.send(1000)
        tap = gate.tap("--from", 1, "--count", 4000)
        output, errors = finish(tap)
        assert tap.returncode == 0, errors
        assert lsns(output) == list(range(1, 4001))


def test_interrupted(gate):
    """^C ends it at once, without a trace, and the gateway lets go."""
    gate.send(1)
    tap = gate.tap("--from", 1)
    next_line(tap)
    tap.send_signal(signal.SIGINT)
    _, errors = finish(tap)
    assert (tap.returncode, errors) == (130, b"")


@pytest.mark.fresh
def test_a_stuck_reader(gate):
    """Nobody reads its output: it asks for no more, and still answers ^C."""
    tap = gate.tap("--from", 1)
    gate.send(20_000)
    before = gate.daemon.memory()
    gate.send(20_000)
    assert gate.daemon.memory() - before < 64 << 20
    tap.send_signal(signal.SIGINT)
    assert status(tap) == 130
