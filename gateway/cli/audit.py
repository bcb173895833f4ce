"""`gateway audit`: prove that every acknowledged event is there, exactly once."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.cli import WrongUse, _admin, _data_dir
from gateway.cli._text import printable, table
from gateway.cli._working import working

if TYPE_CHECKING:
    from gateway.audit import Report
    from gateway.audit.acknowledged import Acknowledged
    from gateway.audit.remote import Access
    from gateway.audit.sites import Ask, Site, Word
    from gateway.cli._audit_digests import Part
    from gateway.store.directories import Directories

__all__ = ["HELP", "add_arguments", "run"]

HELP = """\
Prove that every acknowledged event is there, exactly once.

For every node, every lsn from 1 to the last acknowledged must be once in the tables,
or else in the spool, or else in the journal.  Of many gateways that write for one job name
all that this machine can see, the job's configuration first; the others are asked
(--gateway) how far they are.  Files that have events which no table has
are read whole, and compared with the digests that they were written with.  Nothing is
written; the gateway and the Spark job may be at work meanwhile.

Example:
  gateway audit --config /etc/gateway/gateway.yaml
  gateway audit --data-dir /var/lib/gateway --node gw-1 --json
  gateway audit --config /etc/gateway/gateway.yaml --chain --link 5f0c…
  gateway audit --config job.yaml --config gw-1.yaml --config gw-2.yaml
  gateway audit --config job.yaml --gateway gw-1:8080 --gateway gw-2:8080

Exit status: 0 complete; 1 something is missing, doubled, changed or unreadable; 2 wrong
use.
"""

_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    _data_dir.add_arguments(parser, several=True)
    parser.add_argument(
        "--gateway", dest="gateways", metavar="HOST:PORT", action="append", default=[],
        help="also ask the gateway with this admin port what it has acknowledged and what"
        " is in its journal alone; again for more of them",
    )  # fmt: skip
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE",
        help="has what their admin.token asks for",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="all of it, for programs")
    parser.add_argument("--node", metavar="NAME", help="only this node (default: all)")
    parser.add_argument(
        "--from",
        dest="first",
        metavar="LSN",
        type=_lsn,
        default=1,
        help="start there, where older events are no longer kept (default: 1)",
    )
    parser.add_argument(
        "--acknowledged",
        metavar="FILE",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        help="also look for the event ids in files of `gateway send --acked FILE`",
    )
    parser.add_argument(
        "--content",
        action="store_true",
        help="also compare the payloads in archive and tables with the digests of their"
        " files, and look for events that Beats sent twice: same agent, file, offset, text",
    )
    parser.add_argument(
        "--chain",
        action="store_true",
        help="also verify that no spool file was removed, exchanged or changed",
    )
    parser.add_argument(
        "--link",
        metavar="HEX",
        dest="links",
        type=_link,
        action="append",
        default=[],
        help="with --chain: it must have this link, which was kept elsewhere",
    )


def run(args: argparse.Namespace) -> int:
    """Print the report; 0, 1 or 2."""
    with _data_dir.readable():
        return _run(args)


def _lsn(text: str) -> int:
    lsn = int(text)
    if not 1 <= lsn < 2**62:
        raise argparse.ArgumentTypeError(f"{text}: lsns start at 1")
    return lsn


def _link(text: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise argparse.ArgumentTypeError(f"{text}: a link is 64 hex digits")
    return text.lower()


def _run(args: argparse.Namespace) -> int:
    from gateway.audit import audit

    if args.links and not args.chain:
        raise WrongUse("--link needs --chain")

    one, *more = _data_dir.each(args)
    if more and (args.content or args.chain):
        raise WrongUse("--content and --chain look at one directory: name one")
    place, *others = [_site(each) for each in (one, *more)]
    ids = _ids(args.acknowledged)
    places, bucket, access = place.directories, place.bucket, place.access
    look = partial(
        audit,
        places,
        bucket=bucket,
        access=access,
        others=others,
        gateways=_gateways(args),
    )
    with working("comparing tables, spool and journal"):
        report = look(node=args.node, first=args.first, served=place.served)
    if args.node is not None and not report.nodes:
        everything = look(pause=lambda _: None)
        known = [node.node for node in everything.nodes]
        raise WrongUse(
            f"--node {args.node}: no such node; there is {printable(', '.join(known)) or 'none'}"
        )
    if report.told and (args.content or args.acknowledged):
        raise WrongUse(
            "--content and --acknowledged read tables; a function of your own took the"
            " batches (spark.sink), and only it knows where they are"
        )
    searched = None
    if args.acknowledged:
        from gateway.audit.acknowledged import search
        from gateway.plugins import decoders

        with working("looking for the acknowledged ids"):
            searched = search(places, ids, decoders(), bucket, access, others)
    with working("reading payloads and digests"):
        parts = _parts(args, one, places, access)
    if args.json:
        plain = _plain(report, searched, parts)
        json.dump(plain, sys.stdout, indent=2)
        print()
    else:
        _show(report, searched, parts)
    return 0 if _complete(report, searched, parts) else 1


def _site(args: argparse.Namespace) -> Site:
    """What the arguments of one directory name."""
    from gateway.audit.sites import Site

    return Site(
        _data_dir.places(args),
        _data_dir.node(args),
        _data_dir.bucket(args),
        _data_dir.access(args),
    )


def _gateways(args: argparse.Namespace) -> list[tuple[str, Ask]]:
    """How those are asked that have their directories elsewhere.  Raises `WrongUse`."""
    if args.token_file is not None and not args.gateways:
        raise WrongUse("--token-file needs --gateway")
    token = _admin.token_in(args.token_file)
    return [
        (address, partial(_asked, _admin.port_at(address, token)))
        for address in args.gateways
    ]


def _asked(port: _admin.AdminPort) -> Word:
    from gateway.audit.sites import Word

    try:
        said = port.status()
        journal, spool = said["journal"], said["spool"]
        return Word(
            str(said["node"]),
            int(journal["durable_lsn"]),
            int(spool["published_lsn"]),
            spool["bucket"],
        )
    except _admin.Unreachable as why:
        raise OSError(str(why)) from None
    except (KeyError, TypeError, ValueError):
        raise OSError("it does not say how far it is") from None


def _parts(
    args: argparse.Namespace,
    one: argparse.Namespace,
    places: Directories,
    access: Access | None,
) -> list[Part]:
    from gateway.cli import _audit_digests

    found = []
    if args.content:
        found.append(_audit_digests.content(places, node=args.node))
        found.append(_audit_digests.payloads(places, args.node, access))
    if args.chain:
        found.append(
            _audit_digests.chain(
                places,
                node=args.node,
                first=args.first,
                links=args.links,
                deleting=_data_dir.deletes(one),
            )
        )
    return found


def _ids(files: Iterable[Path]) -> list[str]:
    from gateway.audit.acknowledged import read_ids

    ids: list[str] = []
    for path in files:
        try:
            with path.open(encoding="utf-8", errors="replace") as lines:
                ids += read_ids(lines)
        except OSError as why:
            raise WrongUse(f"--acknowledged {path}: {why.strerror}") from None
    return ids


def _complete(
    report: Report, searched: Acknowledged | None, parts: Iterable[Part]
) -> bool:
    lost = searched is not None and bool(searched.missing or searched.unsearched)
    return report.complete and not lost and not any(one.fault for one in parts)


def _show(report: Report, searched: Acknowledged | None, parts: Sequence[Part]) -> None:
    head = ("node", "first", "last", "in lake", "in spool", "in journal")
    rows = [
        (
            node.node,
            node.first,
            node.last,
            node.in_lake,
            node.in_spool,
            node.in_journal,
            node.holes.events,
            node.doubles.events,
        )
        for node in report.nodes
    ]
    print(table((*head, "holes", "doubles"), rows))
    if report.told:
        print(
            "note: a function of your own took the batches (spark.sink), so no table was"
            " read: in lake is what the job's ledger says"
        )
    if report.asked:
        names = printable(", ".join(report.asked))
        print(f"note: in journal is what the gateway itself says, of {names}")
    faults = [*_faults(report), *_searched_faults(searched)]
    for line in faults[:_SHOWN]:
        print(printable(line))
    if len(faults) > _SHOWN:
        print(f"… and {len(faults) - _SHOWN} more; --json has them all")
    if searched:
        _show_searched(searched)
    for part in parts:
        for line in part.lines:
            print(printable(line))
    if _complete(report, searched, parts):
        aside = sum(node.aside.events for node in report.nodes)
        known = (
            f" but for {aside} in spool files that were moved aside" if aside else ""
        )
        print(f"complete: {report.events} events, each exactly once{known}")
    else:
        print(f"INCOMPLETE: {printable(_summary(report, searched, parts))}")


def _faults(report: Report) -> Iterable[str]:
    for problem in report.problems:
        yield f"problem: {problem.file}: {problem.why}"
    for name, holes in report.holes.items():
        for hole in holes:
            known = hole.note or "nowhere"
            if hole.archive:
                known = f"the archive still has them: {_some(hole.archive)}"
            yield f"hole: {name} lsn {_range(hole.first, hole.last)}: {known}"
    for node in report.nodes:
        for first, last in node.aside:
            yield (
                f"moved aside: {node.node} lsn {_range(first, last)}: the Spark job could"
                " not read their file; it lies in poison/ beside its reason"
            )
    for name, doubles in report.doubles.items():
        for double in doubles:
            where = _some(double.files) or "more than once"
            yield f"double: {name} lsn {_range(double.first, double.last)}: in {where}"


def _searched_faults(searched: Acknowledged | None) -> Iterable[str]:
    if searched is None:
        return
    for problem in searched.unsearched:
        yield f"problem: {problem.file}: {problem.why}"
    for name in searched.missing:
        yield f"missing: acknowledged event {name} is nowhere"


def _show_searched(searched: Acknowledged) -> None:
    found = searched.ids - len(searched.missing)
    print(f"senders: {found} of {searched.ids} acknowledged events found")
    if searched.resent:
        print(
            f"note: {searched.resent} of them are there more than once "
            f"({searched.copies} copies): their sender sent them again"
        )


def _summary(
    report: Report, searched: Acknowledged | None, more: Iterable[Part]
) -> str:
    parts = []
    for what, by_node in (
        (
            "events missing",
            {node.node: node.holes for node in report.nodes if len(node.holes)},
        ),
        (
            "events doubled",
            {node.node: node.doubles for node in report.nodes if len(node.doubles)},
        ),
    ):
        if by_node:
            count = sum(ranges.events for ranges in by_node.values())
            spans = [
                f"{name} {_range(first, last)}"
                for name, ranges in by_node.items()
                for first, last in ranges
            ]
            parts.append(f"{count} {what} ({_some(spans, _SHOWN)})")
    if report.problems:
        parts.append(f"{len(report.problems)} files with problems")
    if searched and searched.missing:
        parts.append(f"{len(searched.missing)} acknowledged ids not found")
    if searched and searched.unsearched:
        parts.append(f"{len(searched.unsearched)} files that can not be searched")
    return "; ".join([*parts, *(one.fault for one in more if one.fault)])


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _some(texts: list[str], most: int = 4) -> str:
    more = f", … ({len(texts) - most} more)" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _plain(
    report: Report, searched: Acknowledged | None, parts: Sequence[Part]
) -> dict[str, Any]:
    found = {one.name: one.plain for one in parts}
    return {
        "complete": _complete(report, searched, parts),
        "events": report.events,
        "looks": report.looks,
        "told": report.told,
        "asked": report.asked,
        "nodes": [
            {
                "node": node.node,
                "first": node.first,
                "last": node.last,
                "events": node.events,
                "in_lake": node.in_lake,
                "in_spool": node.in_spool,
                "in_journal": node.in_journal,
                "aside": [{"first": one, "last": last} for one, last in node.aside],
                "holes": [
                    {
                        "first": hole.first,
                        "last": hole.last,
                        "archive": hole.archive,
                        "note": hole.note,
                    }
                    for hole in report.holes.get(node.node, [])
                ],
                "doubles": [
                    {"first": two.first, "last": two.last, "files": two.files}
                    for two in report.doubles.get(node.node, [])
                ],
            }
            for node in report.nodes
        ],
        "problems": [_problem(problem) for problem in report.problems],
        "acknowledged": searched
        and {
            "ids": searched.ids,
            "missing": searched.missing,
            "resent": searched.resent,
            "copies": searched.copies,
            "unsearched": [_problem(problem) for problem in searched.unsearched],
        },
        "content": found.get("content"),
        "payloads": found.get("payloads"),
        "chain": found.get("chain"),
    }


def _problem(problem: Any) -> dict[str, str]:
    return {"file": problem.file, "why": problem.why}
