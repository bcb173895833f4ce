"""`gateway send`: a real writer, to try a gateway out and to test one.

    gateway send PROTOCOL 127.0.0.1:5044 --generate 100000
    tail -F app.log | gateway send PROTOCOL gw.example:5044 --stdin --tls

Lines that are JSON objects are sent as they are, other lines as the `message` of one.
Nothing counts as sent before it is acknowledged.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name

from gateway.plugins import examples, installed
from gateway.sdk import command
from gateway.sdk.command import WrongUse
from gateway.sdk.protocol import Sender

one, _ = examples()
HELP = f"""\
Send events to a gateway, as a real client of a protocol would, and wait until they are
acknowledged: on disk at the other end.

Example:
  gateway send {one} 127.0.0.1:5044 --generate 100000

`gateway send PROTOCOL --help` has the options.
Exit status: 0 all was acknowledged; 1 not all was; 2 wrong use.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    protocols = parser.add_subparsers(
        dest="speak", metavar="PROTOCOL", required=True, title="protocols"
    )
    for name, each in _senders().items():
        one = protocols.add_parser(
            name,
            help=each.help,
            description=each.description,
            epilog=f"examples:\n{each.examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_source(one)
        each.add_options(one)
        command.add_transport(one, web=each.websocket)
        _add_record(one)


def _senders() -> dict[str, Sender]:
    """The installed protocols that can send, by name."""
    return {
        name: sender
        for name, sender in installed().each("sender")
        if sender is not None
    }


def _check_file(path: Path) -> None:
    """A pipe will do: `--file <(program)`."""
    if not path.exists():
        raise WrongUse(f"no such file: {path}")
    if path.is_dir():
        raise WrongUse(f"{path} is a directory: name a file, or --stdin")
    if not os.access(path, os.R_OK):
        raise WrongUse(f"{path} can not be read by user {os.geteuid()}")


def _check_connections(count: int) -> None:
    """Each is a descriptor: as many as there may be are allowed, and no more."""
    from gateway.net import raise_descriptor_limit

    if count > (most := raise_descriptor_limit()):
        raise WrongUse(
            f"--connections {count} is more than {most}, the files that this process "
            "may have open (ulimit -Hn)"
        )


def run(args: argparse.Namespace) -> int:
    if args.file is not None:
        _check_file(args.file)
    command.check(args)
    _check_connections(args.connections)
    totals = resolve_name(_senders()[args.speak].sending)(args).run()
    words = json.dumps(asdict(totals)) if args.json else str(totals)
    # Standard output may be the connection, and closed by now.
    print(words, file=sys.stderr if args.stdio else sys.stdout)
    return 0 if totals.complete else 1


def _add_source(parser: argparse.ArgumentParser) -> None:
    command.add_target(parser, stdio=True)
    parser.set_defaults(reactor=None, events=None)  # what `gateway test` has of its own
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--file", type=Path, metavar="F", help="send its lines")
    source.add_argument("--stdin", action="store_true", help="send standard input")
    source.add_argument(
        "--generate",
        type=command.positive,
        metavar="N",
        help="send N made-up events (default: 1000)",
    )
    add = parser.add_argument
    add("--size", type=command.positive, default=0, metavar="BYTES",
        help="the least size of a made-up event")  # fmt: skip
    add("--rate", type=command.amount, metavar="R", help="at most R events a second")
    add(
        "--connections",
        type=command.positive,
        default=1,
        metavar="C",
        help="default: 1",
    )


def _add_record(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--acked", type=Path, metavar="FILE",
        help="append the id of each acknowledged event, a line each")  # fmt: skip
    add("--patience", type=command.amount, default=60.0, metavar="SECONDS",
        help="give up after so long without an acknowledgement (default: 60)")  # fmt: skip
    add("--json", action="store_true", help="print the totals as JSON")
