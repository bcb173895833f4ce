"""The query of a subscriber of `tap` or `events`: which events, and in which format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from gateway.event import Origin, Rows
from gateway.sdk.publisher import Fault

JSON = "json"
ARROW = "arrow"


@dataclass(frozen=True, slots=True)
class Query:
    """The wanted events and their format; None means any.  Equal queries share their elements."""

    protocol: str | None = None
    listener: str | None = None
    channel: str | None = None
    kind: str | None = None
    format: str = JSON

    @property
    def conditions(self) -> dict[str, str]:
        found = {name: getattr(self, name) for name in _CONDITIONS}
        return {name: value for name, value in found.items() if value is not None}

    def admits(self, origin: Origin) -> bool:
        """Whether events of *origin* may be among them."""
        return (self.protocol is None or self.protocol == origin.protocol) and (
            self.listener is None or self.listener == origin.listener
        )

    def choose(self, rows: Rows) -> range | list[int]:
        """The numbers of the rows that are among them, if their origin may be."""
        among = _choose(self.channel, rows.channel, rows.channels, range(rows.count))
        return _choose(self.kind, rows.kind, rows.kinds, among)


_NAMES = tuple(field.name for field in fields(Query))
_CONDITIONS = _NAMES[:-1]


def _choose(
    wanted: str | None,
    usual: str | None,
    odd: Mapping[int, str],
    among: range | list[int],
) -> range | list[int]:
    if wanted is None:
        return among
    if not odd:
        return among if usual == wanted else []
    return [row for row in among if odd.get(row, usual) == wanted]


def parse(given: Mapping[str, str], *known: str) -> Query:
    """The query in a publisher's name, which may have the keys *known*, too.

    Raises `Fault`, also for a key that means nothing: a typo shows no wrong events.
    """
    for name in given:
        if name not in (*_NAMES, *known):
            there = ", ".join((*known, *_NAMES))
            raise Fault(400, f"no key {name[:40]!r}; there is {there}")
    query = Query(**{name: given[name] for name in _NAMES if name in given})
    if query.format not in (JSON, ARROW):
        raise Fault(400, f"format={query.format[:40]}: json or arrow")
    return query
