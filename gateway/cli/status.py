"""`gateway status`: one look at a running gateway, in a sentence and a few numbers."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from gateway.admin.gateways import Row, row_of, silent, verdict
from gateway.cli import _admin
from gateway.cli._columns import table, terminal_width
from gateway.sdk.command import WrongUse, printable
from gateway.spoken import duration, many, size

HELP = """\
Say in one sentence how a running gateway is and what to do, and then in a few numbers.
The sentence is that of the live page, of /api/status and of `gateway top`.

Example:
  gateway status
  gateway status --config /etc/gateway/gateway.yaml || page-somebody
  gateway status --all
  gateway status --address https://gw.example:8443 --ca ca.pem --token-file token --json

Exit status: 0 all is well; 1 it is not, or nobody answers; 2 wrong use.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _admin.add_arguments(parser)
    parser.add_argument(
        "--all", action="store_true",
        help="a row for each gateway of admin.peers, and for the job among them",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true",
        help="what /api/status says, and `well`, for programs",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    if args.all:
        return _all(args)
    port = _admin.admin_port(args)
    try:
        found = port.status()
    except _admin.Unreachable as why:
        found = {"sentence": f"No gateway answers at {port.address}: {why}."}
    sentence, level = verdict(found)
    well = level == "good"
    if args.json:
        print(json.dumps({"well": well, **found, "sentence": sentence}))
    else:
        print(printable(sentence))
        if (more := (found.get("freshness") or {}).get("runbook")) is not None:
            print(f"More: {printable(more)}")
        if "node" in found:
            print("\n".join(map(printable, lines(found))))
    return 0 if well else 1


def _all(args: argparse.Namespace) -> int:
    """Ask all of them at once; one that hangs is a row that says so."""
    ports = _admin.all_ports(args)
    if len(ports) < 2:
        raise WrongUse("--all needs a configuration with admin.peers")
    rows = _asked(ports)
    if args.json:
        print(json.dumps({"gateways": [asdict(one) for one in rows]}))
    else:
        made = [_row(one) for one in rows]
        print(table(_HEAD, made, terminal_width(), ("connections", "waiting")))
        for one in rows:
            if one.level != "good":
                print(
                    f"{printable(one.name or one.address)}: {printable(one.sentence)}"
                )
    return 0 if all(one.level == "good" for one in rows) else 1


_HEAD = ("name", "state", "oldest in no table", "waiting", "connections", "address")
_STATES = {"good": "ok", "warning": "look", "bad": "wrong"}
_ALL_SECONDS = 15.0


def _row(one: Row) -> tuple[str, ...]:
    age, waits, open_now = one.age_seconds, one.waiting_bytes, one.connections
    return (
        printable(one.name or "?"),
        _STATES[one.level],
        "?" if age is None else duration(age) if age else "none",
        "" if waits is None else size(waits),
        "" if open_now is None else f"{open_now:,}",
        one.address,
    )


def _asked(ports: Sequence[_admin.AdminPort]) -> list[Row]:
    """A row of each port, in order; one that does not answer in time is silent."""
    answers: dict[int, Row] = {}

    def ask(index: int, port: _admin.AdminPort) -> None:
        try:
            code, told = port.ask("/api/status")
            if code != HTTPStatus.OK:
                raise _admin.Unreachable(f"it answers {code}")
            answers[index] = row_of(port.address, told, time.time())
        except (_admin.Unreachable, ValueError) as why:
            answers[index] = silent(port.address, str(why))

    # Daemons: what one of them waits for keeps nobody.
    asking = [
        threading.Thread(target=ask, args=one, daemon=True) for one in enumerate(ports)
    ]
    for thread in asking:
        thread.start()
    until = time.monotonic() + _ALL_SECONDS
    for thread in asking:
        thread.join(max(0.0, until - time.monotonic()))
    late = f"no answer in {_ALL_SECONDS:.0f} s"
    rows = [
        answers.get(index) or silent(port.address, late)
        for index, port in enumerate(ports)
    ]
    own, *others = rows  # which may be in the list of its peers, too
    life = own.incarnation
    return [own, *(one for one in others if not life or one.incarnation != life)]


def lines(status: Mapping[str, Any]) -> Iterator[str]:
    """The numbers; each listener has a line."""
    spool, archive = status["spool"], status["archive"]
    up = duration(status["uptime_seconds"])
    yield ""
    yield f"node     {status['node']}, up {up}, version {status['version']}"
    if (own := status.get("incarnation")) and own["id"]:
        yield f"lsns     of incarnation {own['id']}, from {own['since']:,} on"
    if (fresh := status.get("freshness")) is not None:
        yield f"oldest   {_oldest(fresh, ready=status.get('ready', True))}"
    yield f"journal  lsn {status['journal']['durable_lsn']:,} is on disk"
    yield f"spool    {_files(spool)}{_whom(spool, fresh or {})}{_limit(spool)}"
    yield f"archive  {_files(archive)}"
    yield from _consumers(status.get("consumers") or {})
    yield ""
    yield from _listeners(status).splitlines()


def _whom(spool: Mapping[str, Any], fresh: Mapping[str, Any]) -> str:
    """The destination that files wait for, if any."""
    if spool.get("bucket"):
        return " for the bucket"
    goals = {"hub": " for the hub", "spool": ""}
    return goals.get(fresh.get("goal", "table"), " for Spark")


def _oldest(fresh: Mapping[str, Any], *, ready: bool) -> str:
    age, goal = fresh.get("age_seconds"), fresh.get("goal", "table")
    if age is None:
        return f"not known yet; {size(fresh['waiting_bytes'])} wait"
    if not age:
        behind = "" if ready else "; senders wait with theirs"
        there = "at the hub" if goal == "hub" else f"in the {goal}"
        return f"none: all that was acknowledged is {there}{behind}"
    room = fresh.get("room_seconds")
    left = "" if room is None else f", room for {duration(room)}"
    waiting = size(fresh["waiting_bytes"])
    held = fresh["held_by"]
    lacks = "not at the hub" if goal == "hub" else f"in no {goal}"
    return f"{duration(age)} old and {lacks}, held by {held}; {waiting} wait{left}"


def _consumers(found: Mapping[str, Any]) -> Iterator[str]:
    for name, files in found.get("files", {}).items():
        left = _files({"files": files, "bytes": found["bytes"][name]})
        age = found["oldest_seconds"][name]
        oldest = f", the oldest there for {duration(age)}" if files else ""
        yield f"consumer {name}: {left} not read{oldest}"


def _files(one: Mapping[str, Any]) -> str:
    return f"{many(one['files'], 'file')}, {size(one['bytes'])}"


def _limit(spool: Mapping[str, Any]) -> str:
    limit = spool.get("limit_bytes")
    return f" (senders wait at {size(limit)})" if limit else ""


def _listeners(status: Mapping[str, Any]) -> str:
    head = (
        "listener", "protocol", "address", "connections", "events", "bytes", "rejected"
    )  # fmt: skip
    return table(
        head,
        [
            (
                one["name"],
                one["protocol"],
                one["address"],
                f"{one['connections']:,}",
                f"{one['events']:,}",
                size(one["bytes"]),
                f"{sum(one.get('rejected', {}).values()):,}",
            )
            for one in status["listeners"]
        ],
        terminal_width(),
        ("address", "bytes", "protocol"),
    )
