"""`gateway pravega cut SCOPE/STREAM --at TIME`: where a stream was at a time.

The controller knows when the bytes before each of a segment's marks were written.  The cut
is a place of marks.  All before it was written before TIME, and so was nothing behind it,
but for a mark's distance.
"""

from __future__ import annotations

import argparse
import gzip
import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from gateway.protocols.pravega.controller import messages
from gateway.protocols.pravega.controller_client import CallFailed, ControllerClient
from gateway.sdk.command import Target, WrongUse, say, secret_in, target

HELP = """\
Cuts of Pravega's streams by time.

  gateway pravega cut shop/orders --at 2026-11-01T00:00Z
  gateway pravega cut shop/orders --at 2026-11-01T00:00Z --truncate

The cut is printed as Java's `StreamCut.from` takes it: a reader group that starts there
(`ReaderGroupConfig.builder().stream("shop/orders", StreamCut.from(text))`) reads all that was
written at that time or later, and of what is older an hour or a quarter of a megabyte of a
segment at most.  With --truncate what lies before it is deleted, for all readers.
Exit status: 0 done; 1 the controller does not do it; 2 wrong use.
"""
_LOCAL = Target("127.0.0.1", 9090)
_SUCCESS = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    does = parser.add_subparsers(dest="do", metavar="cut", required=True)
    cut = does.add_parser(
        "cut",
        help="where a stream was at a time",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = cut.add_argument
    add("stream", metavar="SCOPE/STREAM", type=_stream)
    add("--at", metavar="TIME", type=_time, required=True,
        help="as 2026-11-01T00:00Z; without a zone, in UTC")  # fmt: skip
    add("--controller", metavar="HOST:PORT", type=target, default=_LOCAL,
        help="default: 127.0.0.1:9090")  # fmt: skip
    add("--truncate", action="store_true", help="delete what lies before it")
    add(
        "--user", metavar="NAME:FILE", help="a name, and the file that has its password"
    )
    add("--token", metavar="FILE", type=Path, help="the file that has a bearer token")
    add("--tls", action="store_true", help="over TLS")
    add("--ca", type=Path, metavar="PEM", help="who signed the gateway's certificate")
    add("--json", action="store_true", help="print offsets and text as JSON")


def run(args: argparse.Namespace) -> int:
    where: Target = args.controller
    if where.unix is not None:
        raise WrongUse("--controller: a controller has no socket in the file system")
    if args.ca and not args.tls:
        raise WrongUse("--ca needs --tls")
    scope, stream = args.stream
    info = messages.StreamInfo(scope=scope, stream=stream)
    milliseconds = int(args.at.timestamp() * 1000)
    try:
        with ControllerClient(
            where.host,
            where.port,
            authorization=_authorization(args),
            tls=args.tls,
            ca=args.ca,
        ) as controller:
            asked = messages.GetSegmentsRequest(
                stream_info=info, timestamp=milliseconds
            )
            found = controller.call("getSegments", asked, messages.SegmentsAtTime)
            cut = {each.segment.number: each.offset for each in found.segments}
            _show(f"{scope}/{stream}", cut, json_=args.json)
            if args.truncate:
                end = messages.StreamCut(stream_info=info, cut=cut)
                done = controller.call("truncateStream", end, messages.Status)
                if done.status != _SUCCESS:
                    raise CallFailed(f"it is not truncated there: status {done.status}")
    except CallFailed as why:
        say(f"gateway pravega: {why}")
        return 1
    return 0


def _show(name: str, cut: Mapping[int, int], *, json_: bool) -> None:
    if json_:
        words = {"stream": name, "cut": {str(k): v for k, v in cut.items()}}
        print(json.dumps({**words, "text": text_of(name, cut)}))
        return
    for number, offset in sorted(cut.items()):
        segment, epoch = number & 0xFFFFFFFF, number >> 32
        say(f"{name}/{segment}.#epoch.{epoch} from {offset:,} on")
    print(text_of(name, cut))


def text_of(name: str, cut: Mapping[int, int]) -> str:
    """A cut as `StreamCut.asText` of Java's client writes it, and `StreamCut.from` reads."""
    numbers = sorted(cut)
    lists = (
        (number & 0xFFFFFFFF for number in numbers),
        (number >> 32 for number in numbers),
        (cut[number] for number in numbers),
    )
    parts = ["0", name, *(",".join(map(str, each)) for each in lists)]
    return b64encode(gzip.compress(":".join(parts).encode(), mtime=0)).decode()


def _stream(text: str) -> tuple[str, str]:
    scope, _, stream = text.partition("/")
    if not scope or not stream or "/" in stream:
        raise argparse.ArgumentTypeError(f"not SCOPE/STREAM: {text}")
    return scope, stream


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"not a time like 2026-11-01T00:00Z: {text}"
        ) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _authorization(args: argparse.Namespace) -> str:
    """The header with what the caller proves; empty: nothing."""
    if args.token is not None:
        return f"Bearer {secret_in(args.token, '--token')}"
    if args.user is None:
        return ""
    name, _, path = args.user.partition(":")
    if not path:
        raise WrongUse("--user must be NAME:FILE")
    secret = f"{name}:{secret_in(Path(path), f'--user {name}')}"
    return f"Basic {b64encode(secret.encode()).decode()}"
