"""`gateway rsio-check`: runs the conformance tests against an implementation of RS.io."""

from __future__ import annotations

import argparse
import json
import ssl
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gateway.cli import WrongUse, target
from gateway.cli._text import printable

if TYPE_CHECKING:
    from gateway.protocols.rsio.conformance import Result, Role, Test, Transport

__all__ = ["HELP", "add_arguments", "run"]

HELP = """\
Put an implementation of Reactive Streams IO to the 57 tests of its definition
(docs/rsio-v0.md), from outside: as a publisher, as a subscriber, and as a connection.

Tests of publishers need those that the definition names, `check/…`; the gateway's are
there with `options: {check_publishers: true}`.  Tests of subscribers need a target that
subscribes to something; the elements that it gets are {"rsio-check":true}, so this is
not for a gateway in production.

Example:
  gateway rsio-check 127.0.0.1:7400
  gateway rsio-check 127.0.0.1:7400 --as publisher --only parts --only 37

Exit status: 0 nothing failed and something passed; 1 else; 2 wrong use.
"""

_COLUMNS = ("publisher", "subscriber", "connection")
_MARKS = {"passed": "[green]✓[/]", "failed": "[bold red]✗[/]", "skipped": "[dim]-[/]"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `gateway.cli`."""
    add = parser.add_argument
    add("target", metavar="HOST:PORT", type=target.target, nargs="?",
        help="or unix:PATH")  # fmt: skip
    add("--as", dest="role", choices=("publisher", "subscriber", "both"),
        default="both", help="what of the target is looked at (default: both)")  # fmt: skip
    add("--only", action="append", metavar="NAME", default=[],
        help="run the tests with this number, or this in their name; may be repeated")  # fmt: skip
    add("--list", action="store_true", help="list the tests, and do nothing")
    target.add_transport(parser)
    add("--json", action="store_true", help="print the results as JSON")


def run(args: argparse.Namespace) -> int:
    """See `gateway.cli`."""
    chosen = list(_chosen(args.only))
    if args.list:
        print(_listed(chosen))
        return 0
    if args.target is None:
        raise WrongUse("where is it? HOST:PORT or unix:PATH is missing")
    target.check(args)
    return _judge(args, chosen)


def _judge(args: argparse.Namespace, chosen: Sequence[Test]) -> int:
    from gateway.protocols.rsio import conformance

    target = conformance.Target(_connect(args))
    try:
        target.publishers = conformance.serves_checks(target)
    except OSError as why:
        print(f"gateway rsio-check: no connection: {why}", file=sys.stderr)
        return 1
    except conformance.Failed as why:
        text = printable(str(why))
        print(f"gateway rsio-check: that is no RS.io: {text}", file=sys.stderr)
        return 1
    numbers = {test.number for test in chosen}
    found = conformance.run(target, numbers, _roles(args.role))
    results = list(_watched(found, len(numbers)))
    if args.json:
        print(json.dumps([_as_json(one) for one in results], indent=1))
    else:
        _show(results)
    outcomes = {one.outcome.value for one in results}
    return 0 if "failed" not in outcomes and "passed" in outcomes else 1


def _roles(name: str) -> Sequence[Role]:
    from gateway.protocols.rsio.conformance import Role

    return tuple(Role) if name == "both" else (Role(name), Role.CONNECTION)


def _chosen(only: Sequence[str]) -> Iterator[Test]:
    """The tests that are meant; raises `WrongUse` for a word that means none."""
    from gateway.protocols.rsio.conformance import TESTS

    wanted: set[int] = set()
    for word in only:
        found = {
            number
            for number, test in TESTS.items()
            if word == str(number)
            or (not word.isdecimal() and word.lower() in test.name.lower())
        }
        if not found:
            raise WrongUse(f"no test {word!r}; see gateway rsio-check --list")
        wanted |= found
    return (test for number, test in TESTS.items() if not only or number in wanted)


def _connect(args: argparse.Namespace) -> Callable[[], Transport]:
    from gateway.protocols.rsio.conformance import (
        TcpTransport,
        UnixTransport,
        WebSocketTransport,
    )
    from gateway.protocols.rsio.messages import SUBPROTOCOL

    host, port, unix = args.target
    tls = _context(args) if args.tls else None
    path = args.websocket

    def bare() -> Transport:
        if unix is not None:
            return UnixTransport(unix, tls=tls)
        return TcpTransport(host, port, tls=tls)

    def web() -> Transport:
        where = f"/{path.removeprefix('/')}"
        return WebSocketTransport(bare(), f"{host}:{port}", where, SUBPROTOCOL)

    return bare if path is None else web


def _context(args: argparse.Namespace) -> ssl.SSLContext:
    from gateway.protocols.rsio.messages import ALPN

    try:
        context = ssl.create_default_context(cafile=args.ca)
        if args.cert:
            context.load_cert_chain(args.cert, args.key)
    except OSError as why:
        raise WrongUse(f"--ca, --cert or --key: {why}") from None
    if args.websocket is None:
        context.set_alpn_protocols([ALPN.decode()])
    return context


# What is shown


def _watched(results: Iterable[Result], total: int) -> Iterator[Result]:
    """With a line about where we are, on a terminal."""
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        for one in results:
            status.update(f"{one.test.number} of {total}: {one.test.name}")
            yield one


def _listed(tests: Iterable[Test]) -> str:
    lines = []
    for test in tests:
        roles = ", ".join(dict.fromkeys(each.role.value for each in test.checks))
        lines.append(f"{test.number:3}  {test.name}")
        lines.append(f"     {roles or f'not from outside ({test.inside})'}")
    return "\n".join(lines)


def _as_json(one: Result) -> dict[str, object]:
    return {
        "number": one.test.number,
        "name": one.test.name,
        "as": None if one.check is None else one.check.role.value,
        "promise": None if one.check is None else one.check.promise,
        "outcome": one.outcome.value,
        "why": one.why,
    }


def _show(results: Sequence[Result]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("test")
    for name in _COLUMNS:
        table.add_column(name, justify="center")
    for number, test in {one.test.number: one.test for one in results}.items():
        marks = [
            " ".join(
                _MARKS[one.outcome.value]
                for one in results
                if one.test is test and one.check and one.check.role.value == name
            )
            for name in _COLUMNS
        ]
        table.add_row(str(number), test.name, *marks)
    console.print(table)
    for outcome, title in (("skipped", "not judged"), ("failed", "failed")):
        those = [one for one in results if one.outcome.value == outcome]
        if those:
            console.print(f"\n[bold]{title}[/]")
        for one in those:
            promise = "" if one.check is None else f"{one.check.promise} "
            console.print(f"  {one.test.number} {one.test.name}: {escape(promise)}")
            console.print(f"     {escape(printable(one.why))}", style="yellow")
    counts = [
        sum(one.outcome.value == outcome for one in results)
        for outcome in ("passed", "failed", "skipped")
    ]
    console.print("\n{} passed, {} failed, {} not judged".format(*counts))
