"""`gateway tap`: subscribes to a gateway's events, live or from an lsn on."""

from __future__ import annotations

import argparse
import json
import re
import sys
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlencode

from gateway.sdk import command
from gateway.sdk.command import (
    INTERRUPTED,
    WrongUse,
    nobody_reads,
    printable,
    reason,
    say,
)

if TYPE_CHECKING:
    from twisted.python.failure import Failure

    from gateway.protocols.rsio.client import Subscription
    from gateway.sdk.sender import Backoff

HELP = """\
Show a gateway's events, a JSON object on each line: live, or from an lsn on.  The
gateway must have an RS.io listener that publishes them: options: {publish: [tap, events]}.

Without --from it is a live view.  Whoever reads too slowly loses events, and is told:
{"gap": {"from": LSN, "to": LSN}}.  With --from it is every event, however slowly it is
read; the gateway waits.  When the connection is lost, or the gateway is started again,
it goes on at the next lsn by itself.

Example:
  gateway tap 127.0.0.1:7400
  gateway tap 127.0.0.1:7400 --protocol pomelo --channel area.chat.say | jq .payload
  gateway tap gw.example:7400 --tls --token-file token --from 4711 --count 1000
  gateway tap 127.0.0.1:7400 --from earliest --format arrow >events.arrows

Exit status: 0 the stream ended, or --count were there; 1 it failed; 2 wrong use.
"""

_WINDOW, _ARROW_WINDOW = 2048, 16
_LARGEST = 1 << 26  # of an element; the largest event may be one
_WORD_SECONDS = 1.0
_INCARNATION = b"gateway.incarnation"
"""Metadata of elements in Arrow: who gave their lsns."""
_CODE = re.compile(r"E\d{3}\b")
_FILTERS = ("protocol", "listener", "channel", "kind")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    command.add_target(parser)
    add = parser.add_argument
    add("--from", dest="first", metavar="LSN", type=_beginning,
        help="begin there: an lsn, earliest, or latest; lose nothing from there on")  # fmt: skip
    add("--to", dest="last", metavar="LSN", type=command.positive,
        help="end with this one; needs --from")  # fmt: skip
    for name in _FILTERS:
        add(f"--{name}", metavar="NAME", help=f"only events of this {name}")
    add("--publisher", metavar="P",
        help="subscribe to exactly this, as in 'tap?protocol=pomelo'")  # fmt: skip
    add("--format", choices=("json", "arrow"), default="json",
        help="lines of JSON, or one Arrow IPC stream (default: json)")  # fmt: skip
    add("-n", "--count", type=command.positive, metavar="N", help="end after N events")
    token = parser.add_mutually_exclusive_group()
    token.add_argument("--token", metavar="T",
                       help="what the gateway asks for (options.tokens)")  # fmt: skip
    token.add_argument("--token-file", type=Path, metavar="FILE", help="the same")
    command.add_transport(parser)
    command.add_http2(parser)


def run(args: argparse.Namespace) -> int:
    command.check(args)
    publisher = _publisher(args)
    if args.format == "arrow" and sys.stdout.isatty():
        raise WrongUse("Arrow is nothing for a terminal; say >FILE or | PROGRAM")
    return _Tapping(args, publisher, _token(args)).run()


def _beginning(text: str) -> int | str:
    return text if text in ("earliest", "latest") else command.positive(text)


class _Place(NamedTuple):
    lsn: int | None = None
    node: str | None = None
    """Lsns of others are other events."""
    incarnation: str | None = None
    """The incarnation that gave the lsn, if known."""


_NOTHING = _Place()


def _publisher(args: argparse.Namespace, shown: _Place = _NOTHING) -> str:
    """The publisher to subscribe to, behind the last event that was *shown*, if any."""
    given = {name: getattr(args, name) for name in _FILTERS}
    if args.publisher is not None:
        if args.first or args.last or any(given.values()):
            raise WrongUse("--publisher says it all; put the others into it")
        name, _, query = str(args.publisher).partition("?")
        if args.format == "json" or "format=" in query:
            return str(args.publisher)
        return f"{name}?{query}&format=arrow".replace("?&", "?")
    if args.last and not args.first:
        raise WrongUse("--to needs --from")
    if args.last and isinstance(args.first, int) and args.last < args.first:
        raise WrongUse(f"--to {args.last} is before --from {args.first}")
    asked = {
        "node": shown.node,
        "incarnation": shown.incarnation,
        "from": args.first if shown.lsn is None else shown.lsn + 1,
        "to": args.last,
        **given,
    }
    if args.format != "json":
        asked["format"] = args.format
    name = "events" if args.first else "tap"
    wanted = {key: value for key, value in asked.items() if value is not None}
    return f"{name}?{urlencode(wanted)}" if wanted else name


def waiting_for(args: argparse.Namespace, *, opened: bool) -> str:
    """The reason why no event has come yet."""
    at = args.target.unix or f"{args.target.host}:{args.target.port}"
    if not opened:
        return f"connecting to {at}"
    if args.publisher is not None:
        return f"connected to {at}, waiting for {args.publisher}"
    wanted = [
        f"{name} {getattr(args, name)}" for name in _FILTERS if getattr(args, name)
    ]
    which = f" of {', '.join(wanted)}" if wanted else ""
    first = f", from {args.first} on" if args.first else ""
    return f"connected to {at}, waiting for the first event{which}{first}"


def _token(args: argparse.Namespace) -> str | None:
    if args.token_file is None:
        return args.token if args.token is None else str(args.token)
    return command.secret_in(args.token_file, "--token-file")


class _Form(Protocol):
    @property
    def last(self) -> _Place: ...

    def shown(self, elements: list[bytes], most: int | None) -> tuple[bytes, int]:
        """The output for *elements*, and how many events that is, *most* at most."""

    def end(self) -> bytes: ...


class _Lines:
    def __init__(self, *, terminal: bool) -> None:
        self._terminal = terminal
        self._element: bytes | None = None

    @property
    def last(self) -> _Place:
        found: object = None
        with suppress(ValueError):  # a publisher may give what is no event
            found = json.loads(self._element or b"{}")
        if not isinstance(found, dict):
            return _NOTHING
        lsn, node, incarnation = map(found.get, _Place._fields)
        return _Place(
            lsn if isinstance(lsn, int) else None,
            node if isinstance(node, str) else None,
            incarnation if isinstance(incarnation, str) else None,
        )

    def shown(self, elements: list[bytes], most: int | None) -> tuple[bytes, int]:
        gaps = sum(element.startswith(b'{"gap":') for element in elements)
        if most is not None and len(elements) - gaps > most:
            elements, gaps = _first(elements, most)
        count = len(elements) - gaps
        self._element = elements[-1]
        if self._terminal:
            elements = [
                printable(element.decode("utf-8", "backslashreplace")).encode()
                for element in elements
            ]
        return b"\n".join(elements) + b"\n", count

    def end(self) -> bytes:
        return b""


def _first(elements: list[bytes], most: int) -> tuple[list[bytes], int]:
    """The first *most* events, and how many gaps are among them."""
    found: list[bytes] = []
    gaps = 0
    for element in elements:
        if len(found) - gaps == most:
            break
        gaps += element.startswith(b'{"gap":')
        found.append(element)
    return found, gaps


class _Arrow:
    def __init__(self) -> None:
        import io

        import pyarrow as pa

        from gateway.event import SCHEMA

        self._read = pa.ipc.open_stream
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._sink, SCHEMA)
        self.last = _NOTHING

    def shown(self, elements: list[bytes], most: int | None) -> tuple[bytes, int]:
        events = 0
        for element in elements:
            with self._read(element) as reader:
                self._tell(reader.schema.metadata)
                for batch in reader:
                    some = batch if most is None else batch.slice(0, most - events)
                    if some.num_rows:
                        self._writer.write_batch(some)
                        own = (reader.schema.metadata or {}).get(_INCARNATION)
                        self.last = _Place(
                            some.column("lsn")[-1].as_py(),
                            some.column("node")[-1].as_py(),
                            None if own is None else own.decode(),
                        )
                        events += some.num_rows
        return self._written(), events

    def end(self) -> bytes:
        self._writer.close()
        return self._written()

    def _tell(self, metadata: Any) -> None:
        if metadata and b"gap_from" in metadata:
            first, last = int(metadata[b"gap_from"]), int(metadata[b"gap_to"])
            say(json.dumps({"gap": {"from": first, "to": last}}))

    def _written(self) -> bytes:
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data


class _Tapping:
    def __init__(
        self, args: argparse.Namespace, publisher: str, token: str | None
    ) -> None:
        from twisted.internet import reactor

        from gateway.protocols.rsio.commands.output import Output

        self._args = args
        self._publisher = publisher
        self._left: int | None = args.count
        self._token = token
        self._reactor: Any = reactor
        self._output = Output(reactor, sys.stdout.fileno())
        arrow = args.format == "arrow"
        self._form: _Form = _Arrow() if arrow else _Lines(terminal=sys.stdout.isatty())
        self._window = _ARROW_WINDOW if arrow else _WINDOW
        self._status = 0
        self._over = self._interrupted = self._opened = False
        self._told = self._waits = ""
        self._broken: BrokenPipeError | None = None

    def run(self) -> int:
        """Run until it ends; return the exit status."""
        from twisted.internet.defer import Deferred

        done = Deferred.fromCoroutine(self._follow())

        def interrupted() -> Any:
            self._interrupted = not self._over
            done.cancel()
            return ended

        # ^C stops the reactor; it waits until we have said goodbye.
        ended = done.addErrback(self._failed).addBoth(self._end)
        self._reactor.addSystemEventTrigger("before", "shutdown", interrupted)
        self._reactor.callWhenRunning(self._stop_if_over)

        def look() -> None:
            if nobody_reads():
                self._broken = BrokenPipeError()
                done.cancel()
            self._reactor.callLater(_WORD_SECONDS, look)

        self._reactor.callLater(_WORD_SECONDS, look)
        if sys.stderr.isatty():
            self._reactor.callLater(_WORD_SECONDS, self._tell_what_it_waits_for)
        self._reactor.run()
        if self._broken is not None:
            raise self._broken
        return INTERRUPTED if self._interrupted else self._status

    def _tell_what_it_waits_for(self) -> None:
        """Tell on an empty screen what it waits for, until an event comes."""
        if self._over or self._form.last.lsn is not None:
            return
        waits = waiting_for(self._args, opened=self._opened)
        if waits != self._waits:
            self._waits = waits
            say(f"gateway tap: {printable(waits)} …")
        self._reactor.callLater(_WORD_SECONDS, self._tell_what_it_waits_for)

    async def _follow(self) -> None:
        """Connection after connection, as long as the next one may go on."""
        from twisted.internet.error import ConnectError, DNSLookupError
        from twisted.internet.task import deferLater

        from gateway.protocols.rsio.client import Disconnected, StreamFailed
        from gateway.sdk.sender import Backoff

        backoff = Backoff()
        while True:
            try:
                await self._connect(backoff)
            except (Disconnected, StreamFailed, ConnectError, DNSLookupError) as why:
                if not self._may_go_on(why):
                    raise
                if self._done:
                    break
                self._tell(str(why))
                await deferLater(self._reactor, backoff.pause())
            else:
                break
        await self._output.write(self._form.end())

    async def _connect(self, backoff: Backoff) -> None:
        from gateway.protocols.rsio.client.on_twisted import connect
        from gateway.protocols.rsio.limits import Limits
        from gateway.protocols.rsio.messages import CONTENT_TYPE, alpn

        http2 = command.http2(self._args, CONTENT_TYPE)
        connection = connect(
            command.endpoint(self._reactor, self._args, [alpn(http2)]),
            clock=self._reactor,
            websocket=command.websocket(self._args),
            http2=http2,
            token=self._token,
            limits=Limits(element_bytes=_LARGEST),
        )
        async with (
            connection as peer,
            peer.subscribe(self._publisher, window=self._window) as stream,
        ):
            self._opened = True
            await self._show(stream, backoff)

    async def _show(self, stream: Subscription, backoff: Backoff) -> None:
        async with aclosing(stream.batches()) as batches:
            async for elements in batches:
                backoff.succeeded()
                self._told = ""
                data, events = self._form.shown(elements, self._left)
                await self._output.write(data)
                if self._left is not None:
                    self._left -= events
                    if self._left == 0:
                        break

    def _may_go_on(self, why: Exception) -> bool:
        """Whether another connection can go on: only if this one ended by itself, or with E503."""
        from gateway.protocols.rsio.client import StreamFailed

        text, last = str(why), self._form.last
        stopping = text.startswith("E503")
        if not (self._opened and self._args.first) or self._interrupted:
            return False
        if not stopping and (isinstance(why, StreamFailed) or _CODE.match(text)):
            return False
        if last.lsn is None:  # the latest would be another one by now
            return bool(self._args.first != "latest")
        self._publisher = _publisher(self._args, last)
        return True

    @property
    def _done(self) -> bool:
        last, end = self._form.last.lsn, self._args.last
        return last is not None and end is not None and bool(last >= end)

    def _tell(self, why: str) -> None:
        """Say once why nothing comes."""
        if why != self._told:
            self._told = why
            say(f"gateway tap: {printable(why)}; going on …")

    def _failed(self, why: Failure) -> None:
        from twisted.internet.defer import CancelledError
        from twisted.internet.error import ConnectingCancelledError

        quiet = self._interrupted or self._broken is not None
        if quiet and why.check(CancelledError, ConnectingCancelledError):
            return
        if isinstance(why.value, BrokenPipeError):
            self._broken = why.value
            return
        say(f"gateway tap: {reason(why.getErrorMessage())}{self._hint(why)}")
        self._status = 1

    def _hint(self, why: Failure) -> str:
        """A hint at what is missing; or how to go on by hand, where that loses nothing."""
        from twisted.internet.error import ConnectionRefusedError as Refused

        if why.check(Refused):
            return (
                ": no gateway listens there for RS.io; it needs a listener with "
                "protocol: rsio and options: {publish: [tap, events]}"
            )
        last = self._form.last.lsn
        if last is None or not self._args.first:
            return ""
        return f"; --from {last + 1} goes on"

    def _end(self, _: object) -> None:
        self._over = True
        self._stop_if_over()

    def _stop_if_over(self) -> None:
        if self._over and self._reactor.running and not self._interrupted:
            self._reactor.stop()
