"""Rolling restarts of RS.io senders, with kill -9 of both sides.

A deployment starts a program before it ends the one before it: for a while two lives of
each sender, or ten, have one name, one token, or both.  The last that began publishes; the
others are told, whatever is killed meanwhile, and nothing that a gateway acknowledged to
any of them is lost or doubled.
"""

import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import script
from daemons import ROLLING, Daemon, listener, spawn
from deadlines import eventually, excerpt

SEED = int(os.environ.get("GATEWAY_KILL_SEED", "20261123"))
ROLLS = int(os.environ.get("GATEWAY_ROLLS", "8"))
"""About one a second; for a minute: 60."""

FLEETS = {
    "two-name": {"name": "meter"},
    "two-token": {"token": "secret of two"},
    "two-both": {"name": "meter", "token": "a shared secret"},
    "ten-name": {"name": "meters"},
    "ten-token": {"token": "secret of ten"},
    "ten-both": {"name": "meters", "token": "a shared secret"},
}
SENDERS = {"two": 1, "ten": 5}
"""Of one fleet in one program: twice as many while two programs run."""

# Writes down ids that were acknowledged, and which of its senders was told to stop.
PROGRAM = """
import json, sys
from twisted.internet import defer, endpoints, reactor, task
from gateway.protocols.rsio.client import CanNotResume
from gateway.protocols.rsio.client.on_twisted import connect
from gateway.protocols.rsio.client.sender import Sender

ports, fleets, home, life = json.loads(sys.argv[1]), json.loads(sys.argv[2]), *sys.argv[3:]
acked, told = (open(f"{home}/{life}.{name}", "a", buffering=1) for name in
               ("acked", "told"))

async def publish(who, options):
    port = ports["guarded" if "token" in options else "open"]
    target = endpoints.TCP4ClientEndpoint(reactor, "127.0.0.1", port)
    sender = Sender(lambda: connect(target, clock=reactor, **options), clock=reactor)
    sender.start()
    number = 0
    while True:
        ids = [f"{who}-{number + n}" for n in range(10)]
        number += 10
        try:
            await sender.send([json.dumps({"event": {"id": id}}).encode() for id in ids])
        except CanNotResume as why:
            print(who, why, file=told)
            return
        print("\\n".join(ids), file=acked)
        await task.deferLater(reactor, 0.05)

for fleet, (count, options) in fleets.items():
    for n in range(count):
        publishing = defer.ensureDeferred(publish(f"{fleet}.{life}.{n}", options))
        publishing.addErrback(lambda why: (why.printTraceback(), reactor.stop()))
reactor.run()
"""


class Program:
    """`PROGRAM`, running: one life of senders of all fleets."""

    def __init__(self, home: Path, life: int, ports: dict[str, int]) -> None:
        fleets = {
            fleet: (SENDERS[fleet.partition("-")[0]], who)
            for fleet, who in FLEETS.items()
        }
        self._home, self._life = home, life
        words = [json.dumps(ports), json.dumps(fleets), str(home), str(life)]
        self.process = spawn(script.words(PROGRAM, *words), home / "log")

    def _lines(self, name: str) -> list[str]:
        path = self._home / f"{self._life}.{name}"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def acknowledged(self) -> list[str]:
        """Ids."""
        return self._lines("acked")

    def told(self) -> dict[str, str]:
        """Why, by the sender that must not go on."""
        found = [line.partition(" ") for line in self._lines("told")]
        return {who: why for who, _, why in found}

    def progress(self) -> Counter[str]:
        """How much each fleet was acknowledged."""
        assert self.process.poll() is None, "a sender failed"
        return Counter(each.partition(".")[0] for each in self.acknowledged())

    def goes_on(self, what: str) -> None:
        """Wait until each fleet is acknowledged more than now."""
        before = self.progress()
        eventually(
            lambda: all(self.progress()[fleet] > before[fleet] for fleet in FLEETS),
            what,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def ports(free_port) -> dict[str, int]:
    """Of the listener without tokens, and of that with."""
    return {"open": free_port(), "guarded": free_port()}


@pytest.fixture
def daemon(prepare, ports) -> Daemon:
    """Not started yet; it rolls all the time."""
    tokens = {who["token"]: fleet for fleet, who in FLEETS.items() if "token" in who}
    guarded = {"tokens": {fleet: token for token, fleet in tokens.items()}}
    return prepare(
        listeners=[
            listener(
                name, "rsio", listen=f"tcp:127.0.0.1:{port}",
                options={"window": 64, **(guarded if name == "guarded" else {})},
            )
            for name, port in ports.items()
        ],
        **ROLLING,
    )  # fmt: skip


@pytest.fixture
def begin(tmp_path, ports) -> Iterator[Callable[[], Program]]:
    """Starts the next life of the program; all end with the test."""
    home = tmp_path / "senders"
    home.mkdir()
    programs: list[Program] = []

    def begin() -> Program:
        programs.append(Program(home, len(programs), ports))
        return programs[-1]

    yield begin
    for program in programs:
        program.kill()
    print(excerpt(home / "log"))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_rolling_restarts_while_both_sides_are_killed(daemon, begin):
    """Every acknowledged element is stored once, all of a life without a hole; of those
    that live on, all but the last of each name and token are told.
    """
    print(f"GATEWAY_KILL_SEED={SEED}")
    chance = random.Random(SEED)
    daemon.start()
    old = begin()
    lives = [old]
    old.goes_on("the first life publishes")
    for roll in range(ROLLS):
        # Each of the four in turn, in an order that the seed says.
        victims = ("nobody", "gateway", "sender", "both")[(roll + SEED) % 4]
        _all_but_one_are_told(old)
        new = begin()
        lives.append(new)
        time.sleep(chance.uniform(0.0, 2.0))  # the new one begins in about one
        if victims in ("gateway", "both"):
            daemon.kill()
        if victims in ("sender", "both"):
            old.kill()
        if victims in ("gateway", "both"):
            time.sleep(chance.uniform(0.0, 0.3))
            daemon.start()
        new.goes_on("the new life publishes")
        if victims in ("nobody", "gateway"):
            _all_are_told(old)
        old.kill()
        old = new
    new = begin()
    lives.append(new)
    new.goes_on("the last life publishes")
    _all_are_told(old)
    _all_but_one_are_told(new)
    old.kill()
    new.kill()
    daemon.settled()
    daemon.terminate()
    _acknowledged_once(daemon.rows(), lives)


def _senders(program: Program) -> int:
    assert program.process.poll() is None
    return sum(SENDERS[fleet.partition("-")[0]] for fleet in FLEETS)


def _all_are_told(program: Program) -> None:
    """A later life has begun: each of this one hears of it."""
    count = _senders(program)
    eventually(lambda: len(program.told()) == count, "all senders are told")
    assert all(why.startswith("E412") for why in program.told().values())


def _all_but_one_are_told(program: Program) -> None:
    """Of those that began together the last of each fleet goes on."""
    count = _senders(program) - len(FLEETS)
    eventually(lambda: len(program.told()) == count, "all but one are told")
    program.goes_on("one of each fleet goes on")
    told = Counter(who.partition(".")[0] for who in program.told())
    assert told == Counter({f: SENDERS[f.partition("-")[0]] - 1 for f in FLEETS}), (
        "one of each fleet is left"
    )


def _acknowledged_once(rows: list[dict[str, Any]], lives: list[Program]) -> None:
    stored: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        assert row["flaw"] is None
        who, _, number = json.loads(row["payload"])["event"]["id"].rpartition("-")
        stored[who].append(int(number))
    for who, numbers in stored.items():
        assert numbers == list(range(len(numbers))), f"{who}: a double, or a hole"
    for program in lives:
        acknowledged = program.acknowledged()
        assert acknowledged
        for each in acknowledged:
            who, _, number = each.rpartition("-")
            assert int(number) < len(stored[who]), f"{each} was acknowledged"
