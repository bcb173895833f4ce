"""Figures and conditions: all that is measured and all that can be wrong, declared once.

A module for each question that an operator has holds the figures, panels and conditions
that answer it.  Protocols declare theirs themselves (`gateway.sdk.figures`).

What comes in is values, from who knows them: `section(NAME).of(values)` makes a section of
/api/status and of the page, `exposition` what /metrics says.  The first sentence takes
`advice`.  `python deploy/monitoring.py` writes conf/alerts.yml, the rules for Prometheus'
operator, conf/dashboard.json and docs/metrics.md.  Nothing here measures anything.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata

from gateway.figures.acknowledged import ACKNOWLEDGED
from gateway.figures.complete import COMPLETE
from gateway.figures.fresh import FRESH
from gateway.figures.kinds import Condition, Panel, Question
from gateway.figures.room import ROOM
from gateway.figures.turned_away import TURNED_AWAY
from gateway.figures.well import WELL
from gateway.sdk.figures import Figure, StatusSection

__all__ = [
    "CONDITIONS",
    "OF_STATUS",
    "QUESTIONS",
    "SECTIONS",
    "Condition",
    "Panel",
    "Question",
    "advice",
    "figure",
    "runbook",
    "runbook_link",
    "section",
]

QUESTIONS = (FRESH, ACKNOWLEDGED, ROOM, COMPLETE, TURNED_AWAY, WELL)
CONDITIONS = {one.name: one for each in QUESTIONS for one in each.conditions}

_ABOUT = {
    "disk": ("Disk of data_dir", ""),
    "memory": ("Messages that arrive", ""),
    "lake": ("Tables", ""),
    "spark": ("Spark job", ""),
    "audit": ("Audit", "where an audit is to come, or was"),
    "bucket": ("Uploads to the bucket", "with `spool.directory: s3://…`"),
    "forward": ("Files for the hub", "with [`spool.after: forward`](edge.md)"),
    "retained": ("Events that streams keep, beside the archive", ""),
    "consumers": ("Consumers of the spool", "with [consumers](consumers.md)"),
    "state": ("State that protocols remember", "with a Pravega or RS.io listener"),
    "config": ("Configuration", ""),
    "feeds": ("", ""),
}
"""Sections of /api/status: the card's title, and where there is one."""

_FIGURES = [one for each in QUESTIONS for one in each.figures]
_BY_METRIC = {one.name: one for one in _FIGURES if one.metric}
SECTIONS = {
    name: StatusSection(
        name, title, [one for one in _FIGURES if one.key.startswith(f"{name}.")], only
    )
    for name, (title, only) in _ABOUT.items()
}

OF_STATUS = [
    one
    for one in _FIGURES
    if one.key and one.metric and one.key.partition(".")[0] not in SECTIONS
]
"""Figures that are fields of `gateway.admin.status.Status`, by their key."""


def figure(metric: str) -> Figure:
    """The figure of that name in /metrics."""
    return _BY_METRIC[metric]


def section(name: str) -> StatusSection:
    """The section of that name in /api/status."""
    return SECTIONS[name]


def advice(condition: str) -> str:
    """The clause that says what to do about it."""
    return CONDITIONS[condition].advice


def runbook(condition: str) -> str:
    """Page and section of the documentation that have more of it."""
    return CONDITIONS[condition].runbook


def runbook_link(condition: str) -> str | None:
    """Address of that section; None while the documentation has none."""
    site = _documentation()
    page, _, section = runbook(condition).removeprefix("docs/").partition(".md")
    return site and f"{site}/{page}.html{section}"


@cache
def _documentation() -> str | None:
    """The address that the package names, unless it is one of examples (RFC 2606)."""
    try:
        found = metadata("gateway").get_all("Project-URL") or []
    except PackageNotFoundError:  # a tree that is not installed
        return None
    sites = (
        one.partition(", ")[2] for one in found if one.startswith("Documentation,")
    )
    return next((one for one in sites if ".example/" not in one), None)
