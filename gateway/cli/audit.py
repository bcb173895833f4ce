"""`gateway audit`: prove that every acknowledged event is there, exactly once."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.cli import _admin, _audit_accept, _audit_note, _data_dir
from gateway.cli._columns import table
from gateway.cli._working import working
from gateway.sdk.command import WrongUse, failure, positive, printable
from gateway.spoken import many

if TYPE_CHECKING:
    from gateway.audit import Life, Node, Report
    from gateway.audit.acknowledged import Acknowledged
    from gateway.audit.sites import Answer, Ask, Site
    from gateway.cli._audit_digests import Part
    from gateway.store.lsns import Lsns
    from gateway.store.node.lives import Unknown

HELP = """\
Prove that every acknowledged event is there, exactly once.

For every node, every lsn from 1 to the last acknowledged must be once in the tables,
or else in the spool, or else in the journal.  A node whose disk was lost goes on as another
incarnation, and each of them has to account for its own lsns; where nobody knows what one
acknowledged at its end, that is said, and is not complete until it is accepted.  Of many
gateways that write for one job name
all that this machine can see, the job's configuration first; the others are asked
(--gateway) how far they are.  Files that have events which no table has
are read whole, and compared with the digests that they were written with.  Nothing is
written; the gateway and the Spark job may be at work meanwhile.

What is lost for good is accepted with `gateway audit accept NODE FIRST-LAST --reason TEXT`.

Example:
  gateway audit --config /etc/gateway/gateway.yaml
  gateway audit --data-dir /var/lib/gateway --node gw-1 --json
  gateway audit --config /etc/gateway/gateway.yaml --chain --link 5f0c…
  gateway audit --config job.yaml --config gw-1.yaml --config gw-2.yaml
  gateway audit --config job.yaml --gateway gw-1:8080 --gateway gw-2:8080
  gateway audit accept gw-1 1701-1800 --reason "disk lost on May 3" --config job.yaml

Exit status: 0 complete; 1 something is missing, doubled, changed, unreadable or not known
to anybody; 2 wrong use.
"""

_SHOWN = 20
_NODE = (
    "node", "first", "last", "events", "in_lake", "in_spool", "in_journal", "aside"
)  # fmt: skip
_UNKNOWN = ("node", "incarnation", "last", "successor", "accepted")
_LIFE = ("incarnation", "in_lake", "in_spool", "in_journal", "holes", "doubles")
_REASONS = ("aside", "expired", "deleted", "read", "accepted", "unverified")
"""Keys of an incarnation in --json, the latter for what is in no place."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _data_dir.add_arguments(parser, several=True)
    _add_gateways(parser, default=[], no_file=None)
    add, flag = parser.add_argument, partial(parser.add_argument, action="store_true")
    several = partial(add, action="append", default=[])
    flag("--json", help="all of it, for programs")
    add("--node", metavar="NAME", help="only this node (default: all)")
    add("--from", dest="first", metavar="LSN", type=_lsn, default=1,
        help="start there, where older events are no longer kept (default: 1)")  # fmt: skip
    add("--acknowledged", metavar="FILE", type=Path, nargs="+", action="extend", default=[],
        help="also look for the event ids in files of `gateway send --acked FILE`")  # fmt: skip
    flag("--content",
         help="also compare the payloads in archive and tables with the digests of their"
         " files, and look for events that Beats sent twice: same agent, file, offset, text")  # fmt: skip
    flag("--chain",
         help="also verify that no spool file was removed, exchanged or changed")  # fmt: skip
    add("--silent-after", metavar="TIME", type=_time,
        help="a gateway's word vouches for so long for what is in its journal alone"
        " (default: spark.audit.silent_after, or else 5m)")  # fmt: skip
    several("--link", metavar="HEX", dest="links", type=_link,
            help="with --chain: it must have this link, which was kept elsewhere")  # fmt: skip
    flag("--note",
         help="give way to everything else, end at the limits of spark.audit, and leave what"
         " is found where metrics and the live page have it; the Spark job does so by itself")  # fmt: skip
    verbs = parser.add_subparsers(dest="verb", metavar="accept", required=False)
    verb = verbs.add_parser(
        "accept",
        help="say that what is missing is lost",
        description=_audit_accept.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _audit_accept.add_arguments(verb)
    # As there: what is not said here must not hide what was said before.
    _add_gateways(verb, default=argparse.SUPPRESS, no_file=argparse.SUPPRESS)


def _add_gateways(
    parser: argparse.ArgumentParser, *, default: Any, no_file: Any
) -> None:
    parser.add_argument(
        "--gateway", dest="gateways", metavar="HOST:PORT", action="append",
        default=default,
        help="also ask the gateway with this admin port, or https://HOST:PORT, what it has acknowledged and what"
        " is in its journal alone; again for more of them",
    )  # fmt: skip
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", default=no_file,
        help="has what their admin.token asks for",
    )  # fmt: skip
    _admin.add_certificates(parser, no_file)


def run(args: argparse.Namespace) -> int:
    """Print the report; 0, 1 or 2."""
    with _data_dir.readable():
        if args.verb is not None:
            report = partial(report_of, args, gateways=_gateways(args))
            return _audit_accept.run(args, report)
        if args.note:
            return _audit_note.run(args, _run)
        return _run(args)


def _lsn(text: str) -> int:
    lsn = positive(text)
    if lsn >= 2**62:
        raise argparse.ArgumentTypeError(f"{text}: lsns end before {2**62}")
    return lsn


def _time(text: str) -> float:
    from gateway.sdk.units import parse_time

    try:
        return parse_time(text)
    except ValueError as why:
        raise argparse.ArgumentTypeError(str(why)) from None


def _link(text: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise argparse.ArgumentTypeError(f"{text}: a link is 64 hex digits")
    return text.lower()


def report_of(
    args: argparse.Namespace,
    site: Site,
    others: Sequence[Site],
    *,
    node: str | None = None,
    first: int = 1,
    gateways: Sequence[tuple[str, Ask]] = (),
) -> Report:
    """The audit's report, of all nodes or of one, from lsn *first* on.

    Raises `WrongUse` for a node that is not there, OSError.
    """
    from gateway.audit import audit

    look = partial(
        audit,
        site,
        others=others,
        gateways=gateways,
        silent_after=_silent_after(args),
    )
    with working("comparing tables, spool and journal"):
        report = look(node=node, first=first)
    if node is not None and not report.nodes:
        everything = look(pause=lambda _: None)
        known = [node.node for node in everything.nodes]
        raise WrongUse(
            f"--node {node}: no such node; there is {printable(', '.join(known)) or 'none'}"
        )
    return report


def _silent_after(args: argparse.Namespace) -> float:
    """Seconds from the command line, or else from the configuration that is named first."""
    from gateway.config.spark import SparkAudit

    if getattr(args, "silent_after", None) is not None:
        return float(args.silent_after)
    config = _data_dir.config_of(_data_dir.each(args)[0])
    return (SparkAudit() if config is None else config.spark.audit).silent_after


def _run(
    args: argparse.Namespace, heard: Callable[[Report], object] = lambda report: None
) -> int:
    """*heard* is told what the audit found."""
    if args.links and not args.chain:
        raise WrongUse("--link needs --chain")

    one, *more = _data_dir.each(args)
    if more and (args.content or args.chain):
        raise WrongUse("--content and --chain look at one directory: name one")
    place, *others = _data_dir.sites(args)
    ids = _ids(args.acknowledged)
    asked, first = _gateways(args), args.first
    report = report_of(args, place, others, node=args.node, first=first, gateways=asked)
    heard(report)
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
            searched = search(place, ids, decoders(), others)
    with working("reading payloads and digests"):
        parts = _parts(args, one, place)
    if args.json:
        plain = _plain(report, searched, parts)
        print(json.dumps(plain, indent=2, default=_spans))
    else:
        _show(report, searched, parts)
    return 0 if _complete(report, searched, parts) else 1


def _gateways(args: argparse.Namespace) -> list[tuple[str, Ask]]:
    """How those are asked that have their directories elsewhere.  Raises `WrongUse`."""
    files = (args.token_file, args.ca, args.cert, args.key)
    if any(files) and not args.gateways:
        raise WrongUse("--token-file, --ca, --cert and --key need --gateway")
    token = _admin.token_in(args.token_file)
    return [
        (address, partial(_asked, _admin.port_at(address, token, args)))
        for address in args.gateways
    ]


def _asked(port: _admin.AdminPort) -> Answer:
    from gateway.audit.sites import Answer

    try:
        said = port.status()
        journal, spool, hub = said["journal"], said["spool"], said.get("forward")
        last = spool["published_lsn"] if hub is None else hub["arrived_lsn"]
        [whose] = (hub or {}).get("hub") or [""]
        return Answer(
            str(said["node"]),
            int(journal["durable_lsn"]),
            int(last),
            spool["bucket"],
            str(said["incarnation"]["id"]),
            int(said["incarnation"]["since"]),
            tuple(said["incarnation"].get("earlier", ())),
            forwards=hub is not None,
            hub=str(whose),
            relays={
                str(node): int(at) for node, at in (hub or {}).get("nodes", {}).items()
            },
        )
    except _admin.Unreachable as why:
        raise OSError(str(why)) from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise OSError("it does not say how far it is") from None


def _parts(args: argparse.Namespace, one: argparse.Namespace, site: Site) -> list[Part]:
    from gateway.cli import _audit_digests

    found = []
    if args.content:
        found.append(_audit_digests.content(site, args.node))
        found.append(_audit_digests.payloads(site, args.node))
    if args.chain:
        config = _data_dir.config_of(one)
        found.append(
            _audit_digests.chain(
                site.directories,
                node=args.node,
                first=args.first,
                links=args.links,
                deleting=config is not None and config.spool.after == "delete",
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
            raise WrongUse(f"--acknowledged {path}: {failure(why)}") from None
    return ids


def _complete(
    report: Report, searched: Acknowledged | None, parts: Iterable[Part]
) -> bool:
    lost = searched is not None and bool(searched.missing or searched.unsearched)
    return report.complete and not lost and not any(one.fault for one in parts)


def _show(report: Report, searched: Acknowledged | None, parts: Sequence[Part]) -> None:
    from gateway.store.node.lives import short

    several = any(len(node.lives) > 1 for node in report.nodes)
    head = ["node", *(["incarnation"] if several else []), "first", "last"]
    head += ["in lake", "in spool", "in journal", "holes", "doubles"]
    rows = [row for node in report.nodes for row in _rows(node, several=several)]
    print(table(head, rows))
    if report.told:
        print(
            "note: a function of your own took the batches (spark.sink), so no table was"
            " read: in lake is what the job's ledger says"
        )
    if report.asked:
        names = printable(", ".join(report.asked))
        print(f"note: in journal is what the gateway itself says, of {names}")
    for fork in report.forks:
        several_of = ", ".join(short(each) for each in fork.following)
        print(
            printable(
                f"note: {several_of} go on from {short(fork.incarnation)} of {fork.node}:"
                " copies of one directory ran"
            )
        )
    if report.worded:
        names = printable(", ".join(report.worded))
        print(
            "note: in journal is what the gateway last said in the bucket, of"
            f" {names}: --gateway asks it"
        )
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
        aside = sum(node.aside.size for node in report.nodes)
        known = (
            f" but for {aside} in spool files that were moved aside" if aside else ""
        )
        gone = map(report.count, ("accepted", "expired", "deleted", "read"))
        told = f"{_deleted(report)}{_lost(report)}"
        there = report.events - sum(gone)
        print(f"complete: {there} events, each exactly once{known}{told}")
    else:
        print(f"INCOMPLETE: {printable(_summary(report, searched, parts))}")


def _rows(node: Node, *, several: bool) -> Iterable[Sequence[str | int]]:
    """A line, or one for each of its incarnations; *several*: with a column for those."""
    from gateway.store.node.lives import short

    if len(node.lives) < 2:
        who = [short(life.incarnation) for life in node.lives] or [""]
        counts = _counts(node.lives)
        yield node.node, *(who if several else []), node.first, node.last, *counts
        return
    for life in node.lives:
        spans = list(life.asked) or list(life.doubles)
        span = spans[0][0], spans[-1][1]
        yield node.node, short(life.incarnation) or "-", *span, *_counts([life])


def _counts(lives: Sequence[Life]) -> Sequence[int]:
    return (
        sum(life.in_lake for life in lives),
        sum(life.in_spool for life in lives),
        sum(life.in_journal for life in lives),
        sum(life.holes.size for life in lives),
        sum(life.doubles.size for life in lives),
    )


def _deleted(report: Report) -> str:
    """The numbers of events taken away on purpose, and why."""
    from gateway.store.readers.deleted import expired_days

    told = []
    if read := report.count("read"):
        told.append(f"{read:,} read by consumers, and removed")
    if expired := report.count("expired"):
        days = expired_days(report.deletions)
        of_days = f"{days:,} {'day' if days == 1 else 'days'}, " if days else ""
        told.append(f"{of_days}{many(expired, 'event')} expired by retention")
    asked = [one for one in report.deletions if one.kind == "asked"]
    if gone := report.count("deleted"):
        reasons = dict.fromkeys(one.reason for one in asked)
        told.append(f"{gone:,} deleted on purpose ({'; '.join(reasons)})")
    if begun := [one.id for one in asked if not one.done]:
        told.append(
            f"{', '.join(begun)} is not finished: gateway spark delete goes on with it"
        )
    return printable("".join(f"; {one}" for one in told))


def _lost(report: Report) -> str:
    """The accepted losses, and why."""
    ends = [one for one in report.unknown if one.accepted]
    lost = report.count("accepted")
    if not lost and not ends:
        return ""
    concerned = {
        node.node
        for node in report.nodes
        if any(life.has("accepted") for life in node.lives)
    }
    concerned |= {one.node for one in ends}
    reasons = dict.fromkeys(
        one.reason for one in report.accepted if one.node in concerned
    )
    what = [f"{lost:,} accepted as lost"] if lost else []
    what += [
        f"what {one.node} acknowledged behind lsn {one.last} is accepted as lost"
        for one in ends
        if not lost
    ]
    return printable(f"; {', '.join(what)} ({'; '.join(reasons)})")


def _whose(incarnation: str, *, several: bool) -> str:
    from gateway.store.node.lives import short

    return f" (incarnation {short(incarnation)})" if several and incarnation else ""


def _faults(report: Report) -> Iterable[str]:
    several = {node.node: len(node.lives) > 1 for node in report.nodes}
    for problem in report.problems:
        yield f"problem: {problem.file}: {problem.why}"
    for name, holes in report.holes.items():
        for hole in holes:
            known = hole.note or "nowhere"
            if hole.archive:
                known = f"the archive still has them: {_some(hole.archive)}"
            who = _whose(hole.incarnation, several=several[name])
            yield f"hole: {name}{who} lsn {_range(hole.first, hole.last)}: {known}"
    for node in report.nodes:
        for life in node.lives:
            for first, last in life.has("unverified"):
                who = _whose(life.incarnation, several=several[node.node])
                yield (
                    f"unverified: {node.node}{who} lsn {_range(first, last)}: in its"
                    " journal, it said when last heard"
                )
    for one in report.unknown:
        if not one.accepted:
            yield f"unknown: {one}"
    for node in report.nodes:
        for first, last in node.aside:
            yield (
                f"moved aside: {node.node} lsn {_range(first, last)}: the Spark job could"
                " not read their file; it lies in poison/ beside its reason"
            )
    for name, doubles in report.doubles.items():
        for double in doubles:
            where = _some(double.files) or "more than once"
            who = _whose(double.incarnation, several=several[name])
            span = _range(double.first, double.last)
            yield f"double: {name}{who} lsn {span}: in {where}"


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
    lives = [(node, life) for node in report.nodes for life in node.lives]
    for what, found in (
        ("events missing", [(node, life.holes) for node, life in lives]),
        ("events doubled", [(node, life.doubles) for node, life in lives]),
        ("events unverified", [(node, life.has("unverified")) for node, life in lives]),
    ):
        if count := sum(ranges.size for _, ranges in found):
            spans = [
                f"{node.node} {_range(first, last)}"
                for node, ranges in found
                for first, last in ranges
            ]
            parts.append(f"{count} {what} ({_some(spans, _SHOWN)})")
    if ends := [one for one in report.unknown if not one.accepted]:
        named = [f"{one.node} behind lsn {one.last}{_since(one)}" for one in ends]
        parts.append(
            f"nobody knows what else was acknowledged ({_some(named, _SHOWN)})"
        )
    if report.problems:
        parts.append(f"{many(len(report.problems), 'file')} with problems")
    if searched and searched.missing:
        parts.append(f"{many(len(searched.missing), 'acknowledged id')} not found")
    if searched and searched.unsearched:
        parts.append(
            f"{many(len(searched.unsearched), 'file')} that can not be searched"
        )
    return "; ".join([*parts, *(one.fault for one in more if one.fault)])


def _since(one: Unknown) -> str:
    at = datetime.fromtimestamp(one.heard, UTC)
    return f", unverified since {at:%Y-%m-%d %H:%M:%S} UTC" if one.heard else ""


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _some(texts: list[str], most: int = 4) -> str:
    more = f", … ({len(texts) - most} more)" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _plain(
    report: Report, searched: Acknowledged | None, parts: Sequence[Part]
) -> dict[str, Any]:
    from msgspec import to_builtins

    found = {one.name: one.plain for one in parts}
    return {
        "complete": _complete(report, searched, parts),
        "events": report.events,
        "looks": report.looks,
        "told": report.told,
        "asked": report.asked,
        "worded": report.worded,
        "nodes": [
            {
                **{each: getattr(node, each) for each in _NODE},
                "holes": list(map(asdict, report.holes.get(node.node, []))),
                "doubles": list(map(asdict, report.doubles.get(node.node, []))),
                "incarnations": [_life(life) for life in node.lives],
            }
            for node in report.nodes
        ],
        "problems": list(map(asdict, report.problems)),
        "unknown": [
            {
                **{each: getattr(one, each) for each in _UNKNOWN},
                "why": one.why.name.lower(),
                "heard": one.heard or None,
                "ack": one.ack or None,
            }
            for one in report.unknown
        ],
        "forks": list(map(asdict, report.forks)),
        "lost": report.count("accepted"),
        **{
            each: report.count(each)
            for each in ("unverified", "expired", "deleted", "read")
        },
        "deletions": to_builtins(report.deletions),
        "accepted": list(map(asdict, report.accepted)),
        "acknowledged": searched and asdict(searched),
        "content": found.get("content"),
        "payloads": found.get("payloads"),
        "chain": found.get("chain"),
    }


def _life(life: Life) -> dict[str, Any]:
    found = {each: getattr(life, each) for each in _LIFE}
    found |= {each: life.has(each) for each in _REASONS}
    return {**found, "lsns": life.asked, "events": life.asked.size}


def _spans(lsns: Lsns) -> list[dict[str, int]]:
    return [{"first": first, "last": last} for first, last in lsns]
