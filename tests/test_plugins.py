"""How protocols are found: what is installed, and what becomes of packages that are
broken."""

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any, Literal
from unittest.mock import Mock

import pytest
from pydantic import Field

from gateway import cli, config, plugins
from gateway.cli import check, init, send
from gateway.event import Decode, Rows
from gateway.sdk.fields import SHARED_BY_LISTENERS, ByteCount, FolderName
from gateway.sdk.protocol import Port, Protocol, Service
from gateway.sdk.section import Section


class Good(Protocol):
    name = "good"


class Nameless(Protocol):
    pass


class Unlimited(Protocol):
    name = "unlimited"
    limits = None  # type: ignore[assignment]


MODULE = ModuleType("tests_plugins_probe")
MODULE.unlimited = Unlimited()  # type: ignore[attr-defined]
MODULE.good, MODULE.nameless, MODULE.number = Good(), Nameless(), 7  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def probe(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE.__name__, MODULE)


def point(name: str, attribute: str, package: str = "probe") -> EntryPoint:
    found = EntryPoint(name, f"{MODULE.__name__}:{attribute}", plugins.GROUP)
    return found._for(SimpleNamespace(name=package, version="1.0"))  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def only(monkeypatch) -> Callable[[Protocol], None]:
    """No other protocol is installed than this one."""

    def only(protocol: Protocol) -> None:
        found = plugins.Installed({protocol.name: protocol}, {})
        for module in (plugins, check, init):
            monkeypatch.setattr(module, "installed", lambda: found)

    return only


@pytest.fixture
def load(tmp_path) -> Callable[..., Any]:
    """Reads a configuration with these listeners, in YAML."""

    def load(*listeners: str) -> Any:
        file = tmp_path / "gateway.yaml"
        file.write_text(f"listeners: [{', '.join(listeners)}]")
        return config.load(file).listeners

    return load


def test_the_four_come_through_the_same_door():
    """What is built in is found as anybody's is."""
    found = plugins.installed()
    assert {"lumberjack", "pomelo", "pravega", "rsio"} <= set(found.protocols)
    assert not found.broken


def test_one_that_is_sound():
    """It is there under its name."""
    found = plugins.find([point("good", "good")])
    assert found.protocols == {"good": MODULE.good}
    assert found.broken == {}


@pytest.mark.parametrize(
    ("name", "attribute", "why"),
    [
        ("good", "missing", "AttributeError"),
        ("good", "number", "of type int, not an object of a subclass"),
        ("nameless", "nameless", "is named None"),
        ("other", "good", "is named 'good', and its entry point 'other'"),
        ("Loud Name", "good", "lower case letters, digits and dashes"),
        ("unlimited", "unlimited", "limits are None, not a mapping"),
    ],
)
def test_one_that_is_broken(name, attribute, why):
    """It is left out with a sentence that names the package; the others stay."""
    found = plugins.find([point(name, attribute, "acme-wires"), point("fine", "good")])
    assert name not in found.protocols
    assert why in found.broken[name]
    assert "package acme-wires 1.0" in found.broken[name]


def test_an_import_that_fails():
    """Whatever the package raises is its reason."""
    lost = EntryPoint("lost", "tests_no_such_module:protocol", plugins.GROUP)
    why = plugins.find([lost]).broken["lost"]
    assert "ModuleNotFoundError: No module named 'tests_no_such_module'" in why
    assert "a package without metadata" in why


def test_an_import_that_exits(tmp_path, monkeypatch):
    """A module that calls `exit` ends no command: it is broken as others are."""
    (tmp_path / "tests_exits.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    exits = EntryPoint("exits", "tests_exits:protocol", plugins.GROUP)
    found = plugins.find([exits, point("fine", "good"), point("good", "good")])
    assert "tests_exits:protocol: SystemExit: 3" in found.broken["exits"]
    assert set(found.protocols) == {"good"}


def test_two_of_one_name():
    """Neither is taken: which one would be chance."""
    found = plugins.find([point("good", "good", "a"), point("good", "nameless", "b")])
    assert "good" not in found.protocols
    assert "package a 1.0 and package b 1.0" in found.broken["good"]
    assert "uninstall all but one" in found.broken["good"]


def test_the_same_entry_point_twice():
    """An installation over another one is no second package."""
    found = plugins.find([point("good", "good"), point("good", "good")])
    assert set(found.protocols) == {"good"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("relp", "entry point in the group gateway.protocols"),
        ("lumberjak", "did you mean 'lumberjack'?"),
        ("../x", "lumberjack, "),
        ("Filebeat", "what Filebeat speaks is 'lumberjack' here"),
    ],
)
def test_an_unknown_protocol(name, says, load):
    """The configuration's error says which are installed, and what to install."""
    with pytest.raises(config.Invalid) as caught:
        load(f"{{name: a, protocol: {name}, listen: tcp:1}}")
    text = str(caught.value)
    assert "listeners[0].protocol: " in text
    assert says in text


def test_a_broken_one_that_is_asked_for(load, monkeypatch):
    """The configuration's error is the plug-in's reason, not that it is not there."""
    broken = plugins.find([point("good", "missing", "acme-wires")])
    monkeypatch.setattr(plugins, "installed", lambda: broken)
    with pytest.raises(
        config.Invalid, match=r"package acme-wires 1\.0.*AttributeError"
    ):
        load("{name: a, protocol: good, listen: tcp:1}")


def with_options(kind: type[Section]) -> Protocol:
    """A plug-in that has these."""

    class Wires(Protocol):
        name = "good"

        def options(self) -> type[Section]:
            return kind

    return Wires()


def test_what_a_plugin_says_of_its_options(only, load):
    """Its keys are checked, explained and in the schema like the gateway's own."""

    class Options(Section):
        line_bytes: ByteCount = Field(default=8192, description="One line (size)")

    only(with_options(Options))
    text = "{name: a, protocol: good, listen: tcp:1, options: {%s}}"
    [listener] = load(text % "line_bytes: 1KiB")
    assert listener.options.line_bytes == 1024
    with pytest.raises(config.Invalid, match="did you mean 'line_bytes'"):
        load(text % "line_byte: 1KiB")
    schema = config.json_schema()
    assert schema["$defs"]["Listener"]["allOf"][0]["then"] == {
        "properties": {"options": {"$ref": "#/$defs/Options"}}
    }
    keys = schema["$defs"]["Options"]["properties"]
    assert keys["line_bytes"]["description"] == "One line (size)"
    assert keys["line_bytes"]["default"] == "8KiB"


def test_choices_of_a_plugin_may_be_numbers(only, load):
    """… and whoever chooses none of them is told which there are."""

    class Options(Section):
        version: Literal[1, 2, "any"] = Field(default=2, description="Of the protocol")

    only(with_options(Options))
    text = "{name: a, protocol: good, listen: tcp:1, options: {version: %s}}"
    [listener] = load(text % 1)
    assert listener.options.version == 1
    with pytest.raises(config.Invalid, match="version: must be 1, 2 or any, not 3"):
        load(text % 3)


def test_options_that_are_no_section(only, load, capsys):
    """It is an error at the listener's place; the schema is without them."""
    only(with_options(dict))  # type: ignore[arg-type]
    plugins.complain.cache_clear()
    why = "protocol 'good' fails in options: TypeError: <class 'dict'> is no subclass"
    with pytest.raises(config.Invalid, match=rf"listeners\[0\]\.options: {why}"):
        load("{name: a, protocol: good, listen: tcp:1}")
    assert config.json_schema()["$defs"]["Listener"]["allOf"] == []
    assert why in capsys.readouterr().err


def test_listeners_of_a_plugin_share_no_directory(only, load):
    """Unless the plug-in says of that option that they may."""

    class Options(Section):
        own: FolderName = Path("own")
        shared: Annotated[FolderName, SHARED_BY_LISTENERS] = Path("shared")

    only(with_options(Options))
    one = "{name: a, protocol: good, listen: tcp:1}"
    other = "{name: b, protocol: good, listen: tcp:2, options: {own: other}}"
    assert len(load(one, other)) == 2
    other = "{name: b, protocol: good, listen: tcp:2}"
    with pytest.raises(config.Invalid, match=r"own overlaps with listeners\[0\]"):
        load(one, other)


@pytest.mark.parametrize(
    ("limits", "idle", "handshake"),
    [
        ("", 30 * 86400, 10),
        ("limits: {}", 30 * 86400, 10),
        ("limits: {handshake: 5s}", 30 * 86400, 5),
        ("limits: {idle: 1m}", 60, 10),
    ],
)
def test_a_plugins_own_limits(limits, idle, handshake, only, load):
    """They are the defaults where the configuration says nothing."""

    class Wires(Protocol):
        name = "good"
        limits = {"idle": "30d"}

    only(Wires())
    [listener] = load(f"{{name: a, protocol: good, listen: tcp:1, {limits}}}")
    assert (listener.limits.idle, listener.limits.handshake) == (idle, handshake)
    with pytest.raises(config.Invalid, match=r"listeners\[0\]\.limits"):
        load("{name: a, protocol: good, listen: tcp:1, limits: [x]}")


class Failing(Protocol):
    """Every hook that a command asks raises."""

    name = "failing"

    def _fail(self, *_: object) -> Any:
        raise RuntimeError("out of order")

    options = misfits = decoder = describe = sender = commands = _fail


@pytest.fixture
def with_failing(monkeypatch) -> Protocol:
    """A plug-in whose hooks raise is installed beside the others."""
    failing = Failing()
    found = plugins.Installed({**plugins.installed().protocols, "failing": failing}, {})
    for module in (plugins, check, cli, send):
        monkeypatch.setattr(module, "installed", lambda: found)
    plugins.complain.cache_clear()
    return failing


@pytest.mark.parametrize(
    ("words", "hook"),
    [(["--help"], "commands"), (["send", "--help"], "sender"), (["schema"], "options")],
)
@pytest.mark.usefixtures("with_failing")
def test_hooks_that_raise_cost_the_others_nothing(words, hook, capsys):
    """Commands go on without that plug-in, and say so once."""
    assert cli.main(words) == 0
    assert cli.main(words) == 0
    said = capsys.readouterr()
    assert "lumberjack" in said.out or hook == "commands"
    why = f"gateway: protocol 'failing' fails in {hook}: RuntimeError: out of order\n"
    assert said.err.count(why) == 1


@pytest.mark.parametrize(
    ("words", "hook", "answer"),
    [
        (["--help"], "commands", None),
        (["--help"], "commands", ["x"]),
        (["--help"], "commands", {"x": 7}),
        (["send", "--help"], "sender", 7),
    ],
)
def test_hooks_that_give_something_else_cost_the_others_nothing(
    with_failing, monkeypatch, capsys, words, hook, answer
):
    """As if they had raised."""
    monkeypatch.setattr(type(with_failing), hook, lambda self: answer)
    assert cli.main(words) == 0
    why = f"gateway: protocol 'failing' fails in {hook}: TypeError: it gives {answer!r}"
    assert why in capsys.readouterr().err


@pytest.mark.usefixtures("with_failing")
def test_files_are_read_without_it():
    assert set(plugins.decoders()) == set(plugins.installed().protocols) - {"failing"}


@pytest.mark.usefixtures("with_failing")
def test_a_listener_of_a_plugin_that_fails(load):
    """It is an error of the configuration, at its place."""
    with pytest.raises(
        config.Invalid,
        match=r"listeners\[0\]\.options: protocol 'failing' fails in options: Runtime",
    ):
        load("{name: a, protocol: failing, listen: tcp:1}")


def test_a_starter_that_fails(only, monkeypatch, tmp_path, capsys):
    """`gateway init` says whose it is, and writes nothing."""
    only(MODULE.good)
    monkeypatch.setattr(Good, "starter", lambda self, host: None, raising=False)
    assert cli.main(["init", "good", "--directory", str(tmp_path)]) == 2
    assert "protocol 'good' fails in starter: TypeError" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("hook", ["misfits", "describe"])
def test_a_check_that_fails(hook, only, tmp_path, capsys):
    """`gateway check` says which hook of which protocol it is."""

    class Half(Protocol):
        name = "half"

        def decoder(self, _: object) -> Decode:
            return lambda body: Rows([body])

        def service(self, _: object) -> Service:
            return Silent()

    class Silent(Service):
        def ports(self, _: object) -> list[Port]:
            return [Port(accept=Mock())]

    setattr(Half, hook, Failing._fail)
    only(Half())
    file = tmp_path / "gateway.yaml"
    file.write_text("listeners: [{name: a, protocol: half, listen: tcp:1}]")
    status = cli.main(["check", str(file)])
    said = capsys.readouterr()
    assert status == (1 if hook == "misfits" else 0)
    assert f"protocol 'half' fails in {hook}: RuntimeError" in said.out + said.err
