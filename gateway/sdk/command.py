"""The command line of commands that a protocol brings.

A command's module has

    HELP = "What it does, in full; an example."     shown by `gateway COMMAND --help`
    def add_arguments(parser: ArgumentParser) -> None
    def run(args: Namespace) -> int                 0 fine, 1 found something, 2 wrong use

and may raise `WrongUse`.  Here are the options of connections (`HOST:PORT` or `unix:PATH`,
TLS, WebSocket), and text that may play no tricks on a terminal.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import select
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from twisted.internet.interfaces import IStreamClientEndpoint

    from gateway.sdk.outgoing import Http2

__all__ = [
    "INTERRUPTED", "PIPE_CLOSED", "Target", "WrongUse", "add_http2", "add_target",
    "add_transport", "amount", "check", "day", "endpoint", "failure", "http2", "nobody_reads", "positive", "printable", "reason",
    "say", "secret_in", "target", "websocket",
]  # fmt: skip

#: What a shell reports for a program that such a signal ended: ^C, `| head`.
INTERRUPTED, PIPE_CLOSED = 130, 141

_ERRNO = re.compile(r"^[^:]*: \d+: (\w)(.*?)\.?$", re.DOTALL)


class WrongUse(Exception):
    """A command can not start; the message is for its user."""


class Target(NamedTuple):
    """The other end."""

    host: str
    port: int
    unix: Path | None = None
    """A socket in the file system, instead of host and port."""


def add_target(parser: argparse.ArgumentParser, *, stdio: bool = False) -> None:
    """The argument that says where; *stdio*: standard input and output may take its place."""
    parser.set_defaults(endpoint=None, stdio=False)
    add = parser.add_argument
    if not stdio:
        add("target", metavar="HOST:PORT", type=target, help="or unix:PATH")
        return
    add("target", metavar="HOST:PORT", type=target, nargs="?", help="or unix:PATH")
    add("--stdio", action="store_true",
        help="speak over standard input and output, as under ssh, in place of HOST:PORT")  # fmt: skip


def add_transport(parser: argparse.ArgumentParser, *, web: bool = True) -> None:
    """The arguments that say how; *web*: over WebSocket, too."""
    add = parser.add_argument
    add("--tls", action="store_true", help="over TLS")
    add("--ca", type=Path, metavar="PEM", help="who signed the gateway's certificate")
    add("--cert", type=Path, metavar="PEM", help="our own certificate")
    add("--key", type=Path, metavar="PEM", help="its private key")
    if web:
        add("--websocket", metavar="PATH", help="over WebSocket, at PATH")


def add_http2(parser: argparse.ArgumentParser) -> None:
    """One more of them, for a protocol that is carried so."""
    parser.add_argument("--http2", metavar="PATH", help="over HTTP/2, at PATH")


def check(args: argparse.Namespace) -> None:
    """Raises `WrongUse` if those arguments contradict each other."""
    if args.stdio:
        _check_stdio(args)
    elif args.target is None:
        raise WrongUse("where is it? HOST:PORT, unix:PATH or --stdio is missing")
    for path in (args.ca, args.cert, args.key):
        if path is not None and not path.is_file():
            raise WrongUse(f"no such file: {path}")
    if (args.ca or args.cert or args.key) and not args.tls:
        raise WrongUse("--ca, --cert and --key need --tls")
    if args.key and not args.cert:
        raise WrongUse("--key needs --cert")
    if args.tls:
        _check_certificates(args)


def _check_certificates(args: argparse.Namespace) -> None:
    from gateway.sdk import outgoing

    try:
        if args.ca:
            outgoing.certificates(args.ca)
        if args.cert:
            outgoing.credentials(args.cert, args.key)
    except (ValueError, OSError) as why:
        raise WrongUse(located(why)) from None


def _check_stdio(args: argparse.Namespace) -> None:
    if args.target is not None:
        raise WrongUse("--stdio takes the place of HOST:PORT")
    given = vars(args)
    for other in ("stdin", "tls", "websocket", "http2"):
        if given.get(other):
            raise WrongUse(f"--stdio and --{other} exclude each other")
    if given.get("connections", 1) > 1:
        raise WrongUse("--stdio is one connection, --connections asks for more")
    args.target = Target("localhost", 0)


def endpoint(
    reactor: Any, args: argparse.Namespace, alpn: Sequence[bytes] = ()
) -> IStreamClientEndpoint:
    """The endpoint of a client; *alpn* are the protocol's names in TLS.

    `args.endpoint` is another one, where nothing is to leave the process.
    """
    if args.endpoint is not None:
        return cast("IStreamClientEndpoint", args.endpoint)
    from gateway.sdk import outgoing

    if args.stdio:
        return cast("IStreamClientEndpoint", outgoing.Stdio(reactor))
    return outgoing.endpoint(
        reactor,
        args.target.host,
        args.target.port,
        unix=args.target.unix,
        tls=args.tls,
        ca=args.ca,
        certificate=args.cert,
        private_key=args.key,
        alpn=alpn,
    )


def websocket(args: argparse.Namespace) -> str | None:
    """The request's `//HOST/PATH`, if it is to be over WebSocket."""
    if args.websocket is None:
        return None
    host, port, _ = args.target
    return f"//{host}:{port}/{args.websocket.removeprefix('/')}"


def http2(args: argparse.Namespace, content_type: str) -> Http2 | None:
    """The request for HTTP/2, if that is wanted."""
    if args.http2 is None:
        return None
    if args.websocket is not None:
        raise WrongUse("--http2 and --websocket exclude each other")
    from gateway.sdk.outgoing import Http2

    host, port, _ = args.target
    path = args.http2.removeprefix("/")
    return Http2(f"//{host}:{port}/{path}", content_type, args.tls)


def target(text: str) -> Target:
    """Parse a target; for `argparse`."""
    if text.startswith("unix:/"):
        return Target("localhost", 0, Path(text.removeprefix("unix:")))
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"not HOST:PORT, nor unix:PATH: {text!r}")
    return Target(host.removeprefix("[").removesuffix("]"), int(port))


def positive(text: str) -> int:
    """A whole number above 0; for `argparse`."""
    try:
        number = int(text.replace("_", ""))
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"not a number above 0: {text!r}")
    if number > sys.maxsize:
        raise argparse.ArgumentTypeError(f"more than {sys.maxsize}: {text!r}")
    return number


def amount(text: str) -> float:
    """A finite number above 0; for `argparse`."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"not a finite number above 0: {text!r}")
    return number


def day(text: str) -> date:
    """A day of the calendar; for `argparse`."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        why = f"not a day as YYYY-MM-DD: {text!r}"
        raise argparse.ArgumentTypeError(why) from None


def secret_in(file: Path, option: str) -> str:
    """The token or password in the *file* that an *option* names.  Raises `WrongUse`."""
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as why:
        raise WrongUse(f"{option} {file}: {failure(why)}") from None


def say(text: str) -> None:
    """A line on standard error, from within the event loop.

    That would swallow the exception if its reader has gone (`2>&1 | head -1`), and the
    program would go on: it ends, as by SIGPIPE.
    """
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except BrokenPipeError:
        os._exit(PIPE_CLOSED)


def nobody_reads() -> bool:
    """Whether standard output is a pipe whose reader has gone: the next write would fail.

    For who writes nothing for long, that `| head -1` need not wait for it.
    """
    poll = select.poll()
    poll.register(1, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def printable(text: str) -> str:
    r"""*text*, with what is not printable spelled as in JSON (`\u001b`)."""
    return text if text.isprintable() else "".join(map(_spell, text))


def reason(trouble: str) -> str:
    """A failure as people say it: `Connection was refused by other side: 111:
    Connection refused.` is `connection refused`.
    """
    found = _ERRNO.match(trouble)
    text = found[1].lower() + found[2] if found else trouble.removesuffix(".")
    return printable(text)


def failure(why: Exception) -> str:
    """An exception as people say it, without numbers: `no such file or directory`."""
    if isinstance(why, UnicodeDecodeError):
        return "not UTF-8"
    text = getattr(why, "strerror", None) or str(why) or type(why).__name__
    return f"{text[0].lower()}{text[1:]}"


def located(why: Exception) -> str:
    """The same, behind the file that it is about, if it says one."""
    file = getattr(why, "filename", None)
    return f"{file}: {failure(why)}" if file else failure(why)


def _spell(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    if code <= 0xFFFF:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
