"""`gateway check FILE`: is this a configuration?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gateway import config, default_config
from gateway.cli._config import add_config
from gateway.config.problems import spell
from gateway.plugins import RAISED, failure, installed
from gateway.sdk.units import format_size
from gateway.sink import kind_of
from gateway.spark.commit.ledger import Broken
from gateway.spoken import duration
from gateway.store.directories import Directories
from gateway.store.names import odd_for_spark
from gateway.store.readers.lake import sink_of
from gateway.store.system.disk import goes_with

HELP = """\
Read a configuration as the daemon would and say everything that is wrong with it.  What
its listeners need is built as for a start, definitions and certificates too; no port is
opened, and nothing in data_dir touched.

Example:
  gateway check                                  gateway.yaml in this folder
  gateway check /etc/gateway/gateway.yaml
  gateway check --effective conf/gateway.yaml    with every default filled in

Exit status: 0 it is fine, perhaps with warnings; 1 it is not, see standard error; 2 there is no such file.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "file", type=Path, metavar="FILE", nargs="?", help="the same, without --config"
    )
    add_config(where)
    parser.add_argument(
        "--json", action="store_true", help="the result as one JSON object"
    )
    parser.add_argument(
        "--effective",
        action="store_true",
        help="print the configuration with its defaults; secrets are masked",
    )


def run(args: argparse.Namespace) -> int:
    from gateway.daemon.dry import try_start

    file = args.file or args.config or Path(default_config())
    try:
        loaded = config.load(file)
        try_start(loaded, file)
    except config.Invalid as why:
        if args.json:
            _print_json(_refusal(why))
        else:
            print(why, file=sys.stderr)
        return 2 if isinstance(why, config.Unreadable) else 1
    if args.json:
        _print_json(
            {
                "file": str(file),
                "ok": True,
                "problems": [],
                "warnings": _warnings(loaded),
                "config": config.dump(loaded),
            }
        )
    elif args.effective:
        _print_yaml(config.dump(loaded))
    else:
        print(f"{file}: ok")
        print("\n".join(_summary(loaded)))
        for warning in _warnings(loaded):
            print(f"  warning: {warning}")
    return 0


def _refusal(why: config.Invalid) -> dict[str, Any]:
    problems = [
        {"path": spell(problem.place), "line": problem.line, "message": problem.message}
        for problem in why.problems
    ]
    return {"file": why.file, "ok": False, "problems": problems}


def _summary(loaded: config.Config) -> list[str]:
    width = max(len(listener.name) for listener in loaded.listeners)
    lines = [f"  node {loaded.node}, data in {loaded.data_dir}"]
    for listener in loaded.listeners:
        about = ", ".join(_about(listener))
        lines.append(f"  {listener.name:<{width}}  {listener.protocol} on {about}")
    lines.append(f"  admin page on {', '.join(_open(loaded.admin))}")
    lines += _of_consumers(loaded)
    lines += _of_hub(loaded)
    return lines


def _of_hub(loaded: config.Config) -> Iterator[str]:
    """Where files go, and what becomes of them while that is away."""
    hub, spool = loaded.forward, loaded.spool
    if hub is None:
        return
    name = hub.name or loaded.node
    slower = "" if hub.rate is None else f", {format_size(hub.rate)}/s at most"
    yield (
        f"  files go to {hub.hubs[0]}, as {name}{slower}; the archive keeps them for another "
        f"{duration(spool.retention)}"
    )
    if others := hub.hubs[1:]:
        yield (
            f"    once it was away for {duration(hub.next_after)} they go to "
            f"{', then '.join(others)}: each gets all that it lacks and is still here"
        )
    yield (
        f"    while it is away {format_size(spool.max_bytes)} wait here "
        "(spool.max_bytes); then senders do"
    )


def _of_consumers(loaded: config.Config) -> Iterator[str]:
    """How long files stay for the configured consumers."""
    spool = loaded.spool
    if not spool.consumers:
        return
    where = spool.bucket or Directories.of(loaded).archive
    yield (
        f"  consumers {', '.join(spool.consumers)} read {where}: a file stays until each "
        f"has it, for {duration(spool.retention)} at least"
    )
    if spool.bucket is not None:
        return
    alone = spool.after == "keep"
    if spool.archive_bytes is not None:
        then = f"with more than {format_size(spool.archive_bytes)} there the oldest go unread"
    elif alone:
        then = "when the disk is full, senders wait"
    else:
        then = "when the disk is full, the oldest go unread; the tables have them"
    yield f"    {then}"


def _warnings(loaded: config.Config) -> list[str]:
    found = [*_of_memory(loaded), *_of_paths(loaded), *_of_line(loaded)]
    found += [*_of_tables(loaded), *_of_volumes(loaded)]
    for name in dict.fromkeys(listener.protocol for listener in loaded.listeners):
        try:
            found += map(str, installed().protocols[name].cautions(loaded))
        except RAISED as why:
            found.append(failure(name, "cautions", why))
    return found


def _of_memory(loaded: config.Config) -> Iterator[str]:
    """Messages that no sender can bring to their end (see `net.memory`)."""
    most = loaded.journal.memory_bytes // 2
    for listener in loaded.listeners:
        allowed = listener.limits.message_bytes
        if allowed > most:
            yield (
                f"{listener.name}: limits.message_bytes allows {format_size(allowed)}, "
                f"and a connection with more than {format_size(most)} of an unfinished "
                "message is closed: raise journal.memory_bytes to twice as much"
            )


def _of_line(loaded: config.Config) -> Iterator[str]:
    """A warning if the line to the hub is not encrypted."""
    hub = loaded.forward
    if hub is None:
        return
    secret = "" if hub.token is None else ", and the token,"
    for to in hub.hubs:
        if to.startswith("http:"):
            yield f"events{secret} go to {to} as they are: use https:"


def _of_tables(loaded: config.Config) -> Iterator[str]:
    """Tables that the job could not have here; it may be meant for another machine."""
    if not loaded.spool.has_job:
        return
    wanted = {"sink": loaded.spark.sink}
    if loaded.spark.table is not None:
        wanted["table"] = loaded.spark.table
    with suppress(OSError, ValueError):
        there = sink_of(loaded.data_dir / "lake") or {}
        if any(there.get(key, one) != one for key, one in wanted.items()):
            had = ", ".join(there[key] for key in ("sink", "table") if key in there)
            yield (
                f"{loaded.data_dir / 'lake'} has tables of another spark.sink: {had}. One"
                " data_dir has one for good (docs/spark.md, from Parquet to Delta or Iceberg)"
            )
    with suppress(PackageNotFoundError):
        try:
            kind_of(loaded.spark.sink).check_spark(version("pyspark"))
        except Broken as why:
            yield str(why)


def _of_paths(loaded: config.Config) -> Iterator[str]:
    """Names that the daemon may have, and Spark takes for patterns."""
    folder = str(Directories.of(loaded).spool.absolute())
    if loaded.spool.has_job and (odd := odd_for_spark(folder)):
        yield (
            f"the Spark job can not read {folder}, for {odd} in its path: choose "
            "another data_dir"
        )


def _of_volumes(loaded: config.Config) -> Iterator[str]:
    """A data directory that goes with its pod, where nothing else knows of the node."""
    what = goes_with(Directories.of(loaded).journal)
    if what and loaded.spool.bucket is None and loaded.forward is None:
        yield (
            f"{Directories.of(loaded).journal} goes with {what}: acknowledged events that no table"
            " has are lost then, and `gateway audit` calls the node unverified, as nothing"
            " else knows how far it was. Put data_dir on a volume, or have spool.directory in a"
            " bucket with ack: spool"
        )


def _open(port: config.Listener | config.model.Admin) -> list[str]:
    about = [str(port.listen)]
    if port.tls is None:
        about.append("not encrypted")
    else:
        about.append(f"{port.tls.minimum_version} or newer")
        if port.tls.client_auth != "none":
            about.append(f"client certificates {port.tls.client_auth}")
        if port.tls.client_crl is not None:
            about.append("revoked ones refused")
    if port.proxy_protocol:
        about.append("behind a PROXY protocol balancer")
    return about


def _about(listener: config.Listener) -> list[str]:
    where, *about = _open(listener)
    if listener.websocket:
        about.insert(0, f"WebSocket at {listener.websocket.path}")
    about.insert(0, where)
    protocol = installed().protocols[listener.protocol]
    try:
        return [*about, *map(str, protocol.describe(listener.options))]
    except RAISED as why:
        return [*about, failure(listener.protocol, "describe", why)]


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=2))


def _print_yaml(value: dict[str, Any]) -> None:
    import yaml

    from gateway.config.reader import Dumper

    print(yaml.dump(value, None, Dumper, sort_keys=False, allow_unicode=True), end="")
