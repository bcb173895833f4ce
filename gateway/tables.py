"""The names of a lake's tables: the three that there are always, and those by rule.

An event is in one of the tables of events, by name (node, incarnation, lsn).  `spark.tables`
says which there are beside `events` (`gateway.config.tables`), and the ledger which there ever
were (`gateway.store.readers.lake.tables_of`): a table that is no longer configured has its rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

EVENTS = "events"
"""Events that are fine, and that no rule takes."""
QUARANTINE = "quarantine"
"""Flawed events, whatever rules say."""
STATS = "stats"
"""Counts, and no events."""
TABLE = "table"
"""The column that says of a row which table it is for."""

ZSTD_LEVEL = 2
"""How hard zstd compresses their files.  Documents of shippers are as small as with 3, which
takes half as much time again, and other texts 3 % larger; with 1 all are 5 % larger."""


@dataclass(frozen=True)
class Tables:
    """The tables of one lake."""

    by_rule: tuple[str, ...] = ()
    """Tables of `spark.tables`, the oldest first."""

    @property
    def fine(self) -> tuple[str, ...]:
        """The tables of events without a flaw."""
        return EVENTS, *self.by_rule

    @property
    def of_events(self) -> tuple[str, ...]:
        """The tables of events, each of which is in one of them."""
        return *self.fine, QUARANTINE

    @property
    def all(self) -> tuple[str, ...]:
        return *self.of_events, STATS

    def with_all(self, more: Iterable[str]) -> Tables:
        """The same tables, and more by rule."""
        return Tables(tuple(dict.fromkeys((*self.by_rule, *more))))
