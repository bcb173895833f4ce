"""A configuration is right, or everything that is wrong with it is said; and its dump."""

from pathlib import Path

import pytest
import yaml
from pydantic import SecretStr, ValidationError

from gateway import config
from gateway.config import Tcp, Unix
from gateway.config.reader import Dumper
from gateway.plugins import installed
from gateway.protocols.lumberjack.options import Options as Lumberjack
from gateway.protocols.pomelo.options import Options as Pomelo

INSTALLED = ", ".join(installed().protocols)

LISTENER = """
listeners:
  - name: beats
    protocol: lumberjack
    listen: tcp:5044
"""


def test_a_listener_is_enough(load):
    """All the rest has the defaults of the design."""
    loaded = load("")
    [listener] = loaded.listeners
    assert listener.listen == Tcp("", 5044)
    assert listener.websocket is listener.proxy_protocol is listener.tls is None
    assert listener.limits.message_bytes == 16 << 20
    assert listener.limits.idle == 900.0
    assert listener.options == Lumberjack()
    assert listener.options.keepalive_interval == 3.0
    assert loaded.data_dir == Path("/var/lib/gateway")
    assert loaded.journal.directory == Path("journal")
    assert loaded.journal.commit_interval == 0.002
    assert loaded.spool.max_bytes == 20 << 30
    assert loaded.admin.listen == Tcp("127.0.0.1", 8080)
    assert loaded.admin.token is None
    assert loaded.spark.conf == {}


def test_units(load):
    """Sizes become bytes and times become seconds, from the environment too."""
    loaded = load(
        """
        journal: {segment_bytes: 1MiB, commit_interval: 0s}
        spool: {roll_bytes: "${env:ROLL}", roll_events: "${env:EVENTS}"}
        spark: {ui: "${env:UI}", trigger: 1.5s}
        """,
        {"ROLL": "2MiB", "EVENTS": "10", "UI": "true"},
    )
    assert loaded.journal.segment_bytes == 1 << 20
    assert loaded.journal.commit_interval == 0.0
    assert loaded.spool.roll_bytes == 2 << 20
    assert loaded.spool.roll_events == 10
    assert loaded.spark.ui is True
    assert loaded.spark.trigger == 1.5


def test_it_can_not_be_changed(load):
    """A configuration is read once; nobody changes it underway."""
    loaded = load("")
    with pytest.raises(ValidationError):
        loaded.ack = "spool"  # type: ignore[misc]


def test_relative_paths_are_below_the_file(load, tmp_path):
    """Wherever the daemon is started, it finds the same files."""
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).touch()
    loaded = load(
        """
        data_dir: data
        listeners:
          - name: b
            protocol: lumberjack
            listen: unix:gw.sock
            tls: {certificate: cert.pem, private_key: key.pem}
        """,
        listeners=False,
    )
    [listener] = loaded.listeners
    assert loaded.data_dir == tmp_path / "data"
    assert listener.listen == Unix(tmp_path / "gw.sock")
    assert listener.tls is not None
    assert listener.tls.certificate == tmp_path / "cert.pem"


def test_a_spool_in_a_bucket_has_a_place_here_too(load):
    """Files wait there until they are uploaded."""
    loaded = load("spool: {directory: 's3://bucket/a/b/'}")
    assert str(loaded.spool.bucket) == "s3://bucket/a/b"
    assert loaded.spool.folder == Path("spool")
    assert load("spool: {directory: out}").spool.bucket is None
    assert load("spool: {directory: out}").spool.folder == Path("out")


def test_columns_of_ones_own(load):
    """One source or several, of one type; a usual column may become another one for all."""
    loaded = load(
        """
        spark:
          columns:
            status: {path: http.status, type: int, default: 0}
            host: [{path: h, protocol: pomelo}, {path: [a, b], listener: x}]
            log_offset: {path: at}
            event_time: [{path: ts, protocol: pomelo}]
            took: [{path: t, type: double, default: 1, listener: x}, {path: d, type: double}]
            message: null
        """
    )
    columns = loaded.spark.columns
    assert columns["status"].default == 0
    assert [one.path for one in columns["host"]] == ["h", ["a", "b"]]
    assert columns["log_offset"].type == "string"
    assert columns["message"] is None


def test_an_empty_section_is_its_defaults(load):
    """A section whose keys are all comments counts as left out."""
    assert load("spool:\nlogging:\n").spool == load("").spool


def test_node_defaults_to_the_host(load, monkeypatch):
    """A host name with other characters still makes a valid node name."""
    monkeypatch.setattr("socket.gethostname", lambda: "-My_Host.local.")
    assert load("").node == "my-host.local"
    monkeypatch.setattr("socket.gethostname", lambda: "___")
    assert load("").node == "gateway"


# -- secrets ------------------------------------------------------------------


def test_a_secret_is_never_shown(load, tmp_path):
    """Neither repr nor str nor dump of a configuration has the token."""
    (tmp_path / "token").write_text("hunter2\n")
    loaded = load("admin: {token: '${file:token}'}")
    assert loaded.admin.token == SecretStr("hunter2")
    for shown in (repr(loaded), str(loaded), str(config.dump(loaded))):
        assert "hunter2" not in shown


def test_building_one_in_code():
    """Tests and tools may build a configuration without a file."""
    built = config.Config.model_validate(
        {
            "data_dir": Path("/tmp/x"),
            "listeners": [
                {"name": "b", "protocol": "lumberjack", "listen": Tcp("", 0)}
            ],
        }
    )
    assert built.data_dir == Path("/tmp/x")
    assert built.listeners[0].tls is None


POMELO = """
listeners:
  - name: game
    protocol: pomelo
    listen: tcp:3010
"""


def test_pomelo_takes_websocket_beside_tcp_unless_told_not_to(load):
    """Clients of either kind find it on the one port that they are given."""
    [game] = load(POMELO, listeners=False).listeners
    assert game.websocket is not None
    assert game.websocket.path == "/"
    [game] = load(POMELO + "    websocket: false\n", listeners=False).listeners
    assert game.websocket is None


def test_options_are_those_of_the_protocol(load, tmp_path):
    """Definitions may be written here or be a file beside the configuration."""
    (tmp_path / "routes.json").write_text("[]")
    text = POMELO + "    options: {routes: routes.json, heartbeat: 5s}\n"
    [game] = load(text, listeners=False).listeners
    assert isinstance(game.options, Pomelo)
    assert game.options.routes == tmp_path / "routes.json"
    assert game.options.heartbeat == 5.0
    [plain] = load(POMELO, listeners=False).listeners
    assert isinstance(plain.options, Pomelo)


def test_a_dump_loads_to_the_same(load, tmp_path):
    """What `dump` writes is a configuration again, and the same one: null is no default
    everywhere, and a name may look like a number.
    """
    loaded = load(
        """
        node: "1e5"
        spool: {roll_interval: 1500ms, max_bytes: 1GiB}
        spark: {admin: {listen: null}, audit: {every: null}, columns: {message: null}}
        listeners:
          - {name: a, protocol: lumberjack, listen: unix:a.sock, websocket: {path: /x}}
          - {name: b, protocol: lumberjack, listen: 'tcp:[::1]:1',
             proxy_protocol: {trusted: [10.0.0.0/8]}}
        """,
        listeners=False,
    )
    again = tmp_path / "again.yaml"
    again.write_text(yaml.dump(config.dump(loaded), None, Dumper))
    assert config.load(again) == loaded


def test_values_are_written_as_people_write_them(load):
    """Units and forms, not bare bytes and seconds."""
    values = config.dump(load(""))
    assert values["spool"]["max_bytes"] == "20GiB"
    assert values["journal"]["commit_interval"] == "2ms"
    assert values["listeners"][0]["listen"] == "tcp:5044"
    assert values["listeners"][0]["websocket"] is False


@pytest.mark.parametrize(
    "key",
    ["spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.access.key", "my.PASSWORD"],
)
def test_spark_settings_that_sound_secret(load, key):
    """They are masked as Spark itself masks them; others are not."""
    values = config.dump(load(f"spark: {{conf: {{{key}: hunter2, spark.x: 5}}}}"))
    assert values["spark"]["conf"] == {key: "**********", "spark.x": "5"}


def test_the_user_of_a_registry(load):
    """It is masked, and the address is not."""
    text = "spark: {schemas: s, schema_registry: 'https://me:hunter2@host:1/a@b'}"
    shown = config.dump(load(text))["spark"]["schema_registry"]
    assert shown == "https://**********@host:1/a@b"


def test_spark_settings_from_outside(load):
    """What came from outside the file is shown by its placeholder; Spark gets it."""
    loaded = load("spark: {conf: {spark.x: 'a${env:S}'}}", {"S": "hunter2"})
    assert loaded.spark.conf == {"spark.x": "ahunter2"}
    assert config.dump(loaded)["spark"]["conf"] == {"spark.x": "a${env:S}"}
