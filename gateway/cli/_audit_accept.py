"""`gateway audit accept`: say that events which are missing are lost, and why."""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli import _data_dir
from gateway.sdk.command import WrongUse, printable
from gateway.sdk.disk import replace_file
from gateway.store.system.disk import RealDisk

if TYPE_CHECKING:
    from gateway.audit import Node, Report
    from gateway.store.readers.lake import Accepted

HELP = """\
Say that acknowledged events which are missing are lost for good, and why.

Only what `gateway audit` calls a hole, or an end that nobody knows, can be accepted: from
then on the audit says complete, but for those, and lists them with --json.  Do it when all
is back that can come back: a disk, an archive, a backup.  The job, if there is one, takes it
into its ledger within seconds, and need not be stopped.

Example:
  gateway audit accept gw-1 1701-1800 --reason "disk of gw-1 lost on May 3, case 4711"
  gateway audit accept gw-1 1701- --reason "and what it acknowledged behind that"

Exit status: 0 accepted; 2 wrong use, or there is no such hole.
"""

_MOST_NAMED = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line; where to look may stand before `accept`, too."""
    add = parser.add_argument
    add("name", metavar="NODE", help="whose events they are")
    add("span", metavar="FIRST-LAST", type=_span,
        help="their lsns; FIRST- reaches to the end of an incarnation that nobody knows")  # fmt: skip
    add(
        "--reason", required=True, type=_reason, help="why; the audit says so each time"
    )
    add("--incarnation", metavar="ID", default="",
        help="whose they are, or the first digits; where several lack these lsns")  # fmt: skip
    # What is not said here must not hide what was said before the word `accept`.
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="for programs"
    )
    _data_dir.add_arguments(parser, several=True, default=argparse.SUPPRESS)


def run(args: argparse.Namespace, report_of: Callable[..., Report]) -> int:
    """Write it down; 0.  Raises `WrongUse`, OSError."""
    from gateway.store.readers.lake import accepted_folder

    site, *others = _data_dir.sites(args)
    sites = [
        one for one in (site, *others) if one.keeps or one.directories.lake.is_dir()
    ]
    if not sites:
        raise WrongUse(
            f"{site.directories.lake}: no tables are here: name the configuration of the"
            " job, which keeps what was accepted"
        )
    report = report_of(site, others, node=args.name)
    first, last = args.span
    lives = _concerned(report, first, last, args.incarnation)
    where = min(sites, key=lambda one: one.keeps)  # a job's, if there is one
    folder = accepted_folder(where.directories.lake)
    found = [
        _accepted(args.name, each, first, last, args.reason) for each in sorted(lives)
    ]
    for one in found:
        _write(folder, one)
    if args.json:
        json.dump([asdict(one) for one in found], sys.stdout, indent=2)
        print()
    else:
        for one in found:
            who = f" of incarnation {one.incarnation}" if one.incarnation else ""
            print(printable(f"accepted: {one.node} lsn {_shown(first, last)}{who}"))
    return 0


def _span(text: str) -> tuple[int, int | None]:
    match = re.fullmatch(r"(\d{1,18})(?:(-)(\d{1,18})?)?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text}: say FIRST-LAST, FIRST- or one lsn")
    first = int(match[1])
    last = int(match[3]) if match[3] else None if match[2] else first
    if first < 1 or (last is not None and last < first):
        raise argparse.ArgumentTypeError(f"{text}: lsns start at 1, and FIRST is first")
    return first, last


def _reason(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("say why: who looks later will want to know")
    return text.strip()


def _concerned(report: Report, first: int, last: int | None, wanted: str) -> set[str]:
    """The incarnations that lack all of these lsns.  Raises `WrongUse`."""
    from gateway.audit.counts import GREATEST
    from gateway.store.lsns import Lsns

    (node,) = report.nodes
    unknown = {one.incarnation: one for one in report.unknown if not one.accepted}
    asked = Lsns([(first, GREATEST if last is None else last)])
    lacking = {
        life.incarnation: life.holes | life.has("unverified") for life in node.lives
    }
    for each, one in unknown.items():
        behind = Lsns([(one.last + 1, GREATEST)])
        lacking[each] = lacking.get(each, Lsns()) | behind
    some = {each for each in lacking if each.startswith(wanted)}
    if wanted and not some:
        raise WrongUse(
            f"--incarnation {wanted}: {node.node} has none; {_known(lacking)}"
        )
    found = {each for each in some if not len(asked - lacking[each])}
    if found:
        return found
    # Together they may be what is asked for, as holes have no owner who is known.
    if last is not None and not len(
        asked - Lsns.joined(lacking[each] for each in some)
    ):
        return {each for each in some if len(asked & lacking[each])}
    raise WrongUse(
        f"{node.node} {_shown(first, last)}: not all of that is missing; {_holes(node, report)}"
    )


def _known(lacking: Iterable[str]) -> str:
    named = sorted(each for each in lacking if each)
    return f"there is {', '.join(named)}" if named else "none is known"


def _holes(node: Node, report: Report) -> str:
    """Missing lsns, in the form that the command takes."""
    lacking = (life.holes | life.has("unverified") for life in node.lives)
    holes = [_shown(first, last) for lsns in lacking for first, last in lsns]
    holes += [f"{one.last + 1}-" for one in report.unknown if not one.accepted]
    if not holes:
        return "the audit misses nothing of it"
    more = f" and {len(holes) - _MOST_NAMED} more" if len(holes) > _MOST_NAMED else ""
    return f"what is: {', '.join(holes[:_MOST_NAMED])}{more}"


def _shown(first: int, last: int | None) -> str:
    return f"{first}" if first == last else f"{first}-{'' if last is None else last}"


def _accepted(
    node: str, incarnation: str, first: int, last: int | None, reason: str
) -> Accepted:
    from gateway.store.readers.lake import Accepted, somebody

    return Accepted(node, incarnation, first, last, reason, somebody(), time.time())


def _write(folder: Path, one: Accepted) -> None:
    """Durably and in one step; the job's user, who removes it, owns it."""
    disk = RealDisk()
    whose = next(each for each in folder.parents if each.exists())
    disk.make_directory(folder)
    name = f"{one.node}-{one.first}-{secrets.token_hex(4)}.json"
    path = folder / name
    data = json.dumps(asdict(one), indent=1).encode()
    replace_file(disk, path, [data, b"\n"]).close()
    if os.getuid() == 0:
        owner = whose.stat()
        for made in (path, *takewhile(lambda each: each != whose, path.parents)):
            os.chown(made, owner.st_uid, owner.st_gid)
