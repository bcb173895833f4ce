"""`gateway reload`: have the running daemon read its configuration again, and say how."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway import config, default_config
from gateway.cli._admin import AdminPort, Unreachable, add_certificates, port_of
from gateway.cli._config import add_config
from gateway.store.system.lock import is_locked

HELP = """\
Have the running daemon read its configuration, certificates and definitions again.

By its admin port where admin.token is set, else by SIGHUP: as root or the daemon's user.
Waits until that is done and says what changed, what needs a restart and why, and what
can not be used.  With a mistake in the file nothing changes.

Example:
  gateway reload --config /etc/gateway/gateway.yaml

Exit status: 0 it is in force, but for keys that are said to need a restart; 1 something can not be used, or nobody answers; 2 there is no such file.
"""

_RELOAD_SECONDS = 120.0
_PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.1
_FINE, _UNAUTHORIZED, _FORBIDDEN = 200, 401, 403


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser, "the daemon's configuration", default=Path(default_config()))
    add_certificates(parser)
    parser.add_argument(
        "--json", action="store_true", help="the result as one JSON object"
    )


def run(args: argparse.Namespace) -> int:
    try:
        loaded = config.load(args.config)
    except config.Invalid as why:
        outcome: Mapping[str, Any] = _refused(*str(why).splitlines())
        _print(outcome, as_json=args.json)
        return 2 if isinstance(why, config.Unreadable) else 1
    port = port_of(args.config, loaded.admin, args)
    try:
        status, answer = port.ask("/api/reload", {}, _RELOAD_SECONDS)
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            outcome = _by_signal(loaded, port, status)
        else:
            outcome = answer if "applied" in answer else _refused(str(answer))
    except (OSError, Unreachable) as why:
        outcome = _refused(f"nobody reloads at {loaded.admin.listen}: {why}")
    _print(outcome, as_json=args.json)
    return 1 if outcome["problems"] else 0


def _refused(*why: str) -> dict[str, Any]:
    return {
        "applied": False,
        "problems": list(why),
        "changed": [],
        "restart": [],
        "job": [],
    }


def _by_signal(
    loaded: config.Config, port: AdminPort, refusal: int
) -> Mapping[str, Any]:
    """Reload by SIGHUP, without a token or with a new one.  Raises OSError, `Unreachable`."""
    pid = _pid(loaded.data_dir)
    if pid is None:
        wants = (
            "asks for another admin.token"
            if refusal == _UNAUTHORIZED
            else "takes a reload by its token only, of which it has none, or by signal"
        )
        return _refused(
            f"{loaded.admin.listen} {wants}, and no daemon has {loaded.data_dir}: if "
            "the file names another data_dir than before, restart the daemon"
        )
    asked = time.time()
    os.kill(pid, signal.SIGHUP)
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        status, answer = port.ask("/api/status")
        last: Mapping[str, Any] = answer.get("reload", {})
        # One that began before may have read an earlier file.
        if status == _FINE and last.get("began", last.get("at", 0.0)) >= asked:
            return {key: last[key] for key in _refused()}
        time.sleep(_LOOK_SECONDS)
    return _refused(f"process {pid} was asked and says nothing: see its log")


def _pid(data_dir: Path) -> int | None:
    """The process that has the directory locked."""
    try:
        said = re.search(r", pid (\d+)$", (data_dir / "lock").read_text().strip())
        return int(said[1]) if said and is_locked(data_dir) else None
    except OSError:
        return None


def _print(outcome: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(outcome, indent=2))
        return
    if not outcome["applied"]:
        for problem in outcome["problems"]:
            print(problem, file=sys.stderr)
        print("not reloaded: nothing has changed", file=sys.stderr)
        return
    print(f"reloaded; changed: {', '.join(outcome['changed']) or 'nothing'}")
    for key in outcome["restart"]:
        print(f"  {key}")
    if outcome["job"]:
        print(f"  for the Spark job, when it starts again: {', '.join(outcome['job'])}")
    for problem in outcome["problems"]:
        print(f"  {problem}", file=sys.stderr)
