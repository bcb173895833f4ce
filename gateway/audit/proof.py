"""The audit: checks that every acknowledged event is in lake, spool or journal, once.

An event moves journal → spool → lake, and is in its next place before it leaves the
one before.  One look goes through the places in that order, so an event that moves
meanwhile is met at least once.  If it has left a place before we came there, it is found in
a later one.  Being met in two places is therefore no double: it is the same event on
its way.  Doubles are the same (node, incarnation, lsn) twice in the tables, or in one file.
In two files it is a double only where no job of ours takes them, which compares files that meet
(`gateway.spark.files.overlaps`).

A spool in a bucket is two places: files are in the directory, and then in the bucket.
Gateways on other machines are asked first of all: what one says is only in its journal may
be met in the bucket later.

A directory is not listed at one instant, though.  So what looks like a fault is looked
at afresh a few times, and only what the last look finds is one.

The last acknowledged lsn of an incarnation is the greatest that any place knew of at the
first look.  That includes the journal's catalog, which outlives segments and files, and what
a successor found of it.  Later events are not asked for: they would be news in every look.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from gateway.audit.judge import judge
from gateway.audit.look import View
from gateway.audit.report import Double, Hole, Report
from gateway.audit.sites import Ask, Site, distinct, site_of
from gateway.store.directories import Directories
from gateway.store.finder import SpoolFile
from gateway.store.objects.node_record import SILENT_SECONDS

_LOOKS = 4
_PAUSE_SECONDS = 0.3
_MOST_EXPLAINED = 20
"""The most holes, and the most doubles, of a node that are explained."""


def audit(
    place: Site | Directories,
    *,
    node: str | None = None,
    first: int = 1,
    others: Iterable[Site] = (),
    gateways: Iterable[tuple[str, Ask]] = (),
    silent_after: float = SILENT_SECONDS,
    pause: Callable[[float], None] = time.sleep,
) -> Report:
    """Check all nodes, or one; from lsn *first* on.  Raises OSError.

    *others* are more places, of gateways that write for one job; *gateways* those that are
    asked, because their directories are on other machines: addresses, for people, and how to
    ask.

    Events for which there is only a word older than *silent_after* seconds are not verified.

    *pause* is called between two looks, with the seconds to wait.
    """
    sites = distinct([site_of(place), *others])
    view = View(sites, node, first, gateways, silent_after)
    report = _looked(view)
    while not report.complete and report.looks < _LOOKS:
        pause(_PAUSE_SECONDS)
        looks = report.looks + 1
        report = _looked(view)
        report.looks = looks
    _explain(view, report)
    return report


def _looked(view: View) -> Report:
    view.look()
    return judge(view)


def _explain(view: View, report: Report) -> None:
    """Say of the first faults what is known, of the others where they are."""
    for node in report.nodes:
        for life in node.lives:
            who = life.incarnation
            holes = report.holes.setdefault(node.node, []) if life.holes else []
            lost = view.lives[node.node].holes_of(who)
            for first, last in sorted([*(life.holes & lost), *(life.holes - lost)]):
                hole = Hole(first, last, who)
                if len(holes) < _MOST_EXPLAINED:
                    _explain_hole(view, node.node, hole)
                holes.append(hole)
            twice = report.doubles.setdefault(node.node, []) if life.doubles else []
            for first, last in life.doubles:
                double = Double(first, last, who)
                if len(twice) < _MOST_EXPLAINED:
                    double.files = _files_with(view, node.node, double)
                twice.append(double)


def _explain_hole(view: View, name: str, hole: Hole) -> None:
    files = view.files[name]
    hole.archive = _overlapping(view, [*files.archive, *view.archived(name)], hole)
    if hole.archive:
        return
    if spool := _overlapping(view, files.spool, hole):
        hole.note = f"{spool[0]}, which should have them, is damaged"
        return
    lives, known = view.lives[name], view.lives[name].of(hole.incarnation)
    if lives.holes_of(hole.incarnation).covers(hole.first, hole.last):
        hole.note = f"the disk of {name} did not give them back"
        damaged = _damaged(view, name, hole)
        hole.note += "".join(f"; {path} may hold them" for path in damaged[:1])
        return
    if known.ack and hole.last <= known.said:
        how = f"acknowledged by {name} with ack: {known.ack}"
        hole.note = f"{how}, and in no file that is here: its own disk may have it"
        return
    for path in _damaged(view, name, hole):
        hole.note = f"{path}, which was found damaged, may have held them"
        return
    for entry in view.journals.content(name).published:
        if entry.incarnation == hole.incarnation and not (
            entry.last < hole.first or hole.last < entry.first
        ):
            hole.note = f"the journal published {entry.name}, which is gone"
            return


def _damaged(view: View, name: str, hole: Hole) -> list[Path]:
    """Damaged segments that may have had some of these."""
    return [
        path
        for first, last, path in view.journals.content(name).damaged
        if first <= hole.last and hole.first <= last
    ]


def _overlapping(
    view: View, files: Iterable[SpoolFile], some: Hole | Double
) -> list[str]:
    """Where events of this range, and this incarnation, should be."""
    return [
        str(file.path)
        for file in files
        if file.incarnation == some.incarnation and file.overlaps(some.first, some.last)
    ]


def _files_with(view: View, name: str, double: Double) -> list[str]:
    files = view.files[name]
    spooled = _overlapping(view, [*files.spool, *files.archive], double)
    if len({path.rpartition("/")[2] for path in spooled}) < 2:
        spooled = []
    who = double.incarnation
    places = view.lake.files_with(name, who, double.first, double.last)
    tables = list(map(str, places))
    return list(dict.fromkeys([*tables, *spooled]))
