"""The demo's set-up, and how the output of its processes is read; starts none."""

import pytest

from gateway import config
from gateway.protocols.pomelo.options import Options as Pomelo
from gateway.protocols.rsio.options import Options as Rsio
from gateway_demo.players import PLAYERS
from gateway_demo.processes import Process, Processes
from gateway_demo.setup import NotADemo, prepare


def test_its_configuration_is_one(tmp_path):
    """Every sender has its listener; pushes have a way back."""
    setup = prepare(tmp_path / "demo")
    loaded = config.load(setup.config)
    listeners = {one.name: one for one in loaded.listeners}
    for traffic in setup.traffic:
        assert listeners[traffic.listener].protocol == traffic.protocol
    options = listeners["game"].options
    assert isinstance(options, Pomelo)
    assert options.outbox is not None
    assert set(PLAYERS.values()) == {True, False}


def test_every_protocol_takes_part(tmp_path):
    """… and a few events are seen as they come."""
    setup = prepare(tmp_path / "demo")
    assert {one.protocol for one in setup.traffic} == {
        "lumberjack", "pomelo", "pravega", "rsio"
    }  # fmt: skip
    titles = [one.title for one in setup.traffic]
    assert len(set(titles)) == len(titles)
    listeners = {one.name: one.options for one in config.load(setup.config).listeners}
    options = listeners["meters"]
    assert isinstance(options, Rsio)
    assert "tap" in options.publish


def test_what_is_not_a_demos_stays(tmp_path):
    """A directory with something else in it is not replaced; an earlier demo's is."""
    prepare(tmp_path / "demo")
    prepare(tmp_path / "demo")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(NotADemo):
        prepare(tmp_path / "mine")


def test_pushes_that_came_so_far(tmp_path):
    """A line that is still being written does not count, nor one that is no push."""
    processes = Processes(prepare(tmp_path / "demo"))
    assert processes.pushes() == []
    log = tmp_path / "players.log"
    processes.players = Process("players", ["true"], log)
    processes.players.stop()
    log.write_text('warning\n{"player": "p3", "score": 7}\n{"player"')
    assert processes.pushes() == [{"player": "p3", "score": 7}]
