"""`gateway send`: a real writer, to try a gateway out and to test one.

    gateway send lumberjack 127.0.0.1:5044 --generate 100000
    tail -F app.log | gateway send lumberjack gw.example:5044 --stdin --tls

Lines that are JSON objects are sent as they are, other lines as the `message` of one.
Nothing counts as sent before it is acknowledged.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from gateway.cli import WrongUse, _target

__all__ = ["HELP", "add_arguments", "run"]

HELP = """\
Send events to a gateway, as a real client of a protocol would, and wait until they are
acknowledged: on disk at the other end.

Example:
  gateway send lumberjack 127.0.0.1:5044 --generate 100000

`gateway send PROTOCOL --help` has the options.
Exit status: 0 all was acknowledged; 1 not all was; 2 wrong use.
"""


class _Protocol(NamedTuple):
    """What `gateway send` says of one, and which module sends."""

    module: str
    help: str
    description: str
    examples: str
    options: Callable[[argparse.ArgumentParser], None]
    web: bool = True
    """It travels over WebSocket, too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `gateway.cli`."""
    protocols = parser.add_subparsers(
        dest="speak", metavar="PROTOCOL", required=True, title="protocols"
    )
    for name, each in _PROTOCOLS.items():
        one = protocols.add_parser(
            name,
            help=each.help,
            description=each.description,
            epilog=f"examples:\n{each.examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_source(one)
        each.options(one)
        _target.add_transport(one, web=each.web)
        _add_record(one)


def run(args: argparse.Namespace) -> int:
    """See `gateway.cli`."""
    if args.file is not None and not args.file.is_file():
        raise WrongUse(f"no such file: {args.file}")
    _target.check(args)
    if args.rate is not None and not args.rate > 0:
        raise WrongUse("--rate must be above 0")
    module = importlib.import_module(_PROTOCOLS[args.speak].module)
    totals = module.Sending(args).run()
    if args.json:
        print(json.dumps(asdict(totals)))
    else:
        print(totals)
    return 0 if totals.complete else 1


# What all have


def _add_source(parser: argparse.ArgumentParser) -> None:
    _target.add_target(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--file", type=Path, metavar="F", help="send its lines")
    source.add_argument("--stdin", action="store_true", help="send standard input")
    source.add_argument(
        "--generate",
        type=_positive,
        metavar="N",
        help="send N made-up events (default: 1000)",
    )
    add = parser.add_argument
    add("--size", type=_positive, default=0, metavar="BYTES",
        help="the least size of a made-up event")  # fmt: skip
    add("--rate", type=float, metavar="R", help="at most R events a second")
    add("--connections", type=_positive, default=1, metavar="C", help="default: 1")


def _add_record(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--acked", type=Path, metavar="FILE",
        help="append the id of each acknowledged event, a line each")  # fmt: skip
    add("--patience", type=float, default=60.0, metavar="SECONDS",
        help="give up after so long without an acknowledgement (default: 60)")  # fmt: skip
    add("--json", action="store_true", help="print the totals as JSON")


def _positive(text: str) -> int:
    try:
        number = int(text.replace("_", ""))
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"not a number above 0: {text!r}")
    return number


# What each has


def _add_lumberjack(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--window", type=_positive, default=2048, metavar="W",
        help="most events in one window (default: 2048)")  # fmt: skip
    add("--pipelining", type=_positive, default=2, metavar="P",
        help="most windows in flight on a connection (default: 2)")  # fmt: skip
    add("--compression", type=int, choices=range(10), default=3, metavar="L",
        help="zlib level 1-9, 0 for none (default: 3)")  # fmt: skip
    add("--v1", action="store_true", help="speak the old version")


def _add_pomelo(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--route", default="area.player.move", metavar="R",
        help="of all messages (default: area.player.move)")  # fmt: skip
    add("--depth", type=_positive, default=10, metavar="D",
        help="most requests in flight on a connection (default: 10)")  # fmt: skip
    add("--notify", action="store_true",
        help="send notifies, with a request after each 99 to learn of their fate")  # fmt: skip
    add("--token", metavar="T",
        help="what the gateway asks for (options.token, or JWT)")  # fmt: skip


def _add_pravega(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dialect", choices=("seed", "v17"), default="v17",
        help="of the protocol's first proposal, or today's (default: v17)")  # fmt: skip
    add("--segment", default="demo/events/0.#epoch.0", metavar="S",
        help="where to; it is made if it is not there "
        "(default: demo/events/0.#epoch.0)")  # fmt: skip
    add("--window", type=_positive, default=4096, metavar="W",
        help="most events in flight on a connection (default: 4096)")  # fmt: skip
    add("--token", metavar="T",
        help="a delegation token of the controller, where one is asked for")  # fmt: skip


def _add_rsio(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--publisher", default="events", metavar="P",
        help="the name that the gateway subscribes to (default: events)")  # fmt: skip
    add("--packed", type=_positive, default=0, metavar="BYTES",
        help="send elements of exactly so many bytes, packed; shorter events are filled "
        "with blanks")  # fmt: skip
    add("--name", metavar="N",
        help="who we are (default: nobody else); -1, -2 … is added for each connection")  # fmt: skip
    add("--token", metavar="T", help="what the gateway asks for (options.tokens)")
    add("--compress", action="store_true", help="if the gateway can")


_PROTOCOLS: Mapping[str, _Protocol] = {
    "lumberjack": _Protocol(
        "gateway.cli._send_lumberjack",
        "Lumberjack v1 or v2, as Beats speak it",
        "Send events as a Beats shipper would.",
        """\
  gateway send lumberjack 127.0.0.1:5044 --generate 100000
  gateway send lumberjack gw.example:5044 --file app.log --tls --ca ca.pem
  tail -F app.log | gateway send lumberjack 127.0.0.1:5044 --stdin
""",
        _add_lumberjack,
    ),
    "pomelo": _Protocol(
        "gateway.cli._send_pomelo",
        "Pomelo, as game clients speak it",
        "Send requests as a game client would; 200 is an acknowledgement.",
        """\
  gateway send pomelo 127.0.0.1:3010 --generate 100000 --connections 100
  gateway send pomelo gw.example:3010 --route area.chat.say --file said.ndjson --tls
  gateway send pomelo 127.0.0.1:3010 --websocket /
""",
        _add_pomelo,
    ),
    "pravega": _Protocol(
        "gateway.cli._send_pravega",
        "Pravega, as writers of a segment speak it",
        "Append events to a segment, each exactly once however often the connection\n"
        "breaks.  Each connection is a writer of its own.",
        """\
  gateway send pravega 127.0.0.1:12345 --generate 100000
  gateway send pravega gw.example:12345 --dialect seed --file readings.ndjson --tls
  gateway send pravega 127.0.0.1:12345 --segment plant/meters/0.#epoch.0 --stdin
""",
        _add_pravega,
        web=False,
    ),
    "rsio": _Protocol(
        "gateway.cli._send_rsio",
        "Reactive Streams IO, as a publisher speaks it",
        "Publish events as the gateway asks for them; that it asks for more is the\n"
        "acknowledgement.  Each exactly once however often the connection breaks, if\n"
        "the gateway has options.offsets.",
        """\
  gateway send rsio 127.0.0.1:7400 --generate 100000
  gateway send rsio gw.example:7400 --publisher meters --file readings.ndjson --tls
  gateway send rsio 127.0.0.1:7400 --packed 256
  gateway send rsio unix:/run/gateway/rsio.sock --stdin
""",
        _add_rsio,
    ),
}
