"""The command `rsio-check HOST:PORT`, which is also `gateway rsio-check`."""

from __future__ import annotations

import argparse
import ssl
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from rsio_check.probe import Failed, Target
from rsio_check.registry import TESTS, Needs, Role, Test
from rsio_check.report import as_json, listed, printable, written
from rsio_check.runner import Outcome, Result, chosen, run, survey
from rsio_check.transports import (
    ALPN,
    Http2Transport,
    Transport,
    WebSocketTransport,
    over_tcp,
    over_unix,
    reason,
)
from rsio_check.wire import Token

HELP = """\
Put an implementation of Reactive Streams IO to the tests of its definition
(docs/rsio-v0.md), from outside: as a publisher, as a subscriber, and as a connection.

Tests of publishers need those that the definition names, `check/…`; the gateway's are
there with `options: {check_publishers: true}`.  Tests of subscribers need a target that
subscribes to something; the elements that it gets are JSON, and arbitrary octets in
streams of a fixed size, so this is not for a gateway in production.

Example:
  gateway rsio-check 127.0.0.1:7400
  gateway rsio-check 127.0.0.1:7400 --strict --token @/run/secrets/token
  gateway rsio-check 127.0.0.1:7400 --as publisher --only parts --only spec308

Exit status: 0 nothing failed and something passed, with --strict: all was judged;
1 else; 2 wrong use.
"""

FINE, FOUND, WRONG_USE = 0, 1, 2
_PATIENCE, _HELLO = 10.0, 10.0


class WrongUse(Exception):
    """The command can not start; the message is for its user."""


class Where(NamedTuple):
    """The target's address."""

    host: str
    port: int
    unix: Path | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add = parser.add_argument
    add("target", metavar="HOST:PORT", type=_where, nargs="?", help="or unix:PATH")
    add("--as", dest="role", choices=("publisher", "subscriber", "both"),
        default="both", help="what of the target is looked at (default: both)")  # fmt: skip
    add("--only", action="append", metavar="NAME", default=[],
        help="run the tests with this in their name; may be repeated")  # fmt: skip
    add("--strict", action="store_true", help="a test that is not judged has failed")
    add("--list", action="store_true", help="list the tests, and do nothing")
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--token", metavar="TOKEN",
        help="the secret that each connection shows (scheme bearer); @FILE has it")  # fmt: skip
    who.add_argument("--name", help="the name that each connection has (scheme name)")
    add("--patience", type=_seconds, default=_PATIENCE, metavar="SECONDS",
        help="how long a target may say nothing when it should (default: 10)")  # fmt: skip
    add("--hello-timeout", type=_seconds, default=_HELLO, metavar="SECONDS",
        help="the target's hello_timeout (default: 10)")  # fmt: skip
    add("--tls", action="store_true", help="over TLS")
    add("--ca", type=Path, metavar="PEM", help="who signed the target's certificate")
    add("--cert", type=Path, metavar="PEM", help="our own certificate")
    add("--key", type=Path, metavar="PEM", help="its private key")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--websocket", metavar="PATH", help="over WebSocket, at PATH")
    how.add_argument("--http2", metavar="PATH",
        help="over HTTP/2, at PATH; needs the package h2")  # fmt: skip
    add("--json", action="store_true", help="print the results as JSON")


def check(args: argparse.Namespace) -> int:
    """Run the command; returns the exit status.  Raises `WrongUse`."""
    names = _names(args.only)
    if args.list:
        print(listed(TESTS[name] for name in TESTS if name in names))
        return FINE
    if args.target is None:
        raise WrongUse("where is it? HOST:PORT or unix:PATH is missing")
    target = Target(_connect(args), identity=_identity(args), patience=args.patience)
    target.hello_seconds = args.hello_timeout
    target.websocket = args.websocket is not None
    try:
        survey(target)
    except OSError as why:
        return _no_target(f"no connection: {reason(why)}")
    except Failed as why:
        return _no_target(f"that is no RS.io, or it does not let us in: {why}")
    tests = chosen(target, names, _roles(args.role))
    if not tests:
        raise WrongUse(f"none of these tests fits this target: {_needs(names)}")
    results = list(_watched(run(target, tests), tests))
    print(as_json(results) if args.json else written(results))
    return _status(results, strict=args.strict)


def main(argv: Sequence[str] | None = None) -> int:
    """The command by itself; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="rsio-check",
        description=HELP.replace("gateway rsio-check", "rsio-check"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    try:
        return check(parser.parse_args(argv))
    except WrongUse as why:
        print(f"rsio-check: {why}", file=sys.stderr)
        return WRONG_USE
    except KeyboardInterrupt:
        return FOUND


def _status(results: Sequence[Result], *, strict: bool) -> int:
    outcomes = {one.outcome for one in results}
    bad = Outcome.FAILED in outcomes or (strict and Outcome.NOT_JUDGED in outcomes)
    return FOUND if bad or Outcome.PASSED not in outcomes else FINE


def _no_target(why: str) -> int:
    print(f"rsio-check: {printable(why)}", file=sys.stderr)
    return FOUND


def _roles(name: str) -> Sequence[Role]:
    return tuple(Role) if name == "both" else (Role(name), Role.CONNECTION)


def _names(only: Sequence[str]) -> set[str]:
    """The tests that are meant; raises `WrongUse` for a word that means none."""
    if not only:
        return set(TESTS)
    wanted: set[str] = set()
    for word in only:
        found = {name for name in TESTS if word.lower() in name}
        if not found:
            raise WrongUse(f"no test {word!r}; see --list")
        wanted |= found
    return wanted


def _needs(names: Iterable[str]) -> str:
    needs = {TESTS[name].needs for name in names} - {Needs.NOTHING}
    return ", ".join(f"needs {each.value}" for each in needs) or "another --as"


def _identity(args: argparse.Namespace) -> Token | None:
    if args.name is not None:
        return Token("name", args.name.encode())
    if args.token is None:
        return None
    secret: str = args.token
    if secret.startswith("@"):
        try:
            secret = Path(secret[1:]).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as why:
            raise WrongUse(f"--token {secret}: {reason(why)}") from None
    return Token("bearer", secret.encode())


def _connect(args: argparse.Namespace) -> Callable[[], Transport]:
    if (args.ca or args.cert or args.key) and not args.tls:
        raise WrongUse("--ca, --cert and --key need --tls")
    if args.key and not args.cert:
        raise WrongUse("--key needs --cert")
    for path in filter(None, (args.ca, args.cert, args.key)):
        try:
            path.open("rb").close()
        except OSError as why:
            raise WrongUse(f"{path}: {reason(why)}") from None
    host, port, unix = args.target
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    tls = _context(args) if args.tls else None

    def bare() -> Transport:
        if unix is not None:
            return over_unix(unix, tls=tls)
        return over_tcp(host, port, tls=tls)

    def web() -> Transport:
        where = f"/{args.websocket.removeprefix('/')}"
        return WebSocketTransport(bare(), authority, where)

    def http2() -> Transport:
        where = f"/{args.http2.removeprefix('/')}"
        scheme = "https" if args.tls else "http"
        return Http2Transport(bare(), authority, where, scheme)

    if args.http2 is not None and find_spec("h2") is None:
        raise WrongUse("--http2 needs the package h2: pip install 'rsio-check[http2]'")
    if args.websocket is not None:
        return web
    return bare if args.http2 is None else http2


def _context(args: argparse.Namespace) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=args.ca)
        if args.cert:
            context.load_cert_chain(args.cert, args.key)
    except OSError as why:
        raise WrongUse(f"--ca, --cert or --key: {reason(why)}") from None
    if args.websocket is None:
        context.set_alpn_protocols([ALPN if args.http2 is None else "h2"])
    return context


def _watched(results: Iterable[Result], tests: Sequence[Test]) -> Iterator[Result]:
    """The results, with a line about where we are on a terminal."""
    shown = sys.stderr.isatty()
    for number, one in enumerate(results, 1):
        if shown:
            line = f"{number} of {len(tests)}: {one.test.name}"
            print(f"\r\x1b[K{line[:79]}", end="", file=sys.stderr, flush=True)
        yield one
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _where(text: str) -> Where:
    if text.startswith("unix:/"):
        return Where("localhost", 0, Path(text.removeprefix("unix:")))
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"not HOST:PORT, nor unix:PATH: {text!r}")
    return Where(host.removeprefix("[").removesuffix("]"), int(port))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 86400:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}")
    return seconds
