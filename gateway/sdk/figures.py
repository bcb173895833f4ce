"""Figures, each declared once: /metrics, /api/status, the live page, the dashboard and
docs/metrics.md are made of the declarations.

    Figure         one number: its names, what it means, when to look at it
    StatusSection  figures of one thing
    Statistics     such figures with their values, as a service shows them
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

__all__ = ["Figure", "Statistics", "StatusSection", "Value"]

Value = float | Mapping[str, float] | None
"""A mapping has a value for each value of the figure's label; None: not known yet."""

_METRIC = re.compile("[a-z_][a-z0-9_]*")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


@dataclass(frozen=True)
class Figure:
    """A number that people and programs may look at."""

    key: str
    """Place in /api/status, as `disk.free_bytes`; empty: it is not there as it is."""
    metric: str
    """Name in /metrics, labels in braces behind it; empty: only /api/status has it.

    Its end says what it is: `_total` a counter; `_bytes`, `_seconds` and
    `_timestamp_seconds` their unit.
    """
    text: str
    """The meaning: a clause, in Markdown, links as in a page of docs/."""
    look: str = ""
    """When to look at it, beside the alerts that do."""
    card: str = ""
    """Name on the live page; empty: not shown there."""
    panel: str = ""
    """Title of the dashboard's panel that shows it, with all others that name the same."""
    legend: str = ""
    """Name in that panel; needed where others are in it."""
    rare: bool = False
    """A counter of what should not happen: the panel shows how often, not how fast."""
    unseen: str = ""
    """Why no panel shows it."""
    buckets: Sequence[float] = ()
    """Bounds of a histogram's buckets."""

    @cached_property
    def own_name(self) -> str:
        """The name in its section."""
        return self.key.partition(".")[2]

    @cached_property
    def name(self) -> str:
        """The metric's name without its labels."""
        return self.metric.partition("{")[0]

    @cached_property
    def labels(self) -> list[str]:
        """The metric's labels."""
        return re.findall(r"\w+", self.metric.partition("{")[2])

    @cached_property
    def counter(self) -> bool:
        """Whether it only grows."""
        return self.name.endswith("_total")

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        """The type in /metrics."""
        if self.counter:
            return "counter"
        return "histogram" if self.buckets else "gauge"

    @cached_property
    def unit(self) -> Literal["", "bytes", "seconds", "time"]:
        """The unit, by the end of its name."""
        name = (self.name or self.key).removesuffix("_total")
        if name.endswith("_timestamp_seconds"):
            return "time"
        for unit in ("bytes", "seconds"):
            if name.endswith(f"_{unit}"):
                return unit
        return ""

    @cached_property
    def help(self) -> str:
        """The text as a sentence without markup, for /metrics."""
        said = _LINK.sub(r"\1", self.text).replace("`", "")
        return f"{said[0].upper()}{said[1:]}."

    def __post_init__(self) -> None:
        """Refuse a name that no scraper could read: it would take all others with it."""
        if self.metric and not _METRIC.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no metric's name")


@dataclass(frozen=True, slots=True)
class Statistics:
    """Figures of one thing and their values: a section of /api/status, a card on the page."""

    name: str
    """The section's key."""
    title: str
    """The card's title, which is followed by the first figure that has a card name; empty:
    no card."""
    values: Sequence[tuple[Figure, Value]]
    troubles: Sequence[str] = ()
    """Sentences for people, without their full stop, of what is wrong with it now and stops
    no event.  The first one is said of the gateway, where nothing worse is."""

    @property
    def by_name(self) -> dict[str, Value]:
        """The values by their names in the section."""
        return {one.own_name: value for one, value in self.values}


@dataclass(frozen=True)
class StatusSection:
    """Figures of one thing: a section of /api/status, a card on the live page."""

    name: str
    title: str
    """The card's; empty: no card."""
    figures: Sequence[Figure]
    only: str = ""
    """Where there is such a section, as "with a listener of its own"; empty: everywhere."""

    @cached_property
    def _rows(self) -> dict[str, Figure]:
        return {one.own_name: one for one in self.figures}

    def of(
        self,
        values: Mapping[str, Value],
        *,
        title: str = "",
        troubles: Sequence[str] = (),
    ) -> Statistics:
        """The section with these values, by name; figures without one are left out.

        Raises KeyError for a value that no figure has, TypeError for one that is no number.
        """
        rows = self._rows
        if unknown := values.keys() - rows.keys():
            raise KeyError(f"no figure {self.name}.{min(unknown)}")
        for name, value in values.items():
            numbers = value.values() if isinstance(value, Mapping) else (value or 0,)
            if not all(isinstance(each, (int, float)) for each in numbers):
                raise TypeError(f"figure {self.name}.{name} is no number: {value!r}")
        found = [(one, values[name]) for name, one in rows.items() if name in values]
        return Statistics(self.name, title or self.title, found, troubles)
