"""A plug-in from `pip install ./examples/syslog` to rows in the table, where the gateway
came from its wheel and its source is out of reach."""

import importlib.util
import json
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daemons import Daemon, listener
from deadlines import ROOT
from wheels import Environment, clean, wheel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(
        importlib.util.find_spec("hatchling") is None, reason="there is no hatchling"
    ),
]

OPTIONS = {"timezone": "Europe/Oslo"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Environment:
    home = tmp_path_factory.mktemp("plugin")
    found = Environment(home / "venv")
    source = shutil.copytree(ROOT / "examples" / "syslog", home / "syslog")
    found.install(wheel(home / "wheels"), source)
    return found


class Installed(Daemon):
    """A daemon of that environment."""

    def __init__(self, home: Path, environment: Environment) -> None:
        syslog = listener("syslog", "syslog", options=OPTIONS)
        super().__init__(home, {"listeners": [syslog]})
        self._python = environment.python

    @property
    def environment(self) -> dict[str, str]:
        return clean()

    @property
    def command(self) -> list[str]:
        twistd = "from twisted.scripts.twistd import run; run()"
        return [str(self._python), "-c", twistd, *super().command[1:]]


@pytest.fixture(scope="module")
def daemon(environment, tmp_path_factory) -> Iterator[Daemon]:
    with Installed(tmp_path_factory.mktemp("daemon"), environment) as daemon:
        with socket.create_connection(daemon.address("syslog")) as client:
            client.sendall(
                b"<165>1 2026-11-22T08:00:00.250Z web1 shop 7 - - it is late\n"
                b"<13>Jul  1 12:00:00 web2 shop: it is summer\n"
                b"no syslog at all\n"
            )
            daemon.settled(3)
        yield daemon


def test_the_gateway_is_that_of_the_wheel(environment):
    """Nothing of what follows is by grace of the source tree."""
    look = "import gateway, gateway_syslog; print(gateway.__file__, gateway_syslog.__file__)"
    found = environment.run(environment.python, "-c", look).stdout.split()
    home = str(environment.python.parents[1])
    assert [path.startswith(home) for path in found] == [True, True]


def test_demo_and_kits_are_not_in_it(environment):
    """Their commands say what to install; the tests of a configuration run."""
    for command, package in (("demo", "gateway-demo"), ("rsio-check", "rsio-check")):
        found = environment.gateway(command)
        assert found.returncode == 2
        assert f"pip install the folder packages/{package}" in found.stderr
    config = environment.python.with_name("gateway.yaml")
    config.write_text(
        json.dumps({"listeners": [listener("syslog", "syslog", options=OPTIONS)]})
    )
    case = {"name": "a line", "listener": "syslog", "input": {"text": "<13>so\n"}}
    trial = config.with_name("trial.yaml")
    trial.write_text(
        json.dumps({"config": config.name, "tests": [{**case, "expect": [{}]}]})
    )
    found = environment.gateway("test", trial)
    assert found.returncode == 0, found.stdout + found.stderr


def test_events_reach_the_spool(daemon):
    """A daemon with `protocol: syslog` takes them, and publishes them as Parquet."""
    late, summer, odd = daemon.rows()
    assert {row["protocol"] for row in (late, summer, odd)} == {"syslog"}
    assert json.loads(late["payload"])["message"] == "it is late"
    assert late["channel"] == "local4"
    assert "+02:00" in json.loads(summer["payload"])["@timestamp"]
    assert (odd["payload"], odd["flaw"]) == (b"no syslog at all", "no-priority")


def test_options_are_in_the_schema(environment):
    """An editor completes them, with their descriptions."""
    schema = json.loads(environment.gateway("schema").stdout)
    rules = schema["$defs"]["Listener"]["allOf"]
    [rule] = [
        r for r in rules if r["if"]["properties"]["protocol"]["const"] == "syslog"
    ]
    name = rule["then"]["properties"]["options"]["$ref"].rpartition("/")[2]
    options = schema["$defs"][name]["properties"]
    assert options["timezone"]["default"] == "UTC"
    assert options["trailer"]["anyOf"][0]["enum"] == ["any", "newline", "nul"]
    assert all(option["description"] for option in options.values())


def test_a_mistake_in_them_is_explained(environment, tmp_path):
    """`gateway check` names the place, the value and what is allowed."""
    options = {"timezone": "Europe/Oslp", "trailer": "lf", "time_zone": "UTC"}
    file = tmp_path / "gateway.yaml"
    file.write_text(
        json.dumps({"listeners": [listener("syslog", "syslog", options=options)]})
    )
    found = environment.gateway("check", file)
    assert found.returncode == 1
    for mistake in (
        "listeners[0].options.timezone: no such time zone: 'Europe/Oslp'",
        "listeners[0].options.trailer: must be any, newline or nul, not 'lf'",
        "listeners[0].options.time_zone: unknown key; did you mean 'timezone'?",
    ):
        assert mistake in found.stderr


@pytest.mark.spark
def test_events_reach_the_table(environment, daemon):
    """Time, host and message are in columns of their own."""
    import pyarrow.dataset as ds

    done = environment.gateway("spark", "--config", daemon.config, "--once")
    assert done.returncode == 0, done.stderr
    lake = daemon.data / "lake"

    def table(name: str) -> list[dict[str, Any]]:
        read: Callable[..., Any] = ds.dataset
        found = read(lake / name, partitioning="hive").to_table().to_pylist()
        return sorted(found, key=lambda row: row["lsn"])

    late, summer = table("events")
    assert (late["host"], late["message"]) == ("web1", "it is late")
    assert late["event_time"].isoformat() == "2026-11-22T08:00:00.250000+00:00"
    assert (summer["host"], summer["message"]) == ("web2", "it is summer")
    assert (summer["event_time"].month, summer["event_time"].hour) == (7, 10)
    [odd] = table("quarantine")
    assert (odd["payload"], odd["flaw"]) == (b"no syslog at all", "no-priority")
