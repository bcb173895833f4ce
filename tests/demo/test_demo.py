"""The demo's set-up, how its processes' output is read, and its questions to the tables; starts
none.
"""

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway import config
from gateway.protocols.pomelo.options import Options as Pomelo
from gateway.protocols.rsio.options import Options as Rsio
from gateway_demo.players import PLAYERS
from gateway_demo.processes import Process, Processes
from gateway_demo.report import _next_steps
from gateway_demo.setup import NotADemo, prepare
from gateway_demo.traffic import Talker, draw, talkers, traffic


def test_its_configuration_is_one(tmp_path):
    """Every sender has its listener; pushes have a way back."""
    setup = prepare(tmp_path / "demo")
    loaded = config.load(setup.config)
    listeners = {one.name: one for one in loaded.listeners}
    for one in setup.traffic:
        assert listeners[one.listener].protocol == one.protocol
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


def test_what_to_try_next_can_be_typed(tmp_path):
    """Where the name of a folder has a blank, too."""
    setup = prepare(tmp_path / "my demo")
    for _, command in _next_steps(setup, "gateway"):
        if "--config" in command:
            assert shlex.split(command)[-2:] == ["--config", str(setup.config)]


FIRST = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path) -> Path:
    """Two files: 12 s of an access log, and a listener whose rows have no message."""
    rows = [
        {
            "received_at": FIRST + timedelta(seconds=second),
            "listener": "beats",
            "host": f"web-{second % 2}",
            "message": f'192.0.2.1 - - "GET / HTTP/1.1" {404 if second == 11 else 200} 5',
        }
        for second in range(12)
    ]
    other = [
        {
            "received_at": FIRST + timedelta(seconds=3),
            "listener": "game",
            "host": None,
            "message": None,
        }
    ] * 10
    for number, some in enumerate((rows, other)):
        path = tmp_path / "events" / f"date=2026-01-31/part-{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        schema = pa.schema(
            {
                "received_at": pa.timestamp("us", tz="UTC"),
                "listener": pa.string(),
                "host": pa.string(),
                "message": pa.string(),
            }
        )
        pq.write_table(pa.Table.from_pylist(some, schema=schema), path)
    return tmp_path


def test_talkers_are_hosts_with_their_errors(lake):
    assert talkers(lake) == [Talker("web-0", 6, 0), Talker("web-1", 6, 1)]
    assert talkers(lake, most=1) == [Talker("web-0", 6, 0)]


def test_traffic_is_counted_in_slices_of_five_seconds(lake):
    found = traffic(lake)
    assert found is not None
    assert found.seconds == [0, 5, 10]
    assert found.rates == {"beats": [1.0, 1.0, 0.4], "game": [2.0, 0.0, 0.0]}
    assert found.errors == [0.0, 0.0, 0.5]


def test_without_tables_there_is_nothing_to_tell(tmp_path):
    assert talkers(tmp_path) == []
    assert traffic(tmp_path) is None


def test_the_picture_is_one(lake, tmp_path):
    found = traffic(lake)
    assert found is not None
    draw(found, tmp_path / "traffic.svg")
    assert ET.parse(tmp_path / "traffic.svg").getroot().tag.endswith("svg")
    draw(found, tmp_path / "traffic.png")
    assert (tmp_path / "traffic.png").read_bytes().startswith(b"\x89PNG")
