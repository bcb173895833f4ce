"""`gateway init`: the configuration, the units and the compose file that it writes."""

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import gateway_syslog
from deadlines import ROOT
from gateway import cli, config, plugins
from gateway.cli.init import write
from gateway.config import json_schema
from gateway.plugins import installed
from gateway_testkit.certificates import Authority

PROTOCOLS = tuple(installed().protocols)


def init(folder: Path, *words: str) -> Path:
    assert cli.main(["init", *words, "--directory", str(folder)]) == 0
    return folder / "gateway.yaml"


@pytest.fixture(autouse=True)
def token(monkeypatch) -> None:
    """What compose fills in, for whoever reads the file as a container does."""
    monkeypatch.setenv("GATEWAY_ADMIN_TOKEN", "secret")


@pytest.mark.parametrize("words", [*([name] for name in PROTOCOLS), PROTOCOLS])
def test_a_configuration(tmp_path, words):
    """Of one protocol, of all: it is valid, reachable from this machine only, and all
    that is kept lies beside it.
    """
    loaded = config.load(init(tmp_path / "first", *words))
    assert [each.protocol for each in loaded.listeners] == list(words)
    assert all("127.0.0.1" in str(each.listen) for each in loaded.listeners)
    assert loaded.data_dir == tmp_path / "first" / "data"


def test_what_to_do_next(tmp_path, monkeypatch, capsys):
    """Each step can be taken: `gateway send` is one only where the protocol can send."""
    init(tmp_path / "beats", "lumberjack")
    assert "\n  gateway send lumberjack --help\n" in capsys.readouterr().out
    found = plugins.Installed({"syslog": gateway_syslog.protocol}, {})
    monkeypatch.setattr(plugins, "installed", lambda: found)
    monkeypatch.setattr("gateway.cli.init.installed", lambda: found)
    init(tmp_path / "syslog", "syslog")
    out = capsys.readouterr().out
    assert "gateway send" not in out
    assert "\n  gateway run --config" in out


def test_all_addresses(tmp_path):
    """Who opens it to the world says so; then nobody may watch what others send."""
    words = ["rsio", "--all-addresses", "--node", "1e5", "--data-dir", "/srv/gw"]
    loaded = config.load(init(tmp_path, *words))
    assert (loaded.node, loaded.data_dir) == ("1e5", Path("/srv/gw"))
    [listener] = loaded.listeners
    assert str(listener.listen) == "tcp:7400"
    assert config.dump(loaded)["listeners"][0]["options"]["publish"] == []


def keys(value: Any, definitions: dict[str, Any]) -> set[str]:
    """All keys of a section and of those below it."""
    found: set[str] = set()
    for name, each in value.get("properties", {}).items():
        found.add(name)
        for kind in (each, *each.get("anyOf", ()), each.get("items", {})):
            if "$ref" in kind:
                inside = definitions[kind["$ref"].rpartition("/")[2]]
                # Lists of sections are shown as such.
                if kind is not each.get("items") or name == "listeners":
                    found |= keys(inside, definitions)
    return found


def test_every_key_is_there(tmp_path):
    """With its meaning above it: that of the types, so none can be forgotten."""
    text = init(tmp_path, *PROTOCOLS).read_text()
    shown = set(re.findall(r"^ *(?:- )?#?(\w+):", text, re.MULTILINE))
    schema = json_schema()
    options = [
        case["then"]["properties"]["options"]
        for case in schema["$defs"]["Listener"]["allOf"]
    ]
    wanted = keys(schema, schema["$defs"])
    for each in options:
        wanted |= keys({"properties": {"options": each}}, schema["$defs"])
    assert wanted - {"Column"} <= shown


def test_what_is_shown_are_the_defaults(tmp_path):
    """Whoever uncomments a section has changed nothing."""
    file = init(tmp_path, "pomelo", "--node", "gw-1")
    before = config.dump(config.load(file))
    text, on = "", False
    for line in file.read_text().splitlines():
        section = re.match(r"( *)#(\w+):$", line)
        if section:
            on = section[2] in ("limits", "journal", "spool", "logging", "spark")
            depth = 6 if len(section[1]) == 4 else 2
        elif on and not line.startswith(" " * depth):
            on = False
        text += re.sub(r"^( *)#(\w)", r"\1\2", line) + "\n" if on else line + "\n"
    assert text.count("\n#") < file.read_text().count("\n#")
    file.write_text(text)
    assert config.dump(config.load(file)) == before


def test_nothing_is_overwritten(tmp_path, capsys):
    """If one of its files is there, it writes none."""
    (tmp_path / "compose.yaml").write_text("mine")
    words = ["init", "lumberjack", "--compose", "--directory", str(tmp_path)]
    assert cli.main(words) == 2
    assert f"{tmp_path}/compose.yaml is there already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["compose.yaml"]


def test_a_disk_that_is_full(tmp_path):
    """What is not whole is not left behind, where the next start would read it."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, most[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write(tmp_path / "gateway.yaml", "x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert not [*tmp_path.iterdir()]


def test_a_name_that_can_not_be(tmp_path, capsys):
    """What the daemon would refuse is not left behind."""
    words = ["init", "lumberjack", "--node", "GW 1", "--directory", str(tmp_path)]
    assert cli.main(words) == 2
    assert "lower case letters" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_units(tmp_path):
    """For both processes, with the programs of this environment."""
    loaded = config.load(init(tmp_path, "lumberjack", "--systemd"))
    assert loaded.data_dir == Path("/var/lib/gateway")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"gateway.yaml", "gateway.service", "gateway-spark.service"}
    programs = Path(sys.executable).parent
    for unit, program in (("gateway", "twistd"), ("gateway-spark", "gateway spark")):
        text = (tmp_path / f"{unit}.service").read_text()
        assert f"\nExecStart={programs}/{program} " in text
        assert "--config /etc/gateway/gateway.yaml\n" in text
    # The signal that stops the job does not end the Java of its last batch.
    assert "\nKillMode=mixed\n" in (tmp_path / "gateway-spark.service").read_text()
    assert [str(one.listen) for one in loaded.listeners] == ["tcp:5044"]
    recipe = (tmp_path / "gateway.service").read_text().partition("[Unit]")[0]
    for line in re.findall(r"^#   (install .*)$", recipe, re.MULTILINE):
        for word in line.split():
            if word.startswith("gateway"):
                assert (tmp_path / word).exists(), line
    assert not re.search("apt-get|pip install", recipe)
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    units = sorted(tmp_path.glob("*.service"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("form", ["--systemd", "--compose"])
def test_for_production(tmp_path, capsys, form):
    """One line says who may come in; with a certificate it is by TLS, in containers by
    what is mounted there.  One that does not fit its key is no configuration."""
    plain = tmp_path / "plain"
    init(plain, "lumberjack", form)
    assert "All IPv4 addresses are listened to, without TLS" in capsys.readouterr().out
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("gw")
    words = ("--certificate", str(pair.certificate), "--key", str(pair.key))
    file = init(tmp_path / "tls", "lumberjack", "pravega", form, *words)
    assert "All IPv4 addresses are listened to, by TLS" in capsys.readouterr().out
    tls = [one["tls"] for one in yaml.safe_load(file.read_text())["listeners"]]
    wanted = str(pair.certificate), str(pair.key)
    if form == "--compose":
        compose = yaml.safe_load((tmp_path / "tls" / "compose.yaml").read_text())
        mounts = compose["services"]["gateway"]["volumes"]
        inside = "/etc/gateway/tls.crt", "/etc/gateway/tls.key"
        assert {
            f"{one}:{there}:ro" for one, there in zip(wanted, inside, strict=True)
        } <= {*mounts}
        wanted = inside
    assert tls == [{"certificate": wanted[0], "private_key": wanted[1]}] * 2
    assert (
        cli.main(["init", "rsio", form, *words[:2], "--directory", str(tmp_path / "x")])
        == 2
    )
    assert "--certificate and --key need each other" in capsys.readouterr().err


def test_compose(tmp_path):
    """Both processes share the data; the ports are those of the listeners."""
    loaded = config.load(init(tmp_path, "lumberjack", "pravega", "--compose"))
    assert [str(each.listen) for each in loaded.listeners] == ["tcp:5044", "tcp:12345"]
    services = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]
    page = "127.0.0.1:8080:8080"
    assert services["gateway"]["ports"] == [
        "5044:5044", "12345:12345", "9090:9090", page
    ]  # fmt: skip
    assert str(loaded.admin.listen) == "tcp:0.0.0.0:8080"
    assert loaded.admin.token is not None
    assert services["gateway"]["hostname"] == loaded.node
    assert services["spark"]["volumes"] == services["gateway"]["volumes"]
    assert loaded.data_dir == Path("/var/lib/gateway")
    assert services["gateway"]["volumes"][0] == "data:/var/lib/gateway"


def test_compose_with_a_directory_of_this_machine(tmp_path, capsys):
    """It is mounted where the images have theirs, and whose it must be is said: what is
    kept would be gone with the container elsewhere.
    """
    words = ("lumberjack", "--compose", "--data-dir", "/srv/$gateway")
    loaded = config.load(init(tmp_path, *words))
    assert loaded.data_dir == Path("/var/lib/gateway")
    compose = yaml.safe_load((tmp_path / "compose.yaml").read_text())
    services = compose["services"]
    assert services["gateway"]["volumes"][0] == "/srv/$$gateway:/var/lib/gateway"
    assert services["spark"]["volumes"] == services["gateway"]["volumes"]
    assert "volumes" not in compose
    said = capsys.readouterr().out
    assert "install -d -o 10001 -g 10001 '/srv/$gateway'" in said
    assert "\nUSER 10001:10001\n" in (ROOT / "Dockerfile").read_text()


def test_units_for_another_directory(tmp_path, monkeypatch, capsys):
    """They may write there; and what lies in somebody's home is not hidden from them."""
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "gateway").touch()
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    words = ("lumberjack", "--systemd", "--data-dir")
    loaded = config.load(init(tmp_path / "srv", *words, "/srv/100% mine"))
    assert loaded.data_dir == Path("/srv/100% mine")
    assert "-g gateway '/srv/100% mine'" in capsys.readouterr().out
    init(tmp_path / "home", *words, "/home/me/gateway")
    monkeypatch.setattr(sys, "base_prefix", str(Path("/root") / "python-3.12"))
    init(tmp_path / "python", "lumberjack", "--systemd")
    for folder, writable, homes in (
        ("srv", '"/srv/100%% mine"', "yes"),
        ("home", "/home/me/gateway", "read-only"),
        ("python", None, "read-only"),
    ):
        for unit in ("gateway", "gateway-spark"):
            text = (tmp_path / folder / f"{unit}.service").read_text()
            found = re.findall("^ReadWritePaths=(.*)$", text, re.MULTILINE)
            assert found == ([] if writable is None else [writable])
            assert f"\nProtectHome={homes}\n" in text


@pytest.mark.parametrize(("mask", "told"), [(0o077, True), (0o022, False)])
def test_compose_where_files_are_for_their_owner(tmp_path, capsys, mask, told):
    """The containers, which run as somebody else, could not read the configuration."""
    before = os.umask(mask)
    try:
        file = init(tmp_path, "lumberjack", "--compose")
    finally:
        os.umask(before)
    says = f"The containers run as 10001, who may not read {file}: chmod a+r it"
    assert (says in capsys.readouterr().out) is told


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--compose", "--data-dir", "data"), "with --compose, say all of it"),
        (("--systemd", "--data-dir", "data"), "with --systemd, say all of it"),
        (
            ("--compose", "--data-dir", "/srv/a:b"),
            "no path with a colon can be mounted",
        ),
        (("--compose", "--systemd", "--data-dir", "/srv"), "one of --systemd and"),
    ],
)
def test_directories_that_nobody_can_mount(tmp_path, capsys, words, why):
    """Nothing is written."""
    assert cli.main(["init", "lumberjack", *words, "--directory", str(tmp_path)]) == 2
    assert why in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
