"""The outbox: files of pushes become pushes, once, and are counted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.task import Clock

from doubles import FakeAgent
from gateway.protocols.pomelo.handshake import PROFILES, Terms
from gateway.protocols.pomelo.lobby.lobby import Lobby
from gateway.protocols.pomelo.options import Lobby as LobbyOptions
from gateway.protocols.pomelo.push.folder import Folder
from gateway.protocols.pomelo.push.outbox import Outbox
from gateway.protocols.pomelo.registry import Registry
from gateway.protocols.pomelo.routes import Definitions
from gateway.sdk.http_client import Backend
from gateway.testing import ManualJournal

LINE = b'{"route":"r","body":{},"uid":"a"}\n'


class OneThread(Clock):
    """A reactor whose threads are done before it looks."""

    def getThreadPool(self) -> OneThread:
        return self

    def callInThreadWithCallback(
        self, then: Callable[[bool, Any], None], work: Callable[[], Any]
    ) -> None:
        then(True, work())

    def callFromThread(self, call: Callable[..., None], *arguments: Any) -> None:
        call(*arguments)


def made(folder: Folder, *clock: Any) -> tuple[Outbox, Registry, OneThread]:
    """An outbox of a gateway that is alone, its clients and its reactor."""
    registry, reactor = Registry(), OneThread()
    lobby = Lobby("gw-1", registry, reactor)
    return Outbox(folder, lobby, ManualJournal(), reactor, *clock), registry, reactor


def test_what_became_of_files_and_rows(folder, put):
    """Files that were pushed or set aside, rows that were pushes or were not."""
    running, registry, reactor = made(folder)
    running.start()
    put("a.json", LINE * 300 + b'{"route":"","body":{},"uid":"a"}\n')
    put("b.json", b"{")
    put("c.json", LINE)
    reactor.pump([0.2, 0, 0.2])
    running.stop()
    outcomes = {"sent": 0, "dropped": 0, "nobody": 301, "refused": 1, "expired": 0}
    assert registry.outcomes == {**outcomes, "unproven": 0}
    assert (running.files, running.folder.set_aside) == (2, 1)
    assert running.folder.remembered == 2
    assert (running.rows, running.refused) == (302, 1)
    assert reactor.getDelayedCalls() == []


def test_a_row_for_nobody_is_reported(folder, put):
    """It counts as refused, and reaches nobody."""
    running, registry, reactor = made(folder)
    running.start()
    put("a.json", b'{"route":"r","body":{},"uid":null}\n' + LINE)
    reactor.pump([0.2, 0])
    running.stop()
    assert (running.rows, running.refused) == (2, 1)
    assert registry.outcomes["nobody"] == 1


def test_rows_for_the_clients_of_other_gateways(folder, put, logged):
    """They go to each of the lobby in their order, some hundreds in a call, without those
    that could not be pushed here; the log says which gateway missed some, and why.
    """
    registry, reactor = Registry(), OneThread()
    agents: dict[str, FakeAgent] = {}

    def connect(address: str, options: LobbyOptions, reactor: Any) -> Backend:
        agents[address] = agent = FakeAgent()
        return Backend(address, reactor, seconds=5, requests=1, agent=agent)

    lobby = Lobby("gw-1", registry, reactor, connect)
    lobby.configure(LobbyOptions(gateways=["http://gw-2", "http://gw-3"]))
    running = Outbox(folder, lobby, ManualJournal(), reactor)
    lines = [
        b'{"route":"r","body":%d,"uid":%s}\n' % (n, b'"a"' if n % 100 else b"null")
        for n in range(600)
    ]
    put("a.json", b"".join(lines))
    running.start()
    reactor.pump([0.2] + [0] * 9)
    calls = []
    for fails in (False, True, False):
        said = {"gateway": "gw-2", "run": "2", "counts": {"sent": 1, "dropped": 0}}
        assert all(len(agent.asked) == len(calls) + 1 for agent in agents.values())
        calls.append(agents["http://gw-3"].asked[-1]["rows"])
        agents["http://gw-2"].answer(200, said)
        if fails:
            agents["http://gw-3"].fail(Refused())
        else:
            agents["http://gw-3"].answer(200, said | {"gateway": "gw-3", "run": "3"})
        reactor.pump([0] * 9)
    running.stop()
    pushed = [row["push"]["body"] for rows in calls for row in rows]
    assert pushed == [n for n in range(600) if n % 100]
    assert max(map(len, calls)) <= 256
    assert (running.files, running.rows, running.refused) == (1, 600, 6)
    assert lobby.outcomes == {"answered": 5, "refused": 0, "away": 1}
    [missed] = [one["missed"] for one in logged if "missed" in one]
    assert missed.startswith("http://gw-3 ")
    assert "refused" in missed


@pytest.mark.parametrize("retention", [0.0, 3600.0])
def test_a_push_that_waited_too_long(open_folder, put, logged, retention):
    """… reaches nobody any more; the log and the counters say how many did not."""
    folder = open_folder(retention=retention)
    running, registry, reactor = made(folder, lambda: 1000.0)
    clients = Clients(registry, 1)
    line = b'{"route":"r","body":{},"all":true,"ttl":%b}\n'
    path = put("a.json", line % b"60" + line % b"61.5" + line % b"null" + line % b"0")
    os.utime(path, (939, 939))
    running.start()
    reactor.pump([0.2, 0])
    running.stop()
    assert clients.pushed == 2
    assert registry.outcomes["expired"] == running.expired == 2
    assert running.refused == 0
    [told] = [event for event in logged if event.get("expired")]
    assert (told["expired"], told["count"]) == (2, 4)


def test_a_directory_that_is_none(folder, put, logged, tmp_path):
    """… has one line in the log, however often one looks, and one more the next time."""
    outbox = tmp_path / "outbox"
    running, _, reactor = made(folder)
    running.start()
    for times in (1, 2):
        shutil.rmtree(outbox)
        outbox.touch()
        reactor.pump([0.2] * 5)
        assert [bool(event.get("why")) for event in logged].count(True) == times
        outbox.unlink()
        put("a.json", LINE)
        reactor.pump([0.2] * 2)
    running.stop()


def test_what_was_kept_goes_in_time(open_folder, put, tmp_path):
    """Those that are kept may be many: they are looked at a hundred times in `retention`."""
    running, _, reactor = made(open_folder(retention=86_400.0))
    running.start()
    put("a.json", LINE)
    reactor.pump([864.0])
    [kept] = (tmp_path / "outbox" / ".done").iterdir()
    kept = kept.rename(kept.with_name("1-a.json"))
    reactor.pump([10.0] * 80)
    assert kept.exists()
    reactor.pump([10.0] * 10)
    running.stop()
    assert not kept.exists()


def test_rows_that_are_no_pushes(folder, put):
    """Answers and changes of groups; one that nobody waits for is for nobody."""
    running, registry, reactor = made(folder)
    Clients(registry, 1)
    running.start()
    put(
        "a.json",
        b'{"join":"room","session":"s0"}\n{"session":"s9","id":7,"body":1}\n'
        b'{"session":"s9","id":7,"body":x}\n'.replace(b"x", b'"{"'),
    )
    reactor.pump([0.2, 0])
    running.stop()
    assert dict(registry.groups.sizes()) == {"room": 1}
    assert registry.outcomes["nobody"] == 1
    assert (running.rows, running.refused) == (3, 1)


class Stepwise(OneThread):
    """What is to be called at once is called by `take_turn`."""

    def __init__(self) -> None:
        super().__init__()
        self._due: list[Callable[[], object]] = []

    def callLater(
        self,
        delay: float,
        callable: Any,  # noqa: A002 - as Clock has it
        *args: Any,
        **kw: Any,
    ) -> Any:
        if delay:
            return super().callLater(delay, callable, *args, **kw)
        self._due.append(lambda: callable(*args, **kw))
        return None

    def take_turn(self) -> None:
        [call] = self._due
        self._due = []
        call()


class Clients:
    """Many who are connected, as `registry.Member`."""

    def __init__(self, registry: Registry, count: int) -> None:
        self.pushed = 0
        self.terms = Terms(PROFILES["pinus"], Definitions(), 3)
        for number in range(count):
            origin = SimpleNamespace(session=f"s{number}", attributes={})
            client = Client(self, origin)
            client.number = registry.join(client)  # type: ignore[arg-type]


class Client:
    """One of them."""

    uid = None
    number = 0

    def __init__(self, all_: Clients, origin: Any) -> None:
        self.terms = all_.terms
        self.origin = origin
        self._all = all_

    def push(self, package: bytes, share: float = 1.0) -> bool:
        self._all.pushed += 1
        return True


def test_a_broadcast_leaves_turns_to_others(folder, put):
    """Few messages at a time, however few the rows are; counted as memory meanwhile."""
    registry, reactor, journal = Registry(), Stepwise(), ManualJournal()
    clients = Clients(registry, 2500)
    running = Outbox(folder, Lobby("gw-1", registry, reactor), journal, reactor)
    put("a.json", b'{"route":"r","body":{},"all":true}\n' * 4)
    running.start()
    most = turns = 0
    while running.files == 0:
        before = clients.pushed
        assert journal.reserved == 8
        reactor.take_turn()
        most, turns = max(most, clients.pushed - before), turns + 1
    running.stop()
    assert clients.pushed == 10_000
    assert most <= 256 + 32
    assert turns >= 10_000 // 288
    assert journal.reserved == 0
