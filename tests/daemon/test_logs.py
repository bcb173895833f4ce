"""What the daemon writes to standard error."""

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.application.service import Application
from twisted.logger import ILogObserver, Logger, LogLevel, LogPublisher

from deadlines import run
from gateway.daemon import logs
from gateway.daemon.logs import escape, observer
from making import Make


@dataclass
class Settings:
    """The `logging` section."""

    level: str = "info"
    format: str = "text"


@dataclass
class Journal:
    """A logger whose lines a test reads."""

    settings: Settings = field(default_factory=Settings)
    out: io.StringIO = field(default_factory=io.StringIO)

    def __post_init__(self) -> None:
        """Wire it up as the daemon does."""
        publisher = LogPublisher(observer(self.settings, self.out))
        self.source = Logger("gateway.net", observer=publisher)

    @property
    def lines(self) -> list[str]:
        """All of them so far."""
        return self.out.getvalue().split("\n")[:-1]

    @property
    def messages(self) -> list[str]:
        """The lines without time, level and logger."""
        return [line.partition("gateway.net: ")[2] for line in self.lines]


def test_a_line_of_text():
    """Time, level, logger, message."""
    journal = Journal()
    journal.source.info("{peer} came", peer="192.0.2.1:5")
    [line] = journal.lines
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info  gateway\.net: 192\.0\.2\.1:5 came",
        line,
    )


def test_a_line_of_json():
    """The same with its fields, for programs."""
    journal = Journal(Settings(format="json"))
    journal.source.warn(
        "{peer} refused",
        peer="p",
        limit=5,
        ratio=0.5,
        nan=float("nan"),
        path=Path("/x"),
    )
    [line] = journal.lines
    record = json.loads(line)
    assert record.pop("ts").endswith("Z")
    assert record == {
        "level": "warn",
        "logger": "gateway.net",
        "msg": "p refused",
        "peer": "p",
        "limit": 5,
        "ratio": 0.5,
        "nan": "nan",
        "path": "/x",
    }


def test_a_field_can_not_pose_as_ours():
    """A field called `logger` or `msg` does not replace the record's own."""
    journal = Journal(Settings(format="json"))
    journal.source.info("really", logger="forged", msg="forged", ts="1970")
    [line] = journal.lines
    record = json.loads(line)
    assert (record["logger"], record["msg"]) == ("gateway.net", "really")
    assert record["ts"] != "1970"


@pytest.mark.parametrize("form", ["text", "json"])
@given(peer=st.text(max_size=40))
def test_a_peer_can_write_nothing_but_text(form, peer):
    """Whatever a peer is called, there is one line and all of it is printable."""
    journal = Journal(Settings(format=form))
    journal.source.warn(
        "{peer} said {what!r}", peer=peer, what=peer.encode("utf-8", "replace")
    )
    text = journal.out.getvalue()
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    if form == "json":
        assert json.loads(text)["peer"] == peer


def test_escapes():
    """Line ends, terminal codes, Unicode's line ends and reversals: all as escapes."""
    assert escape("a\x1b[31m\r\n\t\u2028\u202e\x9b\udcff\0é") == (
        "a\\x1b[31m\\r\\n\\t\\u2028\\u202e\\x9b\\udcff\\x00é"
    )


def test_what_a_peer_says_is_no_format():
    """Braces in a value stay braces."""
    journal = Journal()
    journal.source.info("{peer}", peer="{log_format} {peer.__class__} {0}")
    assert journal.messages == ["{log_format} {peer.__class__} {0}"]


def test_a_long_message_is_cut():
    """A line is bounded, and says what it leaves out."""
    journal = Journal()
    journal.source.info("{x}", x="y" * 100_000)
    [message] = journal.messages
    assert len(message) < 5000
    assert message.endswith("… (100000 characters)")


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["debug", "info", "warn", "error", "critical"]),
        ("warn", ["warn", "error", "critical"]),
        ("critical", ["critical"]),
    ],
)
def test_levels(level, expected):
    """What is less than the level is not written."""
    journal = Journal(Settings(level=level))
    for each in LogLevel.iterconstants():
        journal.source.emit(each, each.name)
    assert sorted(journal.messages) == sorted(expected)


def test_twisteds_chatter_is_left_out():
    """Its legacy lines are for debugging, and no one needs its factories."""
    for level, expected in (("info", 0), ("debug", 1), ("critical", 0)):
        journal = Journal(Settings(level=level))
        publisher = journal.source.observer
        Logger("log_legacy", observer=publisher).info("Site starting on 80")
        journal.source.info("Starting factory {factory!r}", factory=None)
        assert len(journal.lines) == expected
    journal = Journal()
    Logger("log_legacy", observer=journal.source.observer).error("lost")
    assert len(journal.lines) == 1


def test_a_traceback_in_text():
    """It follows its line, indented, and what the exception says is escaped."""
    journal = Journal()
    try:
        raise ValueError("a\x1b]0;title\x07\nb")
    except ValueError:
        journal.source.failure("broken")
    first, *rest = journal.lines
    assert first.endswith(" critical gateway.net: broken")
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    assert "\\x1b]0;title\\x07" in "".join(rest)


class Rude(Exception):
    """One that can not be shown."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_exception_that_can_not_be_shown(form):
    """There is a line for it all the same."""
    journal = Journal(Settings(format=form))
    try:
        raise Rude
    except Rude:
        journal.source.failure("broken", what=Rude())
    assert "broken" in journal.lines[0]


def test_other_settings_while_it_runs(tmp_path, monkeypatch):
    """A reload changes level and format; twistd keeps the observer that it was given."""
    out = io.StringIO()
    monkeypatch.setattr(logs, "_output", lambda _: out)
    application: Any = Application("probe")
    root = logs.LoggingService(Settings(level="error"))  # type: ignore[arg-type]
    root.setServiceParent(application)
    log = Logger("probe", observer=application.getComponent(ILogObserver))
    log.info("not yet")
    root.configure(Settings(format="json"))  # type: ignore[arg-type]
    log.info("now")
    [line] = out.getvalue().splitlines()
    assert json.loads(line)["msg"] == "now"


# -- under twistd -------------------------------------------------------------

_TAP = """
from types import SimpleNamespace
from twisted.application.service import Service
from twisted.internet import reactor
from twisted.logger import Logger
from twisted.python import usage
from gateway.daemon import logs

class Options(usage.Options):
    pass

class Probe(Service):
    def startService(self):
        Logger("probe").info("{{x}}", x="from a service")
        print("from print")
        reactor.callWhenRunning(reactor.stop)

def makeService(options):
    root = logs.LoggingService(SimpleNamespace(level="info", format="json"), options.parent)
    Probe().setServiceParent(root)
    return root
"""
_PLUGIN = """
from twisted.application.service import ServiceMaker
probe = ServiceMaker("probe", "probe_tap", "", "probe")
"""


@pytest.fixture
def twistd(tmp_path) -> Make[subprocess.CompletedProcess[str]]:
    """Run twistd with a service that logs one line, prints one, and stops."""
    plugins = tmp_path / "twisted" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "probe_plugin.py").write_text(_PLUGIN)
    (tmp_path / "probe_tap.py").write_text(_TAP.replace("{{", "{").replace("}}", "}"))

    path = [str(tmp_path), *filter(None, sys.path)]
    start = (
        f"import sys; sys.path[:0] = {path!r}; sys.argv[0] = 'twistd'\n"
        "from twisted.scripts.twistd import run; run()"
    )
    return lambda *options: run(
        *(sys.executable, "-c", start), *options, "--pidfile=", "probe", cwd=tmp_path
    )


def records(text: str) -> list[dict[str, Any]]:
    """Lines of JSON, every one."""
    return [json.loads(line) for line in text.splitlines()]


def test_twistd_logs_with_ours_alone(twistd):
    """Each line once, on standard error, in our format; twistd's own lines too."""
    done = twistd("-n")
    assert done.stdout == ""
    messages = [record["msg"] for record in records(done.stderr)]
    assert messages.count("from a service") == 1
    assert messages.count("from print") == 1
    assert any("starting up" in message for message in messages)


def test_twistd_with_a_logfile(twistd, tmp_path):
    """`twistd --logfile` gets our lines: a daemon has no standard error."""
    done = twistd("-n", "--logfile", "here.log")
    assert done.stdout == done.stderr == ""
    messages = [
        record["msg"] for record in records((tmp_path / "here.log").read_text())
    ]
    assert messages.count("from a service") == 1


def test_a_logfile_that_can_not_be(twistd, tmp_path):
    """As in a folder that nobody may write to: a sentence, and no traceback."""
    done = twistd("-n", "--logfile", "none/here.log")
    assert done.returncode == 1
    assert f"its log {tmp_path}/none/here.log: No such file or direc" in done.stderr
    assert "say --logfile PATH" in done.stderr
    assert "Traceback" not in done.stderr


# systemd's journal


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_journal_gets_priorities(form, tmp_path, monkeypatch):
    """On each line, those of a traceback too: `journalctl -p warning` finds them."""
    with (tmp_path / "stream").open("w+") as stream:
        stat = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{stat.st_dev}:{stat.st_ino}")
        log = Logger(
            "gateway.net",
            observer=LogPublisher(observer(Settings(format=form), stream)),
        )
        log.info("begun")
        log.emit(LogLevel.warn, "odd")
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            log.failure("broken", level=LogLevel.error)
        stream.seek(0)
        lines = stream.read().splitlines()
    assert [line[:3] for line in lines[:3]] == ["<6>", "<4>", "<3>"]
    assert all(line.startswith("<3>") for line in lines[3:])
    assert (len(lines) > 3) == (form == "text")


@pytest.mark.parametrize("stream", [None, "", "1:2", "no stream"])
def test_nobody_else_gets_them(stream, tmp_path, monkeypatch):
    """Not even below a service whose standard error went elsewhere."""
    if stream is None:
        monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    else:
        monkeypatch.setenv("JOURNAL_STREAM", stream)
    with (tmp_path / "file").open("w") as out:
        assert not logs.is_journal(out)
    assert not logs.is_journal(io.StringIO())
