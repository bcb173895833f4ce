"""`gateway check` and `gateway schema`."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gateway.cli import main
from gateway.daemon.start import Options
from gateway_testkit.certificates import Authority
from pomelo_shapes import SHAPES

GOOD = """
node: gw-1
data_dir: /tmp/x
listeners:
  - {name: beats, protocol: lumberjack, listen: tcp:5044}
  - name: outside
    protocol: lumberjack
    listen: tcp:5045
    websocket: {path: /b}
    proxy_protocol: {trusted: [10.0.0.0/8]}
    tls: {certificate: c.pem, private_key: c.pem, client_auth: required, client_ca: c.pem}
admin: {token: hunter2}
"""


@pytest.fixture
def file(tmp_path, server_pair) -> Path:
    """A good configuration."""
    pair = server_pair.certificate.read_text() + server_pair.key.read_text()
    (tmp_path / "c.pem").write_text(pair)
    path = tmp_path / "gateway.yaml"
    path.write_text(GOOD)
    return path


@pytest.fixture
def checked(capsys) -> Callable[..., str]:
    """What `gateway check` says of a file that is fine."""

    def checked(*words: object) -> str:
        assert main(["check", *map(str, words)]) == 0
        return str(capsys.readouterr().out)

    return checked


@pytest.fixture
def refused(capsys) -> Callable[..., str]:
    """What `gateway check` says, on standard error alone, of a file that is not fine."""

    def refused(*words: object) -> str:
        assert main(["check", *map(str, words)]) == 1
        shown = capsys.readouterr()
        assert shown.out == ""
        return str(shown.err)

    return refused


def test_ok(checked, file):
    """It says so, and what will listen where."""
    assert checked(file).splitlines() == [
        f"{file}: ok",
        "  node gw-1, data in /tmp/x",
        "  beats    lumberjack on tcp:5044, not encrypted",
        (
            "  outside  lumberjack on tcp:5045, WebSocket at /b, TLSv1.2 or newer, "
            "client certificates required, behind a PROXY protocol balancer"
        ),
        "  admin page on tcp:127.0.0.1:8080, not encrypted",
    ]


@pytest.mark.parametrize(
    ("spool", "told"),
    [
        ("after: keep", "when the disk is full, senders wait"),
        ("after: archive", "the oldest go unread; the tables have them"),
        ("archive_bytes: 1GiB", "with more than 1GiB there the oldest go unread"),
    ],
)
def test_what_becomes_of_files_for_consumers(checked, file, spool, told):
    """Where they read, how long a file stays for them, and what comes first."""
    file.write_text(f"{GOOD}spool: {{{spool}, consumers: [mine, yours]}}")
    head, then = checked(file).splitlines()[-2:]
    assert head == (
        "  consumers mine, yours read /tmp/x/archive: a file stays until each has it, for "
        "24 h at least"
    )
    assert told in then


def test_where_files_are_forwarded(checked, file):
    """To whom, as whom, and what is so while that is away; and that others could read it."""
    file.write_text(
        f"{GOOD}spool: {{after: forward, retention: 2h, max_bytes: 1GiB}}\n"
        "forward: {to: 'http://hub:7410', token: secret, rate: 1MiB}\n"
    )
    assert checked(file).splitlines()[-3:] == [
        (
            "  files go to http://hub:7410, as gw-1, 1MiB/s at most; the archive keeps them for "
            "another 2 h"
        ),
        "    while it is away 1GiB wait here (spool.max_bytes); then senders do",
        "  warning: events, and the token, go to http://hub:7410 as they are: use https:",
    ]


def test_several_hubs(checked, file):
    """In which order, and when the next one has its turn; each that others can read."""
    file.write_text(
        f"{GOOD}spool: {{after: forward}}\n"
        "forward: {to: ['https://hub:1', 'http://other:2', 'https://far:3'], next_after: 10m}\n"
    )
    out = checked(file)
    assert "  files go to https://hub:1, as gw-1;" in out
    assert (
        "    once it was away for 10 min they go to http://other:2, then https://far:3: each gets "
        "all that it lacks and is still here\n"
    ) in out
    assert "warning: events go to http://other:2 as they are: use https:" in out


def test_a_hub_whose_job_is_one_of_several(checked, file):
    """An edge that has gone to the hub of another job would be in the tables twice."""
    file.write_text(
        "node: hub\ndata_dir: /tmp/x\n"
        "listeners: [{name: edges, protocol: forward, listen: 'tcp:127.0.0.1:7410'}]\n"
        "spark: {sink: delta, job: north}\n"
    )
    out = checked(file)
    assert "warning: edges: other jobs write the tables of spark.job: north, too" in out


def test_what_else_is_open(checked, file):
    """A listener's second port, and what it shows to whoever connects, are named."""
    file.write_text(
        "listeners:\n"
        "- {name: streams, protocol: pravega, listen: tcp:12345,"
        " options: {controller: tcp:9090}}\n"
        "- {name: all, protocol: rsio, listen: tcp:7400,"
        " options: {publish: [tap, events]}}\n"
    )
    said = checked(file)
    assert "tcp:12345, not encrypted, controller on tcp:9090" in said
    assert "tcp:7400, not encrypted, publishes tap and events" in said


def test_who_may_do_what_is_said(checked, file):
    """Pravega's rules in sentences; and a warning where no client can prove its name."""
    streams = (
        "listeners:\n"
        "- {name: streams, protocol: pravega, listen: tcp:12345, options: {%s\n"
        "   access: [{principals: [ann], read: [shop/orders], groups: ['shop/*']}]}}\n"
    )
    file.write_text(streams % "users: {ann: secret},")
    said = checked(file)
    rule = "ann may read shop/orders and use the reader groups shop/*"
    assert f"not encrypted, {rule}, nobody may do anything else" in said
    assert "warning:" not in said
    file.write_text(streams % "")
    said = checked(file)
    assert (
        "warning: options.access of Pravega has rules, and no client can prove" in said
    )


def test_not_ok(refused, file):
    """All that is wrong goes to standard error, each with file and place; status 1."""
    file.write_text(GOOD.replace("tcp:5045", "tcp:70000").replace("node:", "nod:"))
    assert [line.split(": ")[:2] for line in refused(file).splitlines()] == [
        [str(file), "nod"],
        [str(file), "listeners[1].listen"],
    ]


GAME = "listeners: [{name: game, protocol: pomelo, listen: tcp:3010, options: %s}]\n"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"client_protos": {"a.b.c": {"requird uInt32 x": 1}}},
            (
                "options.client_protos: a.b.c: 'requird uInt32 x' must be "
                "'required|optional|repeated TYPE NAME' or 'message NAME'"
            ),
        ),
        (
            {"server_protos": "server.json"},
            (
                "options.server_protos: {home}/server.json: a.b.c: required uInt8 x: the "
                "type must be one of bool, double, float, int32, sInt32, sInt64, string, "
                "uInt32, uInt64, not 'uInt8'"
            ),
        ),
        ({"routes": {"a.b.c": 0}}, "options.routes: 'a.b.c': code 0 is not 1 to 65535"),
        (
            {"jwt": {"key": "secret"}},
            "options.jwt needs PyJWT: pip install 'pyjwt[crypto]'",
        ),
    ],
    ids=["typo", "type", "code", "jwt"],
)
def test_what_no_daemon_starts_with(
    refused, tmp_path, capsys, monkeypatch, options, why
):
    """What a service of a listener refuses is refused here: file, path, value, remedy."""
    monkeypatch.setitem(sys.modules, "jwt", None)  # as if it were not installed
    protos = tmp_path / "server.json"
    protos.write_text('{"a.b.c": {"required uInt8 x": 1}}')
    path = tmp_path / "gateway.yaml"
    path.write_text(GAME % json.dumps(options))
    why = f"listener game: {why}".replace("{home}", str(tmp_path))
    assert refused(path) == f"{path}: listeners[0]: {why}\n"
    assert main(["check", "--json", str(path)]) == 1
    assert json.loads(capsys.readouterr().out)["problems"] == [
        {"path": "listeners[0]", "line": None, "message": why}
    ]
    with pytest.raises(SystemExit):
        Options().parseOptions(["--config", str(path), "--check-config"])
    assert why in capsys.readouterr().err


def test_a_certificate_that_is_none(refused, file):
    """The daemon would not start with it; place and file are named."""
    (file.parent / "c.pem").write_text("no certificate")
    said = refused(file)
    assert said.startswith(f"{file}: listeners[1]: tls: ")
    assert "c.pem" in said


def test_a_certificate_of_the_admin_port_that_is_none(checked, refused, file):
    """Likewise; and where it can be used, how the port is open is told."""
    tls = "tls: {certificate: admin.pem, private_key: c.pem}"
    listen = "listen: 'tcp:127.0.0.1:8443'"
    file.write_text(GOOD.replace("{token: hunter2}", f"{{{listen}, {tls}}}"))
    own = file.parent / "admin.pem"
    own.write_bytes((file.parent / "c.pem").read_bytes())
    told = checked(file)
    assert "admin page on tcp:127.0.0.1:8443, TLSv1.2 or newer" in told
    own.write_text("nothing")
    assert refused(file).startswith(f"{file}: admin: tls: ")


def test_nothing_is_made(tmp_path, capsys):
    """Not the data directory, though an outbox has its files there, nor any other file."""
    path = tmp_path / "gateway.yaml"
    data = f"data_dir: {tmp_path / 'data'}\n"
    path.write_text(data + GAME % '{"outbox": {"directory": "outbox"}}')
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().err == ""
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("game", SHAPES.values(), ids=SHAPES)
def test_definitions_of_games(checked, tmp_path, game):
    """Every shape of them is fine.  Of which routes nobody hears whether a request is
    stored is said, and not where a backend answers them.
    """
    path = tmp_path / "gateway.yaml"
    options = {
        "routes": game.routes,
        "client_protos": game.client_protos,
        "server_protos": game.server_protos,
    }
    path.write_text(GAME % json.dumps(options))
    warnings = json.loads(checked("--json", path))["warnings"]
    assert len(warnings) == bool(game.mute)
    for route in game.mute:
        assert repr(route) in warnings[0]
    backed = [{"routes": game.mute or ["a.b.c"], "url": "http://127.0.0.1:1/"}]
    path.write_text(GAME % json.dumps({**options, "backends": backed}))
    assert json.loads(checked("--json", path))["warnings"] == []


def test_large_frames_need_memory(checked, tmp_path):
    """Who raises `compressed_bytes` is told how much memory goes with it."""
    path = tmp_path / "gateway.yaml"

    def warned(memory: str, compressed: str) -> list[str]:
        path.write_text(
            f"data_dir: {tmp_path}\njournal: {{memory_bytes: {memory}}}\n"
            "listeners:\n  - {name: beats, protocol: lumberjack, listen: 'tcp:5044',"
            f" options: {{compressed_bytes: {compressed}}}}}\n"
        )
        found: list[str] = json.loads(checked("--json", path))["warnings"]
        return found

    assert warned("64MiB", "64MiB") == []
    assert warned("1GiB", "256MiB") == []
    [why] = warned("1000MiB", "256MiB")
    assert why.startswith("beats: a compressed frame of options.compressed_bytes is")
    assert "journal.memory_bytes to 1GiB at least" in why


def test_no_such_file(tmp_path, capsys):
    """A wrong name is wrong use: status 2."""
    assert main(["check", str(tmp_path / "none.yaml")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_json(checked, file, capsys):
    """For programs: what holds with its defaults, or what is wrong with its places."""
    shown = checked("--json", file)
    fine = json.loads(shown)
    assert fine["ok"] is True
    assert fine["config"]["spool"]["max_bytes"] == "20GiB"
    assert "hunter2" not in shown
    file.write_text(GOOD + "ack: no\n")
    assert main(["check", "--json", str(file)]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "file": str(file),
        "ok": False,
        "problems": [
            {"path": "ack", "line": 13, "message": "must be journal or spool, not 'no'"}
        ],
    }


def test_warnings(checked, file):
    """What is allowed, and loses something, is said; the configuration is fine."""
    streams = "  - {name: s, protocol: pravega, listen: tcp:12345}\nadmin:"
    file.write_text(GOOD.replace("admin:", streams) + "spool: {after: delete}\n")
    last = checked(file).splitlines()[-1]
    assert last.startswith("  warning: spool.after: delete takes files away")
    assert len(json.loads(checked("--json", file))["warnings"]) == 1
    file.write_text(GOOD.replace("admin:", streams))
    assert "warning:" not in checked(file)


@pytest.mark.parametrize(
    ("listener", "warns"),
    [
        ("listen: tcp:7400", True),
        ("listen: tcp:7400, options: {tokens: {a: secret}}", False),
        ("listen: tcp:7400, options: {offsets: false}", False),
        ("listen: tcp:7400, options: {subscribe: [], publish: [tap]}", False),
        ("listen: unix:rsio.sock", False),
    ],
)
def test_names_without_tokens(checked, file, listener, warns):
    """A stranger can stop an RS.io sender whose name he knows: that is said."""
    streams = f"  - {{name: all, protocol: rsio, {listener}}}\nadmin:"
    file.write_text(GOOD.replace("admin:", streams))
    said = checked(file)
    assert ("warning: all: without tokens, whoever may connect" in said) is warns


@pytest.mark.parametrize(
    ("options", "warns"), [("", True), (", options: {offsets: false}", False)]
)
def test_names_behind_a_shared_port(checked, file, options, warns):
    """An RS.io sender that meets another gateway is not known there: that is said."""
    shared = f"listen: tcp:7400, reuse_port: true{options}"
    streams = f"  - {{name: all, protocol: rsio, {shared}}}\nadmin:"
    file.write_text(GOOD.replace("admin:", streams))
    said = checked(file)
    assert ("warning: all: RS.io senders with a name" in said) is warns


def test_effective(checked, file):
    """The configuration with its defaults is YAML, and shows no secret."""
    shown = checked("--effective", file)
    logged = {"level": "info", "format": "text", "connections": 20}
    assert yaml.safe_load(shown)["logging"] == logged
    assert "hunter2" not in shown


def test_schema(capsys):
    """`gateway schema` prints the JSON Schema."""
    assert main(["schema"]) == 0
    assert "listeners" in json.loads(capsys.readouterr().out)["properties"]


@pytest.mark.parametrize(
    ("folder", "after", "odd"),
    [
        ("/srv/a b %20 #", "archive", None),
        ("/srv/10:30", "archive", ":"),
        ("/srv/{a}*", "delete", "* { }"),
        ("/srv/{a}*", "keep", None),
    ],
)
def test_a_path_that_spark_can_not_read(checked, file, folder, after, odd):
    """Before there are events in it; without a job it does not matter."""
    text = re.sub("^data_dir:.*\n", "", GOOD, flags=re.MULTILINE)
    more = f"data_dir: {json.dumps(folder)}\nspool: {{after: {after}}}\n"
    file.write_text(text + more)
    said = checked(file)
    path = f"{folder}/spool"
    if odd is None:
        assert "Spark" not in said
    else:
        why = f"  warning: the Spark job can not read {path}, for {odd} in its path"
        assert why in said


@pytest.mark.parametrize(
    ("mount", "more", "said"),
    [
        ("/pods/1/volumes/kubernetes.io~empty-dir/data /data rw - ext4", "", "its pod"),
        ("/ / rw - overlay", "", "its container"),
        ("/ /data rw - ext4", "", ""),
        (
            "/pods/1/volumes/kubernetes.io~empty-dir/data /data rw - ext4",
            "spool: {directory: s3://bucket/prefix}\n",
            "",
        ),
    ],
)
def test_a_directory_that_goes_with_its_pod(
    checked, tmp_path, monkeypatch, mount, more, said
):
    """Without a bucket nothing else knows what was acknowledged there."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"21 1 0:5 / /proc rw - proc\n22 1 8:1 {mount} /dev/sda rw\n")
    monkeypatch.setattr("gateway.store.system.disk._MOUNTS", mounts)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    path = tmp_path / "gateway.yaml"
    path.write_text(
        f"node: gw-1\ndata_dir: /data/gw\n{more}"
        "listeners: [{name: beats, protocol: lumberjack, listen: tcp:5044}]\n"
    )
    warned = checked(path)
    assert ("goes with" in warned) == bool(said)
    assert said in warned


@pytest.mark.parametrize(("memory", "warns"), [("32MiB", False), ("31MiB", True)])
def test_a_message_that_never_fits(checked, file, memory, warns):
    """Its sender would send it for ever: `gateway check` says which key to raise."""
    file.write_text(GOOD + f"journal: {{memory_bytes: {memory}}}\n")
    said = checked(file)
    assert ("raise journal.memory_bytes" in said) is warns


@pytest.mark.parametrize("where", ["listener", "admin"])
def test_a_crl_has_a_key_of_its_own(tmp_path, capsys, where):
    """Among the authorities it would not be looked at; a start would say the same."""
    authority = Authority(tmp_path)
    pair = authority.issue("gw")
    (tmp_path / "crl.pem").write_bytes(authority.revoke())
    both = tmp_path / "both.pem"
    both.write_bytes(authority.ca.read_bytes() + authority.revoke())

    def checked(client: str) -> int:
        tls = (
            f"{{certificate: {pair.certificate}, private_key: {pair.key}, "
            f"client_auth: required, {client}}}"
        )
        listener = f", tls: {tls}" if where == "listener" else ""
        admin = f", tls: {tls}" if where == "admin" else ""
        path = tmp_path / "gateway.yaml"
        path.write_text(
            "node: gw\ndata_dir: /tmp/x\nlisteners:\n"
            f"  - {{name: beats, protocol: lumberjack, listen: 'tcp:5044'{listener}}}\n"
            f"admin: {{listen: 'tcp:127.0.0.1:0'{admin}}}\n"
        )
        return main(["check", str(path)])

    assert checked(f"client_ca: {both}") == 1
    said = capsys.readouterr().err
    assert f"client_ca: {both}: has a CRL" in said
    assert "tls.client_crl" in said
    assert checked(f"client_ca: {authority.ca}, client_crl: {authority.ca}") == 1
    assert f"client_crl: {authority.ca}: no CRL in PEM" in capsys.readouterr().err
    assert checked(f"client_ca: {authority.ca}, client_crl: [crl.pem]") == 0
    assert (
        "client certificates required, revoked ones refused" in capsys.readouterr().out
    )


def test_tables_that_can_not_be_here(checked, file, tmp_path, capsys, monkeypatch):
    """Another kind than data_dir has, and one that the installed Spark has no jars for."""
    (tmp_path / "lake/.gateway").mkdir(parents=True)
    (tmp_path / "lake/.gateway/sink.json").write_text('{"sink": "parquet"}')
    text = GOOD.replace("/tmp/x", str(tmp_path))
    file.write_text(text + "spark: {sink: iceberg}\n")
    monkeypatch.setattr("gateway.cli.check.version", lambda distribution_name: "4.3.0")
    told = checked(file)
    assert re.search(r"lake has tables of another spark\.sink: parquet\.", told)
    assert "spark.sink: iceberg needs Spark 4.1" in told
    file.write_text(text)
    main(["check", str(file)])
    assert "spark.sink" not in capsys.readouterr().out
