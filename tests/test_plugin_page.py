"""docs/plugin.md: its excerpts are the example's code, its other code runs, and no hook,
no field and no ready test is missing."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
from pydantic import Field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock, LoopingCall

import gateway_syslog
from gateway import cli, config, plugins, sdk
from gateway.event import Batch, Origin, Rows, Stored
from gateway.sdk import figures, protocol
from gateway.sdk.batches import BatchListener, Ready
from gateway.sdk.costs import BYTE
from gateway.sdk.fields import ByteCount, Seconds, Secret
from gateway.sdk.http_server import HttpListener, HttpOptions, HttpSession, Stores
from gateway.sdk.limits import Limits
from gateway.sdk.protocol import Answer
from gateway.sdk.section import NEW_CONNECTIONS, Section, restart
from gateway.testing import FakeConnection, ManualJournal
from gateway.testing.plugins import lend
from gateway_syslog.options import Options as SyslogOptions
from gateway_syslog.session import Session
from gateway_testkit.contract import ProtocolContract
from gateway_testkit.killed import KilledContract
from gateway_testkit.settings import settings

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "syslog"
PAGE = (ROOT / "docs" / "plugin.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"# (\S+\.\w+)\n")
EXCERPTS = [(m[1], b.removeprefix(m[0])) for _, b in BLOCKS if (m := NAMED.match(b))]
SNIPPETS = [b for kind, b in BLOCKS if kind == "python" and not NAMED.match(b)]

#: What the page's code may use without saying where it is from.
KNOWN: dict[str, Any] = {
    **{name: getattr(protocol, name) for name in protocol.__all__},
    **{name: getattr(figures, name) for name in figures.__all__},
    "Answer": Answer,
    "BYTE": BYTE,
    "BatchListener": BatchListener,
    "HttpSession": HttpSession,
    "Ready": Ready,
    "Stores": Stores,
    "ByteCount": ByteCount,
    "ClassVar": ClassVar,
    "Field": Field,
    "LoopingCall": LoopingCall,
    "NEW_CONNECTIONS": NEW_CONNECTIONS,
    "Rows": Rows,
    "Seconds": Seconds,
    "Secret": Secret,
    "Section": Section,
    "Session": Session,
    "json": json,
    "partial": partial,
    "restart": restart,
    "succeed": succeed,
    "suppress": suppress,
}


def own(kind: type) -> set[str]:
    """Its public names, without those that every object has."""
    return {name for name in vars(kind) if not name.startswith("_")} | {
        name for name in kind.__annotations__ if not name.startswith("_")
    }


def cells(first: str, page: str = PAGE) -> list[str]:
    """All names in the first cells of the table whose header begins so."""
    table = page.partition(f"\n| {first} |")[2].partition("\n\n")[0]
    left = [row.split("|")[1] for row in table.splitlines()[2:]]
    return [name for cell in left for name in re.findall(r"`(\w+)", cell)]


# What is there


def test_every_hook_has_its_place():
    """In the table of its kind, and in the code that runs here."""
    for kind in (protocol.Protocol, protocol.Service):
        assert set(cells(f"hook of `{kind.__name__}`")) == own(kind)
    shown = "".join(SNIPPETS)
    for hook in own(protocol.Protocol) | own(protocol.Service):
        if callable(
            getattr(protocol.Protocol, hook, getattr(protocol.Service, hook, 0))
        ):
            assert f"def {hook}(" in shown or hook == "options", hook


def test_every_module_is_in_its_table():
    """All of the surface."""
    table = PAGE.partition("\n| for | modules of `gateway.sdk` |")[2].partition("\n\n")[
        0
    ]
    right = "".join(row.split("|")[2] for row in table.splitlines()[2:])
    modules = {path.stem for path in Path(sdk.__file__).parent.glob("*.py")}
    assert modules - {"__init__"} <= set(re.findall(r"`(\w+)`", right))


def test_what_the_kit_asks_for_is_in_its_table():
    """What a subclass says; and how many tests it gets for that is said."""
    names = own(ProtocolContract)
    ready = {name for name in names if name.startswith("test_")}
    assert set(cells("what it says")) == names - ready
    assert len(ready) == 17, "the page says how many tests there are"
    said = set(cells("what it says", PAGE.partition("KilledContract")[2]))
    more = {name for name in own(KilledContract) if not name.startswith("test_")}
    assert said == more - {"protocol", "options", "opening", "acknowledges"}


# What is shown


@pytest.mark.parametrize(
    ("name", "shown"), EXCERPTS, ids=[name for name, _ in EXCERPTS]
)
def test_excerpts_are_the_examples(name, shown):
    """Line for line; `# …` stands for what is left out."""
    file, at = (EXAMPLE / name).read_text(), 0
    for piece in re.split(r"^ *# …\n", shown, flags=re.MULTILINE):
        found = file.find(piece, at)
        assert found >= 0, piece
        at = found + len(piece)


def test_excerpts_are_many():
    """All files of the example are there."""
    modules = {path.name for path in (EXAMPLE / "gateway_syslog").glob("*.py")}
    assert modules <= {Path(name).name for name, _ in EXCERPTS}


def test_listeners_can_be_copied(tmp_path, monkeypatch):
    """The page's configuration, and the README's, are valid."""
    found = plugins.Installed({"syslog": gateway_syslog.protocol}, {})
    monkeypatch.setattr(plugins, "installed", lambda: found)
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).touch()
    readme = (EXAMPLE / "README.md").read_text()
    shown = re.findall(r"^```yaml\n(.*?)^```", PAGE + readme, re.DOTALL | re.MULTILINE)
    assert len(shown) == 2
    for text in shown:
        file = tmp_path / "gateway.yaml"
        file.write_text(text)
        [listener] = config.load(file).listeners
        assert listener.protocol == "syslog"


def test_commands_exist():
    """Those of the gateway that the page calls."""
    called = re.findall(r"^gateway (\w+)", PAGE, re.MULTILINE)
    assert called
    assert set(called) <= set(cli.commands())


# What runs


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """What the page's code defines; classes of one name are one."""
    made: dict[str, list[type]] = {}
    for block in SNIPPETS:
        space = dict(KNOWN)
        exec(compile(block, "docs/plugin.md", "exec", dont_inherit=True), space)
        for name, one in space.items():
            if isinstance(one, type) and one is not KNOWN.get(name):
                made.setdefault(name, []).append(one)
    return {name: type(name, tuple(classes), {}) for name, classes in made.items()}


@pytest.fixture
def listeners() -> list[config.Listener]:
    """Two, whose options differ."""
    return [
        config.Listener.model_construct(
            name=zone,
            protocol="syslog",
            limits=Limits(),
            options=SyslogOptions(timezone=zone),
        )
        for zone in ("UTC", "Europe/Oslo")
    ]


def test_hooks_of_the_protocol(page, listeners, tmp_path):
    """They give what the page says."""
    plugin = page["Syslog"]()
    assert (plugin.name, plugin.limits) == ("syslog", gateway_syslog.protocol.limits)
    assert page["Options"]().line_bytes == 8192
    assert page["Options"].reload is NEW_CONNECTIONS
    assert page["Options"].reloads["token"].when == "restart"
    assert list(plugin.misfits({0: listeners[0]})) == []
    places = [place for place, _ in plugin.misfits(dict(enumerate(listeners)))]
    assert places == [("listeners", n, "options", "timezone") for n in (0, 1)]
    assert plugin.decoder(())(b"a\nb").count == 2
    assert plugin.starter("") == gateway_syslog.protocol.starter("")
    assert list(plugin.describe(listeners[1].options)) == ["times in Europe/Oslo"]
    service = plugin.service(lend(plugin, tmp_path, listeners))
    assert [type(port) for port in service.ports(listeners[0])] == [protocol.Port]
    assert isinstance(plugin.sender(), protocol.Sender)
    assert set(plugin.commands()) == {"syslog-check"}


def test_hooks_of_the_service(page, listeners, tmp_path):
    """They do what the page says."""
    clock, called = Clock(), Mock()
    clock.callFromThread = lambda call: call()  # type: ignore[attr-defined]
    service = page["SyslogService"]()
    service.context = SimpleNamespace(reactor=clock, journal=Mock(), data_dir=tmp_path)
    service.names, service.hosts = called.names, ["a"]
    service.forget_idle_hosts = called.forget_idle_hosts
    service.forget_old_events = called.forget_old_events
    assert [type(port) for port in service.ports(listeners[0])] == [protocol.Port]
    service.start()
    clock.advance(60)
    assert called.forget_idle_hosts.call_count == 2
    Deferred.fromCoroutine(service.stop())
    assert not clock.getDelayedCalls()
    service.close()
    called.names.close.assert_called_once()
    service.reload()
    assert service.hosts == ["a"]
    (tmp_path / "hosts").write_text("b c")
    service.reload()
    service.files_removed()
    called.forget_old_events.assert_called_once()
    [section] = service.statistics()
    assert section.values[0][1] == 2
    [post] = service.posts().values()
    assert post(b"{}").code == 200


def test_what_is_remembered(page):
    """A batch that the snapshot knows already changes nothing."""
    origin = Origin("syslog", "test", "1", "peer")
    batches = [Stored(Batch(origin, 0, 3, b"", 0), lsn) for lsn in (1, 4, 7)]
    snapshot: Callable[[Any], Any] = lambda seen: seen.snapshot().result  # noqa: E731
    whole, early, again = (page["Seen"]() for _ in range(3))
    for stored in batches[:2]:
        early.replay(stored)
    again.restore(snapshot(early))
    for stored in batches:
        whole.replay(stored)
        again.replay(stored)
    assert snapshot(again) == snapshot(whole)
    assert whole.events == 9


def test_a_protocol_in_http(page):
    """Its lines are stored, and answered then; what has none is wrong."""
    journal, connection = ManualJournal(), FakeConnection()
    made = settings(HttpOptions)
    listener = HttpListener(made, journal, Clock(), page["Lines"])
    connection.serve(listener(connection))
    for path, body in (("/lines", b"a\nb"), ("/lines", b""), ("/else", b"")):
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.deliver(head.encode() + body)
    journal.store_all()
    assert re.findall(rb"HTTP/1.1 (\d+)", connection.sent) == [b"200", b"400", b"404"]
    assert [stored.batch.count for stored in journal.stored] == [2]


def test_no_block_is_overlooked():
    """Each has a language that is compared, run or, for shells, looked at."""
    assert {kind for kind, _ in BLOCKS} == {"python", "sh", "toml", "yaml"}
    fences = len(re.findall(r"^```", PAGE, re.MULTILINE))
    assert fences == 2 * (len(BLOCKS) + 1)  # the tree of folders has no language
