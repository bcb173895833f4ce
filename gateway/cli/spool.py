"""`gateway spool ls|cat|verify|done|offer`: files of spool and archive, and what the journal
has beside them; marks of consumers; directories of nodes that do not run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway import default_config
from gateway.cli import _data_dir
from gateway.cli._columns import table
from gateway.cli._config import add_config
from gateway.cli._working import working
from gateway.sdk.command import WrongUse, positive, printable
from gateway.spoken import duration, many, size

if TYPE_CHECKING:
    from gateway.audit.verify import Verified
    from gateway.store.directories import Directories

HELP = """\
Look into the spool: the files between the journal and the Spark job.

Example:
  gateway spool ls --config /etc/gateway/gateway.yaml
  gateway spool ls /var/lib/gateway/archive
  gateway spool cat --data-dir /var/lib/gateway --lsn 4711 -n 3
  gateway spool cat FILE --payload-only | jq .message
  gateway spool verify --data-dir /var/lib/gateway
  gateway spool done alerts --checkpoint /var/lib/alerts/checkpoint
  gateway spool offer /mnt/old-disk/gateway --config /etc/gateway/gateway.yaml
  gateway spool done reports events-gw-1_k3v7q2m5xa-00000000000000000001-00000000000000004711.parquet

Exit status: 0 fine; 1 verify found something, or no such event; 2 wrong use.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(
        dest="verb", metavar="ls|cat|verify|done|offer", required=True
    )
    ls = verbs.add_parser("ls", help="list the files, and what waits in the journal")
    _add_paths(ls, "a directory of spool files (default: spool, archive and journal)")
    cat = verbs.add_parser("cat", help="print events, a JSON object on each line")
    _data_dir.add_arguments(cat)
    what = cat.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "file", metavar="FILE", nargs="?", help="a file, or just its name"
    )
    what.add_argument("--lsn", metavar="N", type=positive, help="start with this event")
    cat.add_argument("--node", metavar="NAME", help="whose lsn, if there are several")
    cat.add_argument(
        "-n", dest="count", metavar="COUNT", type=positive,
        help="how many events (default: all of FILE, or the one with --lsn)",
    )  # fmt: skip
    cat.add_argument(
        "--payload-only", action="store_true",
        help="the payloads, as they are unless they go to a terminal",
    )  # fmt: skip
    verify = verbs.add_parser(
        "verify", help="read every byte and compare with the names"
    )
    _add_paths(verify, "files or directories (default: spool and archive)")
    done = verbs.add_parser(
        "done", help="say what one of spool.consumers has read and needs no more"
    )
    add_config(done)
    done.add_argument("name", metavar="NAME", help="which of spool.consumers")
    done.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        help="paths or names; - : lines of the input",
    )
    done.add_argument(
        "--checkpoint",
        metavar="DIR",
        type=Path,
        help="of its query of Spark's: all that this has committed",
    )
    offer = verbs.add_parser(
        "offer", help="hand over what lies in a data_dir that nobody runs on"
    )
    offer.add_argument(
        "directory", metavar="DIR", type=Path, help="that data_dir, with default names"
    )
    offer.add_argument(
        "--config", metavar="FILE", help="of the gateway that gets it, running or not"
    )
    offer.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    with _data_dir.readable():
        return _VERBS[args.verb](args)


def _add_paths(parser: argparse.ArgumentParser, what: str) -> None:
    _data_dir.add_arguments(parser)
    parser.add_argument("paths", metavar="PATH", nargs="*", type=Path, help=what)
    parser.add_argument("--json", action="store_true", help="for programs")


# -- ls -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Entry:
    where: str
    node: str
    first: int
    last: int
    events: int
    bytes: int
    age_seconds: float
    file: str


def _ls(args: argparse.Namespace) -> int:
    if args.paths:
        entries = [
            one for path in args.paths for one in _spooled(_there(path), path.name)
        ]
    else:
        places = _data_dir.places(args)
        # In the order in which events move, so none is missed; oldest first then.
        waiting = list(_waiting(places.journal))
        spool = list(_spooled(places.spool, "spool"))
        moving = {Path(entry.file).name for entry in spool}
        entries = [
            entry
            for entry in _spooled(places.archive, "archive")
            if Path(entry.file).name not in moving
        ]
        entries += spool + waiting
    if args.json:
        print(json.dumps([asdict(entry) for entry in entries], indent=2))
        return 0
    head = ("where", "node", "first", "last", "events", "size", "age", "file")
    rows = [
        (*which, size(count), duration(age), Path(file).name)
        for *which, count, age, file in map(astuple, entries)
    ]
    print(table(head, rows))
    events = sum(entry.events for entry in entries)
    total = sum(entry.bytes for entry in entries)
    print(f"{many(len(entries), 'file')}, {many(events, 'event')}, {size(total)}")
    return 0


def _spooled(directory: Path, where: str) -> Iterator[_Entry]:
    from gateway.store.finder import spool_files

    for node, files in sorted(spool_files(directory).items()):
        for file in files:
            count = file.last - file.first + 1
            with suppress(FileNotFoundError):
                yield _entry(where, node, file.first, count, file.path)


def _waiting(journal: Path) -> Iterator[_Entry]:
    """The journal's segments: events that are acknowledged and not yet in the spool."""
    from gateway.store.finder import journals_in, waiting

    for directory in journals_in(journal):
        for path, scan, first, count in waiting(directory):
            with suppress(FileNotFoundError):
                entry = _entry("journal", directory.name, first, count, path)
                # Behind that an old one may be left, that it is written over.
                yield replace(entry, bytes=scan.end)


def _entry(where: str, node: str, first: int, count: int, path: Path) -> _Entry:
    stat = path.stat()
    since = max(0.0, round(time.time() - stat.st_mtime, 3))
    last = first + count - 1
    return _Entry(where, node, first, last, count, stat.st_size, since, str(path))


# -- cat ------------------------------------------------------------------------------


def _cat(args: argparse.Namespace) -> int:
    count = args.count
    if args.file is not None:
        events = _rows(_file(args), 0)
    else:
        events = _from_lsn(_data_dir.places(args), args.lsn, args.node)
        count = 1 if count is None else count
    shown = 0
    for event in islice(events, count):
        _print(event, payload_only=args.payload_only)
        shown += 1
    if shown:
        return 0
    what = f"lsn {args.lsn}" if args.file is None else args.file
    print(f"gateway spool: no event: {printable(what)}", file=sys.stderr)
    return 1


def _file(args: argparse.Namespace) -> Path:
    path = Path(args.file)
    if path.exists() or path.name != args.file:
        return _there(path)
    places = _data_dir.places(args)
    for directory in (places.spool, places.archive):
        if (directory / path).exists():
            return directory / path
    raise WrongUse(f"{args.file}: not here, nor in {places.spool} or {places.archive}")


def _from_lsn(
    places: Directories, lsn: int, node: str | None
) -> Iterator[dict[str, Any]]:
    """Events of one node from *lsn* on, through spool, archive and journal."""
    from gateway.audit.files import read_journal
    from gateway.audit.sites import joined
    from gateway.store.finder import spool_files

    waiting = read_journal(places.journal)
    files = joined(*map(spool_files, (places.spool, places.archive)))
    lives = {
        (name, file.incarnation)
        for name, some in files.items()
        for file in some
        if file.overlaps(lsn, lsn)
    } | {
        (name, by)
        for name, seen in waiting.items()
        for by, lsns in seen.events.items()
        if lsns.touches(lsn, lsn)
    }
    having = {name for name, _ in lives}
    if node is None and len(having) > 1:
        names = printable(", ".join(sorted(having)))
        raise WrongUse(f"lsn {lsn} is there for {names}: say which with --node")
    if node is None and having:
        (node,) = having
    if node not in having:
        return
    if len(several := sorted(by for name, by in lives if name == node)) > 1:
        raise WrongUse(
            f"lsn {lsn} of {node} is there for incarnations {', '.join(several)}: say"
            " which FILE"
        )
    for file in files.get(node, []):
        if file.last >= lsn:
            moved = places.archive / file.path.name
            yield from _rows(file.path if file.path.exists() else moved, lsn)
            lsn = file.last + 1
    yield from _journalled(places.journal_of(node), lsn)


def _rows(path: Path, lsn: int) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    from gateway.audit.lake import Unusable, reading
    from gateway.sdk.arrow import batches_by_group

    try:
        with (
            reading(path),
            pq.ParquetFile(path, page_checksum_verification=True) as file,
        ):
            for batch in batches_by_group(file, 1024):
                if batch["payload"].null_count:
                    raise Unusable("it has rows without a payload, as tables have them")
                yield from (one for one in batch.to_pylist() if one["lsn"] >= lsn)
    except Unusable as why:
        raise WrongUse(f"{path}: no spool file, or a damaged one: {why}") from None


def _journalled(directory: Path, lsn: int) -> Iterator[dict[str, Any]]:
    from gateway.plugins import decoders
    from gateway.store.finder import scans
    from gateway.store.spool.columns import Columns
    from gateway.store.spool.decoding import Decoder

    decoder = Decoder(decoders(), careful=True)
    for _, scan in scans(directory, lambda path, why: None):
        for stored in scan:
            if stored.lsn + stored.batch.count <= lsn or not stored.batch.count:
                continue
            columns = Columns(directory.name)
            columns.add(stored, decoder.rows(stored))
            for event in columns.batch().to_pylist():
                if event["lsn"] >= lsn:
                    yield event


def _print(event: dict[str, Any], *, payload_only: bool) -> None:
    from gateway.cli._events import as_json, line

    if not payload_only:
        print(line(event))
    elif sys.stdout.isatty():
        text = as_json(event["payload"])
        print(printable(text or event["payload"].decode("utf-8", "backslashreplace")))
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(event["payload"] + b"\n")


# -- verify ---------------------------------------------------------------------------


def _verify(args: argparse.Namespace) -> int:
    from gateway.audit.verify import verify

    if args.paths:
        paths = [_there(path) for path in args.paths]
    else:
        places = _data_dir.places(args)
        # In the order in which files move, so none is missed.
        paths = [path for path in (places.spool, places.archive) if path.exists()]
    with working("reading every page of every file"):
        done = verify(paths)
    if args.json:
        print(json.dumps(asdict(done), indent=2))
    else:
        _show(done)
    return 1 if done.problems else 0


def _show(done: Verified) -> None:
    for problem in done.problems:
        print(f"{printable(problem.file)}: {printable(problem.why)}")
    if done.moved:
        print(f"note: meanwhile the Spark job took {many(done.moved, 'file')}")
    seen = f"{many(done.files, 'file')}, {many(done.events, 'event')}"
    if done.problems:
        print(f"{many(len(done.problems), 'problem')} in {seen}")
    else:
        print(f"fine: {seen}, every byte as it should be")


# -- done -----------------------------------------------------------------------------


def _done(args: argparse.Namespace) -> int:
    from gateway.config import load
    from gateway.store.readers.consumers import marks_of

    names = [
        Path(line.strip()).name
        for file in args.files
        for line in (sys.stdin if file == "-" else [file])
        if line.strip()
    ]
    if args.checkpoint is not None:
        names += _committed(args.checkpoint)
    elif not args.files:
        raise WrongUse("say which FILE, or --checkpoint DIR")
    try:
        config = load(args.config or default_config())
        marks = marks_of(config, args.name)
        marks.change(lambda mark: mark.with_done(names))
    except ValueError as why:
        raise WrongUse(str(why)) from None
    print(f"consumer {args.name} needs {many(len({*names}), 'file')} no more")
    return 0


def _committed(checkpoint: Path) -> list[str]:
    """The files of the batches that a query has committed."""
    from gateway.spark.commit.lakedisk import Lake
    from gateway.spark.commit.ledger import Broken
    from gateway.spark.run.checkpoint import Checkpoint

    found = Checkpoint(_there(checkpoint), Lake())
    try:
        return [one.name for one in found.files(-1, found.offset(found.committed))]
    except Broken as why:
        raise WrongUse(str(why)) from None


def _there(path: Path) -> Path:
    if not path.exists():
        raise WrongUse(f"{path}: no such file or directory")
    return path


# -- offer ----------------------------------------------------------------------------


def _offer(args: argparse.Namespace) -> int:
    from gateway.config import load
    from gateway.plugins import decoders
    from gateway.store.directories import Directories
    from gateway.store.node.offering import offer
    from gateway.store.objects.s3 import bucket_of
    from gateway.store.system.disk import RealDisk
    from gateway.store.system.lock import Locked

    config = load(args.config or default_config())
    source, target = Directories.under(args.directory), Directories.of(config)
    if not (source.journal.is_dir() or source.spool.is_dir()):
        raise WrongUse(f"{args.directory}: neither journal nor spool in it")
    if source.root.resolve() == target.root.resolve():
        raise WrongUse(f"{args.directory} is that gateway's own data_dir")
    bucket = bucket_of(config.spool)
    disk = RealDisk()
    for path in (source.spool, target.spool):
        disk.make_directory(path)
    try:
        done = offer(source, config.node, target, bucket, disk, decoders())
    except Locked as why:
        raise WrongUse(f"{why}: what is there goes its own way") from None
    if args.json:
        plain = {"files": done.files, "events": done.events}
        told = [asdict(one) for one in done.orphans if one.problem]
        print(json.dumps({**plain, "problems": told}, indent=2, default=str))
    else:
        for node, events in done.events.items():
            print(printable(f"offered: {many(events, 'event')} of node {node}"))
        if not done.files:
            print("nothing lies there that is not handed over")
        for one in done.orphans:
            if one.problem is not None:
                print(
                    printable(f"problem: the journal of node {one.node}: {one.problem}")
                )
    return 1 if any(one.problem for one in done.orphans) else 0


_VERBS = {"ls": _ls, "cat": _cat, "verify": _verify, "done": _done, "offer": _offer}
