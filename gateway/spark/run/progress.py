"""The job's output: progress on standard output, its log on standard error."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gateway.spoken import log_line, many, stamp

#: Gets what there is to say: `{"state": …}`, or what was committed since the last.
Report = Callable[[Mapping[str, Any]], None]


def as_json(news: Mapping[str, Any]) -> None:
    """One object a line, with the time."""
    _say(json.dumps({"at": round(time.time(), 3), **news}))


def as_text(news: Mapping[str, Any]) -> None:
    """One line for people."""
    _say(f"spark: {words(news)}")


def words(news: Mapping[str, Any]) -> str:
    """The news for people."""
    if "state" in news:
        java = f"; what Java said is in {news['java']}" if "java" in news else ""
        return f"{news['state']}{java}"
    return (
        f"batch {news['batch']}: {news['rows']:,} rows into the tables,"
        f" {news['rows_total']:,} since the start;"
        f" {many(news['spool_files'], 'file')} in the spool"
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def start_logging(settings: Any) -> None:
    """Log as the configuration's section `logging` says."""
    stream = logging.StreamHandler(sys.stderr)
    if settings.format == "json":
        stream.setFormatter(_JsonLines())
    else:
        stream.setFormatter(_Lines())
    # Names as the configuration has them: debug, info, warn or warning, error.
    level = logging.getLevelNamesMapping().get(str(settings.level).upper())
    # Ours only: what Py4J logs about a Java that stops is long and means nothing.
    ours = logging.getLogger("gateway")
    ours.handlers = [stream]
    ours.setLevel(level or logging.INFO)
    ours.propagate = False
    for name in ("py4j", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # Of a command that a stop cuts short it tells the root.
    logging.getLogger().addFilter(_is_not_of_py4j)
    # So do its threads, and what it lets go of.
    sys.unraisablehook = _unless_of_py4j(sys.unraisablehook)
    threading.excepthook = _unless_of_py4j(threading.excepthook)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _unless_of_py4j(hook: Callable[[Any], object]) -> Callable[[Any], None]:
    def told(what: Any) -> None:
        if not type(what.exc_value).__module__.startswith("py4j."):
            hook(what)

    return told


def _level(record: logging.LogRecord) -> str:
    return record.levelname.lower().replace("warning", "warn")


class _Lines(logging.Formatter):
    """Lines as in the daemon's log, so that one reader understands both."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return log_line(record.created, _level(record), record.name, text)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = {
            "ts": stamp(record.created),
            "level": _level(record),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        return json.dumps(said)
