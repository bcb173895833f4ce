"""`gateway send`: a real writer, to try a gateway out and to test one.

    gateway send lumberjack 127.0.0.1:5044 --generate 100000
    tail -F app.log | gateway send lumberjack gw.example:5044 --stdin --tls

Lines that are JSON objects are sent as they are, other lines as the `message` of one.
Nothing counts as sent before it is acknowledged.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from gateway.cli import WrongUse
from gateway.cli._sending import Events, Generated, Lines, Totals, progress, source

if TYPE_CHECKING:
    from twisted.python.failure import Failure

    from gateway.lumberjack.client import Client

__all__ = ["HELP", "add_arguments", "run"]

HELP = """\
Send events to a gateway, as a real client of a protocol would, and wait until they are
acknowledged: on disk at the other end.

Example:
  gateway send lumberjack 127.0.0.1:5044 --generate 100000

`gateway send PROTOCOL --help` has the options.
Exit status: 0 all was acknowledged; 1 not all was; 2 wrong use.
"""

_EXAMPLES = """\
examples:
  gateway send lumberjack 127.0.0.1:5044 --generate 100000
  gateway send lumberjack gw.example:5044 --file app.log --tls --ca ca.pem
  tail -F app.log | gateway send lumberjack 127.0.0.1:5044 --stdin
"""


_POMELO_EXAMPLES = """\
examples:
  gateway send pomelo 127.0.0.1:3010 --generate 100000 --connections 100
  gateway send pomelo gw.example:3010 --route area.chat.say --file said.ndjson --tls
  gateway send pomelo 127.0.0.1:3010 --websocket /
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `gateway.cli`."""
    protocols = parser.add_subparsers(
        dest="speak", metavar="PROTOCOL", required=True, title="protocols"
    )
    lumberjack = protocols.add_parser(
        "lumberjack",
        help="Lumberjack v1 or v2, as Beats speak it",
        description="Send events as a Beats shipper would.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_source(lumberjack)
    add = lumberjack.add_argument
    add("--window", type=_positive, default=2048, metavar="W",
        help="most events in one window (default: 2048)")  # fmt: skip
    add("--pipelining", type=_positive, default=2, metavar="P",
        help="most windows in flight on a connection (default: 2)")  # fmt: skip
    add("--compression", type=int, choices=range(10), default=3, metavar="L",
        help="zlib level 1-9, 0 for none (default: 3)")  # fmt: skip
    add("--v1", action="store_true", help="speak the old version")
    _add_common(lumberjack)
    pomelo = protocols.add_parser(
        "pomelo",
        help="Pomelo, as game clients speak it",
        description="Send requests as a game client would; 200 is an acknowledgement.",
        epilog=_POMELO_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_source(pomelo)
    add = pomelo.add_argument
    add("--route", default="area.player.move", metavar="R",
        help="of all messages (default: area.player.move)")  # fmt: skip
    add("--depth", type=_positive, default=10, metavar="D",
        help="most requests in flight on a connection (default: 10)")  # fmt: skip
    add("--notify", action="store_true",
        help="send notifies, with a request after each 99 to learn of their fate")  # fmt: skip
    add(
        "--token", metavar="T", help="what the gateway asks for (options.token, or JWT)"
    )
    _add_common(pomelo)


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="HOST:PORT", type=_target)
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
    add("--rate", type=float, metavar="R", help="at most R events a second")
    add("--connections", type=_positive, default=1, metavar="C", help="default: 1")


def _add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tls", action="store_true", help="over TLS")
    add("--ca", type=Path, metavar="PEM", help="who signed the gateway's certificate")
    add("--cert", type=Path, metavar="PEM", help="our own certificate")
    add("--key", type=Path, metavar="PEM", help="its private key")
    add("--websocket", metavar="PATH", help="over WebSocket, at PATH")
    add("--acked", type=Path, metavar="FILE",
        help="append the id of each acknowledged event, a line each")  # fmt: skip
    add("--patience", type=float, default=60.0, metavar="SECONDS",
        help="give up after so long without an acknowledgement (default: 60)")  # fmt: skip
    add("--json", action="store_true", help="print the totals as JSON")


def run(args: argparse.Namespace) -> int:
    """See `gateway.cli`."""
    for path in (args.file, args.ca, args.cert, args.key):
        if path is not None and not path.is_file():
            raise WrongUse(f"no such file: {path}")
    if (args.ca or args.cert or args.key) and not args.tls:
        raise WrongUse("--ca, --cert and --key need --tls")
    if args.key and not args.cert:
        raise WrongUse("--key needs --cert")
    if args.rate is not None and not args.rate > 0:
        raise WrongUse("--rate must be above 0")
    if args.speak == "pomelo":
        from gateway.cli import _send_pomelo

        totals = _send_pomelo.Sending(args).run()
    else:
        totals = _Sending(args).run()
    if args.json:
        print(json.dumps(asdict(totals)))
    else:
        print(totals)
    return 0 if totals.complete else 1


def _target(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"not HOST:PORT: {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _positive(text: str) -> int:
    try:
        number = int(text.replace("_", ""))
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"not a number above 0: {text!r}")
    return number


class _Sending:
    """One run, from the first connection to the totals."""

    def __init__(self, args: argparse.Namespace) -> None:
        from twisted.internet import reactor
        from twisted.internet.defer import DeferredLock

        from gateway.lumberjack.sample import access_log

        self._args = args
        self._reactor: Any = reactor
        self._totals = Totals()
        self._clients: list[Client] = []
        self._reading = DeferredLock()
        self._feeding = 0
        self._stopping = self._ended = False
        self._due = self._heard = time.monotonic()
        self._acked: TextIO | None = None
        self._source = source(args, access_log)

    def run(self) -> Totals:
        """Send everything; return when it is acknowledged or hopeless."""
        totals, started = self._totals, time.monotonic()
        if self._args.acked is not None:
            self._acked = self._args.acked.open("a")
        self._reactor.callWhenRunning(self._start)
        with progress() as show:
            self._reactor.callLater(0, self._watch, show)
            self._reactor.run()
        if isinstance(self._source, Lines):
            self._source.stopped = True
        if self._acked is not None:
            self._acked.close()
        totals.seconds = round(time.monotonic() - started, 3)
        totals.resent = sum(client.writer.resent for client in self._clients)
        totals.connections = sum(client.connections for client in self._clients)
        totals.complete = self._ended and totals.sent == totals.acknowledged
        return totals

    def _start(self) -> None:
        from twisted.internet.defer import Deferred

        for _ in range(self._args.connections):
            client = self._client()
            self._clients.append(client)
            client.start()
            # One lot more than may be in flight, so that no window waits for us.
            for _ in range(self._args.pipelining + 1):
                self._feeding += 1
                feeding = Deferred.fromCoroutine(self._feed(client))
                feeding.addErrback(self._broken)

    def _client(self) -> Client:
        from gateway.lumberjack.client import Client
        from gateway.lumberjack.writer import Writer
        from gateway.outgoing import endpoint

        args = self._args
        host, port = args.target
        target = endpoint(
            self._reactor,
            host,
            port,
            tls=args.tls,
            ca=args.ca,
            certificate=args.cert,
            private_key=args.key,
        )
        writer = Writer(
            v1=args.v1,
            window=args.window,
            pipelining=args.pipelining,
            compression=args.compression,
        )
        path = None
        if args.websocket is not None:
            path = f"//{host}:{port}/{args.websocket.removeprefix('/')}"
        return Client(target, clock=self._reactor, writer=writer, websocket=path)

    async def _feed(self, client: Client) -> None:
        """Send lot after lot on one connection until the source ends."""
        from gateway.lumberjack.client import Unacknowledged

        totals = self._totals
        while (events := await self._next()) is not None:
            totals.sent += len(events)
            try:
                await client.send([event for _, event in events])
            except Unacknowledged:
                break
            self._heard = time.monotonic()
            totals.acknowledged += len(events)
            if self._acked is not None:
                self._acked.write("".join(f"{identity}\n" for identity, _ in events))
                self._acked.flush()
        self._feeding -= 1
        if not self._feeding:
            self._stop()

    async def _next(self) -> Events | None:
        """The next lot, when its time has come; None at the end."""
        from twisted.internet.task import deferLater

        rate, most = self._args.rate, self._args.window
        if rate is not None:
            most = min(most, max(1, int(rate / 20)))
            now = time.monotonic()
            due = self._due = max(self._due, now - 1.0) + most / rate
            await deferLater(self._reactor, max(0.0, due - now))
        if self._ended or self._stopping:
            return None
        events = await self._read(most)
        if events is None and not self._stopping:
            self._ended = True
        return events

    async def _read(self, most: int) -> Events | None:
        from twisted.internet.threads import deferToThread

        if isinstance(self._source, Generated):
            return self._source.read(most)
        async with self._reading:
            if self._ended:
                return None
            events: Events | None = await deferToThread(self._source.read, most)
            self._heard = time.monotonic()
            return events

    def _watch(self, show: Callable[[Totals], None]) -> None:
        show(self._totals)
        waiting = self._totals.sent > self._totals.acknowledged
        if waiting and time.monotonic() - self._heard > self._args.patience:
            trouble = next((c.trouble for c in self._clients if c.trouble), "no answer")
            print(
                "gateway send: nothing was acknowledged for "
                f"{self._args.patience:g} s: {trouble}",
                file=sys.stderr,
            )
            self._stop()
        self._reactor.callLater(0.2, self._watch, show)

    def _broken(self, why: Failure) -> None:
        print(f"gateway send: {why.getErrorMessage()}", file=sys.stderr)
        self._ended = False
        self._stop()

    def _stop(self) -> None:
        from twisted.internet.defer import DeferredList

        if self._stopping:
            return
        self._stopping = True
        if isinstance(self._source, Lines):
            self._source.stopped = True
        closed = DeferredList([client.stop() for client in self._clients])
        closed.addTimeout(2.0, self._reactor)
        closed.addBoth(lambda _: self._reactor.stop())
