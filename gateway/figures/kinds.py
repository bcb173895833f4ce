"""The rows of this room's tables, beside figures (`gateway.sdk.figures`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.sdk.figures import Figure

# Bounds of buckets.  fdatasync takes 0.2-5 ms on a healthy disk; ten seconds is a stall.
COMMIT_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1, 2.5, 5, 10),
)
FILE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LAG_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
EVENTS = (1, 10, 50, 100, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000)
BYTES = tuple(1024 * 4**n for n in range(9))  # 1 KiB .. 64 MiB

Severity = Literal["page", "morning"]
"""`page`: wake an operator, events are not taken or do not arrive; `morning`: look tomorrow."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that is wrong, and the alert that says so."""

    name: str
    severity: Severity
    after: str
    """How long it has to last; empty: no time."""
    expr: str
    """PromQL that has a series while it is so.

    What another condition explains is left to that one: each fault has one alert.
    """
    summary: str
    """The fault, in a sentence."""
    advice: str
    """The remedy: a clause, that may stand in a sentence."""
    more: str = ""
    """Further sentences."""
    runbook: str = ""
    """Page and section of the documentation that have more."""

    @property
    def action(self) -> str:
        """The advice, as sentences."""
        text = f"{self.advice[0].upper()}{self.advice[1:]}."
        return f"{text} {self.more}" if self.more else text


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the dashboard that shows more than figures as they are.

    Selectors are not written in *queries*: deploy/monitoring.py adds those of the
    dashboard's variables to every metric.
    """

    title: str
    text: str
    queries: Sequence[tuple[str, str]]
    """PromQL and legend of each."""
    unit: str = "short"
    kind: Literal["timeseries", "stat", "state-timeline"] = "timeseries"
    red_from: float | None = None
    """A stat is bad from there on."""
    red_below: float | None = None
    """A stat is bad below that."""
    words: tuple[str, str] | None = None
    """The words for 0 and 1 in a stat."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that an operator has, and all that answers it."""

    title: str
    figures: Sequence[Figure] = ()
    panels: Sequence[Panel] = ()
    conditions: Sequence[Condition] = ()
