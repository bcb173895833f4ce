"""Tells of events that are in no table and not in the bucket, while later ones are there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from attrs import define, field

from gateway.spark.commit.ledger import Ledger
from gateway.store.lsns import Lsns, spelled

_log = logging.getLogger("gateway.spark")

LACKING_SECONDS = 600.0
"""Later files may be there for so long before earlier ones are missed: uploads go in
parallel, and one that fails is tried again."""


@define(eq=False, slots=False)
class Missing:
    """The events that are missed in the bucket at *url*, of all nodes."""

    _url: str
    _clock: Callable[[], float]
    _lacking: dict[tuple[str, int], float] = field(factory=dict, init=False)
    """The time since when events are missed, by the first of them."""
    _told: set[tuple[str, int]] = field(factory=set, init=False)
    """The first of those that were told."""

    def tell(self, there: Mapping[str, Lsns], ledger: Ledger) -> None:
        """Tell what is missing before what is *there*, in a table or a file."""
        now = self._clock()
        before, self._lacking = self._lacking, {}
        told = {(life.node, end.acknowledged) for life, end in ledger.ends.items()}
        missing: dict[str, list[tuple[int, int]]] = {}
        for node, lsns in lacking(there).items():
            for first, last in lsns:
                if (node, last) not in told:  # when its incarnation ended
                    missing.setdefault(node, []).append((first, last))
        for node, spans in missing.items():
            first, last = spans[0]
            gap = node, first
            since = self._lacking[gap] = before.get(gap, now)
            if now - since < LACKING_SECONDS or gap in self._told:
                continue
            self._told.add(gap)
            _log.error(
                "%d events of node %s, %s first, are in no table, and for %d s not"
                " in %s, which has later ones: somebody has removed them, or a lifecycle"
                " rule, or another job that reads this prefix; or their gateway can not"
                " upload them. gateway audit looks further",
                *(
                    sum(end - begin + 1 for begin, end in spans),
                    node,
                    spelled(first, last),
                ),
                *(now - since, self._url),
            )
        self._told &= self._lacking.keys()


def known(ledger: Ledger) -> dict[str, Lsns]:
    """The lsns of each node that are in the tables, or noted or accepted to be in none."""
    found = ledger.committed.by_node()
    for hole in ledger.holes:
        found.setdefault(hole.node, Lsns()).add(hole.first, hole.last)
    for one in ledger.accepted:
        if one.last is not None:
            found.setdefault(one.node, Lsns()).add(one.first, one.last)
    return found


def lacking(there: Mapping[str, Lsns]) -> dict[str, Lsns]:
    """The lsns of each node that are not *there*, while later ones are."""
    return {node: Lsns([(1, lsns.last)]) - lsns for node, lsns in there.items()}
