r"""The daemon's log: text for people or JSON for programs, on standard error.

Log lines quote what peers send, so every character that is not printable is written as
an escape (`\x1b`, `\n`, `\u2028`).  So it can do nothing to a terminal or a log file.  A
log event is one line; in text a traceback adds more, each of them indented.

Log nothing per event, and rate-limit what a peer can cause (`net.rejection_log`):
a line costs as much CPU as thirty events.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO, cast

from twisted.application.service import MultiService
from twisted.logger import (
    FilteringLogObserver,
    ILogFilterPredicate,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    PredicateResult,
    formatEvent,
)
from twisted.python.components import Componentized
from twisted.python.failure import Failure
from twisted.python.logfile import LogFile
from zope.interface import implementer, provider

from gateway.config.model import Logging
from gateway.daemon.terminal import leave
from gateway.spoken import log_line, stamp

_MAX_MESSAGE = 4000
_MAX_TRACEBACK_LINES = 60
#: syslog's priorities, as sd-daemon(3) has them before each line.
_PRIORITY = {
    LogLevel.debug: "<7>",
    LogLevel.info: "<6>",
    LogLevel.warn: "<4>",
    LogLevel.error: "<3>",
    LogLevel.critical: "<2>",
}
#: Fields of Twisted's older logging, which say what ours say already.
_LEGACY = frozenset(
    ("failure", "format", "isError", "logLevel", "message", "system", "time", "why")
)


# -- where it goes ------------------------------------------------------------


class LoggingService(MultiService):
    """The root of the daemon's services: makes twistd log as the configuration says.

    twistd begins logging itself, with the observer that it finds on the application;
    this puts ours there when it is added.
    """

    def __init__(
        self, settings: Logging, twistd: Mapping[str, Any] | None = None
    ) -> None:
        """*twistd* has the options of its command line: `Options.parent`."""
        super().__init__()
        self._settings = settings
        self._twistd = twistd or {}
        self._observer: _Replaceable | None = None

    def setServiceParent(self, parent: Any) -> None:
        """A `--logger` or `--syslog` of the user stays."""
        if isinstance(parent, Componentized) and not self._twistd.get("syslog"):
            self._observer = _Replaceable(self._settings, _output(self._twistd))
            parent.setComponent(ILogObserver, self._observer)
        super().setServiceParent(parent)

    def configure(self, settings: Logging) -> None:
        """Log as these say, from now on."""
        if self._observer is not None:
            self._observer.configure(settings)


@implementer(ILogObserver)
class _Replaceable:
    """The observer that twistd was given, which it keeps for ever."""

    def __init__(self, settings: Logging, out: TextIO) -> None:
        self._out = out
        self.configure(settings)

    def configure(self, settings: Logging) -> None:
        self._current = observer(settings, self._out)

    def __call__(self, event: LogEvent) -> None:
        self._current(event)


def _output(twistd: Mapping[str, Any]) -> TextIO:
    """Standard error, or the file that twistd would write: a daemon has no other."""
    name = twistd.get("logfile")
    if name == "-" or (twistd.get("nodaemon", True) and not name):
        return sys.stderr
    path = name or "twistd.log"
    try:
        return cast(TextIO, LogFile.fromFullPath(path))
    except OSError as why:
        leave(
            f"gateway can not start: its log {Path(path).absolute()}: {why.strerror}; "
            "say --logfile PATH, or start it elsewhere"
        )


def observer(settings: Logging, out: TextIO) -> ILogObserver:
    """An observer that writes to *out* what has at least the configured level."""
    level = LogLevel.lookupByName(settings.level)
    least = LogLevelFilterPredicate(level)
    if level is not LogLevel.debug:
        least.setLogLevelForNamespace("log_legacy", max(level, LogLevel.warn))
    lines = _LineWriter(out, _as_json if settings.format == "json" else _as_text)
    return FilteringLogObserver(lines, [least, _no_chatter, _SeldomNoDescriptors()])


@implementer(ILogFilterPredicate)
class _SeldomNoDescriptors:
    """Twisted has three lines for each connection that finds no file descriptor left."""

    _BEGIN = ("EMFILE ", "Re-reserving EMFILE", "Could not accept new connection")

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def __call__(self, event: LogEvent) -> Any:
        form = event.get("log_format") or ""
        if form.startswith(self._BEGIN):
            now = time.monotonic()
            if now < self._next.get(form, now):
                return PredicateResult.no
            self._next[form] = now + 60.0
        return PredicateResult.maybe


@provider(ILogFilterPredicate)
def _no_chatter(event: LogEvent) -> Any:
    """Drop Twisted's lines about each factory; our listeners have better ones."""
    form = event.get("log_format") or ""
    if form.startswith(("Starting factory", "Stopping factory")):
        return PredicateResult.no
    return PredicateResult.maybe


@implementer(ILogObserver)
class _LineWriter:
    def __init__(self, out: TextIO, form: Callable[[LogEvent], str]) -> None:
        self._out = out
        self._form = form
        self._to_journal = is_journal(out)

    def __call__(self, event: LogEvent) -> None:
        text = self._form(event)
        if self._to_journal:
            prefix = _PRIORITY[event["log_level"]]
            text = "\n".join(prefix + line for line in text.split("\n"))
        self._out.write(text + "\n")
        self._out.flush()


def is_journal(out: TextIO) -> bool:
    """Whether systemd's journal reads *out*: it says which file it gave us (systemd.exec)."""
    try:
        stat = os.fstat(out.fileno())
    except (AttributeError, OSError, ValueError):  # it is no file of the kernel's
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{stat.st_dev}:{stat.st_ino}"


# -- how it looks -------------------------------------------------------------


def escape(text: str) -> str:
    """*text* with every character that is not printable escaped."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def _as_text(event: LogEvent) -> str:
    lines = [
        log_line(
            event.get("log_time", time.time()),
            _level(event),
            escape(_logger(event)),
            escape(_message(event)),
        )
    ]
    if "log_failure" in event:
        lines += [f"    {escape(line)}" for line in _traceback(event["log_failure"])]
    return "\n".join(lines)


def _as_json(event: LogEvent) -> str:
    record: dict[str, object] = {
        "ts": stamp(event.get("log_time", time.time())),
        "level": _level(event),
        "logger": _logger(event),
        "msg": _message(event),
    }
    for key, value in event.items():
        if not (key.startswith("log_") or key in _LEGACY or key in record):
            record[key] = _plain(value)
    if "log_failure" in event:
        record["traceback"] = _traceback(event["log_failure"])
    return json.dumps(record)  # ASCII: U+2028 and its like are escapes


def _level(event: LogEvent) -> str:
    return str(event["log_level"].name)


def _logger(event: LogEvent) -> str:
    """The module's name, without that of a class."""
    name = str(event.get("log_namespace", "-"))
    module, _, last = name.rpartition(".")
    return module if module and last.lstrip("_")[:1].isupper() else name


def _message(event: LogEvent) -> str:
    text = formatEvent(event).strip()
    if not text and "log_failure" in event:
        text = _last_line(event["log_failure"])
    if len(text) > _MAX_MESSAGE:
        text = f"{text[:_MAX_MESSAGE]}… ({len(text)} characters)"
    return text


def _last_line(failure: Failure) -> str:
    lines = _traceback(failure)
    return lines[-1] if lines else "failure"


def _traceback(failure: Failure) -> list[str]:
    try:
        lines = failure.getTraceback().rstrip().splitlines()
    except Exception:  # an exception may have a broken __str__
        return [f"{failure.type!r} (no traceback)"]
    return lines[-_MAX_TRACEBACK_LINES:]


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    try:
        text = str(value)
    except Exception:  # as above
        text = object.__repr__(value)
    return text[:_MAX_MESSAGE]
