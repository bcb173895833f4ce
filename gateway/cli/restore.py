"""`gateway restore`: look at a data directory that was put back from a copy."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from gateway.cli import _data_dir
from gateway.cli import audit as auditing
from gateway.sdk.command import printable
from gateway.spoken import many

if TYPE_CHECKING:
    from gateway.audit import Report
    from gateway.audit.sites import Site
    from gateway.store.finder import SpoolFile

HELP = """\
Look at a data directory that was put back from a copy, a snapshot or a backup.

It says what is there of each incarnation; of which of them nobody can vouch for the end, as
they may have acknowledged more since the copy was made; and which events are in no table,
and still in files of the archive, here or in the bucket.  --fill puts those files back into
the spool, or the bucket, for the job to take.  Look first, fill, let the job run, and accept
what is left (gateway audit accept).

Example:
  gateway restore --config /etc/gateway/gateway.yaml
  gateway restore --config /etc/gateway/gateway.yaml --fill

Exit status: 0 nothing is missing and all is known; 1 something is; 2 wrong use.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fill",
        action="store_true",
        help="put files of the archive back whose events are in no table",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    _data_dir.add_arguments(parser, several=True)


@dataclass(slots=True)
class _Found:
    nodes: list[dict[str, object]]
    """Counts and gaps of each incarnation."""
    unknown: list[str]
    """Incarnations whose end is not known for sure."""
    fillable: list[str] = field(default_factory=list)
    """Files of the archive, all of whose events are in no table."""
    partly: list[str] = field(default_factory=list)
    """Files of the archive with some events in the tables; they stay where they are."""
    filled: list[str] = field(default_factory=list)
    missing: int = 0
    """Events that are nowhere, or only there."""


def run(args: argparse.Namespace) -> int:
    """Look, and fill if told to; 0 or 1.  Raises `WrongUse`."""
    with _data_dir.readable():
        site, *others = _data_dir.sites(args)
        report = auditing.report_of(args, site, others)
        found = _looked(site, report)
        if args.fill:
            found.filled = [*_fill(site, found.fillable)]
    if args.json:
        print(json.dumps(asdict(found), indent=2))
    else:
        _show(found)
    return 1 if found.missing or found.unknown else 0


def _looked(site: Site, report: Report) -> _Found:
    nodes: list[dict[str, object]] = [
        {
            "node": node.node,
            "incarnation": life.incarnation,
            "lsns": list(life.asked),
            "in_lake": life.in_lake,
            "in_spool": life.in_spool,
            "in_journal": life.in_journal,
            "missing": life.holes.size,
        }
        for node in report.nodes
        for life in node.lives
    ]
    unknown = [str(one) for one in report.unknown if not one.accepted]
    found = _Found(nodes, unknown)
    holes = {
        (node.node, life.incarnation): life.holes
        for node in report.nodes
        for life in node.lives
        if life.holes
    }
    found.missing = sum(lsns.size for lsns in holes.values())
    for file in _archived(site) if holes else ():
        lsns = holes.get((file.node, file.incarnation))
        if lsns is not None and lsns.touches(file.first, file.last):
            whole = lsns.covers(file.first, file.last)
            (found.fillable if whole else found.partly).append(file.name)
    return found


def _archived(site: Site) -> Iterator[SpoolFile]:
    from gateway.audit.bucket import BucketFiles
    from gateway.audit.sites import joined
    from gateway.store.finder import spool_files

    remote = BucketFiles(site.bucket).list(archive=True)
    for _, files in sorted(
        joined(spool_files(site.directories.archive), remote).items()
    ):
        yield from files


def _fill(site: Site, names: Iterable[str]) -> Iterator[str]:
    """Have these files in the spool again, or in the bucket."""
    from gateway.sdk.disk import replace_file
    from gateway.store.objects.bucket import ARCHIVE, commit
    from gateway.store.system.disk import RealDisk

    places, bucket, disk = site.directories, site.bucket, RealDisk()
    for name in names:
        here = places.archive / name
        if bucket is None:
            replace_file(disk, places.spool / name, [disk.read(here)]).close()
        elif disk.exists(here):
            commit(bucket, name, disk.read(here))
        else:
            bucket.copy(f"{ARCHIVE}/{name}", name)
        yield name


def _show(found: _Found) -> None:
    for one in found.nodes:
        lsns = one["lsns"]
        assert isinstance(lsns, list)
        spans = ", ".join(f"{first}-{last}" for first, last in lsns)
        print(
            printable(
                f"{one['node']} (incarnation {one['incarnation']}) lsn {spans}:"
                f" {one['in_lake']} in the tables, {one['in_spool']} in the spool,"
                f" {one['in_journal']} in the journal, {one['missing']} missing"
            )
        )
    for each in found.unknown:
        print(printable(f"nobody vouches for it: {each}"))
    if found.filled:
        files = many(len(found.filled), "file")
        print(f"filled: {files} of the archive go to the job again")
    elif found.fillable:
        files = many(len(found.fillable), "file")
        print(
            f"the archive has {files} whose events are in no table: --fill puts them back"
        )
    for name in found.partly:
        print(
            f"the archive has {name}, of which the tables have a part: it stays there"
        )
    if not (found.missing or found.unknown):
        print("nothing is missing, and somebody vouches for each end")
