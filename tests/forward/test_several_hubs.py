"""An edge and several hubs in memory: the first that is there has the files, and each that had
some is told what it lacks.
"""

import random
from pathlib import Path

import pytest

from edges import ALL, FILES, Hub, Pair
from forwarded import Sent
from gateway.config.model import Forward
from gateway_testkit.settings import options_of
from incarnations import A
from samples import some_of

FIRST, SECOND, THIRD = (f"http://hub-{number}:7410" for number in (1, 2, 3))


class Several(Pair):
    """With hubs of three addresses; each is asked for after ten seconds."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for to in (FIRST, SECOND, THIRD):
            self.hubs[to] = Hub(folder / to[7:12], self.clock, to[7:12])
        to = [FIRST, SECOND, THIRD]
        self.settings = options_of(Forward, to=to, next_after=10.0)
        self.begin()
        self.forwarder.start(0)

    def kill(self, to: str) -> None:
        """That hub is gone."""
        self.dead.add(to)
        for line in self.lines:
            if line.hub is self.hubs[to]:
                line.cut()


@pytest.fixture
def several(tmp_path) -> Several:
    return Several(tmp_path)


def test_the_first_that_is_there(several):
    """It has the files; the second gets none while the first is away for a moment."""
    several.publish(FILES[0])
    several.run()
    assert several.hubs[FIRST].files().keys() == {FILES[0].name}
    several.kill(FIRST)
    several.publish(FILES[1])
    several.run(5)
    several.dead.clear()
    several.run(20)
    assert several.hubs[FIRST].files().keys() == {one.name for one in FILES[:2]}
    assert several.hubs[SECOND].files() == {}
    assert several.forwarder.hub.place == 1


def test_the_next_one(several):
    """After `next_after` without any; it says what it has, and gets all that is still here."""
    several.publish(*FILES[:2])
    several.run()
    several.kill(FIRST)
    several.publish(FILES[2])
    several.run(40)
    hub = several.forwarder.hub
    assert (hub.to, hub.place, hub.connected) == (SECOND, 2, True)
    assert several.hubs[SECOND].files() == {one.name: one.data for one in FILES[:3]}
    assert several.waiting() == []
    assert several.forwarder.arrived_lsn == 205


def test_none_of_them(several):
    """All are named, with how long none was there."""
    for to in (FIRST, SECOND, THIRD):
        several.kill(to)
    several.run(60)
    hub = several.forwarder.hub
    assert hub.to == f"{FIRST} or {SECOND} or {THIRD}"
    assert not hub.connected
    assert hub.seconds == pytest.approx(60)
    several.dead -= {THIRD}
    several.run(40)
    assert several.forwarder.hub.to == THIRD


def test_the_first_one_is_back(several):
    """It is asked, beside the connection to the other, and gets what it has missed."""
    several.publish(FILES[0])
    several.run()
    several.kill(FIRST)
    several.run(40)
    several.publish(*FILES[1:3])
    several.run()
    assert len(several.hubs[SECOND].files()) == 3
    several.run(60)
    assert several.forwarder.hub.place == 2
    assert several.forwarder.connections == 2  # asking has cost it none
    several.dead.clear()
    several.publish(FILES[3])
    several.run(30)
    assert several.forwarder.hub.place == 1
    assert several.hubs[FIRST].files() == ALL
    assert len(several.open) == 1


def test_a_hub_that_is_there_and_refuses(several):
    """A wrong token there does not keep the files from the next one."""
    several.hubs[FIRST].require({"edge": "secret"})
    several.cut()
    several.publish(*FILES)
    several.run(40)
    assert several.forwarder.hub.place == 2
    assert several.hubs[SECOND].files() == ALL
    assert not several.forwarder.hub.denied


def test_a_hub_that_is_there_and_refuses_the_node(several):
    """It says welcome, and has the node itself: the next one keeps the files,
    however often the first is asked, until that is over.
    """
    first = several.hubs[FIRST]
    first.directories.journal_of("edge").mkdir(parents=True)
    several.cut()
    several.publish(*FILES[:3])
    several.run(40)
    assert several.forwarder.hub.place == 2
    before = several.forwarder.connections
    several.run(120)
    several.publish(FILES[3])
    several.run(5)
    assert several.forwarder.hub.place == 2
    assert several.forwarder.connections == before
    assert several.hubs[SECOND].files() == ALL
    first.directories.journal_of("edge").rmdir()
    several.run(40)
    assert several.forwarder.hub.place == 1
    assert first.files() == ALL


def test_a_file_that_one_may_have(several):
    """It has it, and could not say so: the next one gets it, too, and each has it once."""
    several.run(1)
    several.lines[-1].down = 0
    several.publish(FILES[0])
    several.step()
    assert several.hubs[FIRST].files()
    several.kill(FIRST)
    several.run(40)
    several.dead.clear()
    several.run(30)
    assert several.forwarder.hub.place == 1
    for to in (FIRST, SECOND):
        assert several.hubs[to].files() == {FILES[0].name: FILES[0].data}
        assert several.hubs[to].taker.files == 1


def test_what_the_archive_has_no_more(several):
    """A hub that comes late lacks it: that is no less a hole for being at another one."""
    several.publish(*FILES[:2])
    several.run()
    (several.edge.archive / FILES[0].name).unlink()
    several.kill(FIRST)
    several.run(40)
    assert several.hubs[SECOND].files().keys() == {FILES[1].name}
    assert several.hubs[SECOND].lsns() == {A: [(201, 203)]}


def test_another_order(several):
    """A reload begins at the first again."""
    several.kill(FIRST)
    several.run(40)
    assert several.forwarder.hub.place == 2
    several.forwarder.configure(options_of(Forward, to=[THIRD, FIRST]))
    several.run(2)
    assert several.forwarder.hub.to == THIRD


@pytest.mark.parametrize("seed", range(some_of(40, 10)))
def test_hubs_that_come_and_go(tmp_path, seed):
    """At any moment, with kills of all and, in half of the runs, slow renames: what has left the spool is at one of them, each takes
    each file once, and all that were there at the end have the same.
    """
    chance = random.Random(seed)
    several = Several(tmp_path)
    if seed % 2:
        several.slow_renames(chance)
    files = [Sent(1 + 3 * number) for number in range(12)]
    for sent in files:
        several.publish(sent)
        for _ in range(chance.randrange(6)):
            to = chance.choice([FIRST, SECOND, THIRD])
            if chance.random() < 0.5:
                several.kill(to)
            else:
                several.dead.discard(to)
            if chance.random() < 0.3:
                several.cut()
                several.hubs[to].restart()
            if chance.random() < 0.2:
                several.restart()
            several.run(chance.random() * 30)
            somewhere = {name for hub in several.hubs.values() for name in hub.files()}
            assert {*several.archived()} <= somewhere
    several.dead = {SECOND, THIRD}
    several.run(120)
    several.dead = {FIRST, THIRD}
    several.kill(FIRST)
    several.run(120)
    wanted = {one.name: one.data for one in files}
    for to in (FIRST, SECOND):
        assert several.hubs[to].files() == wanted
    assert several.waiting() == []
