"""An index of connected clients by attributes, for the names that are asked for.

A name is indexed when it is first asked for, and kept up from then on, so that other
attributes cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.protocols.pomelo.registry import Member

_MOST_NAMES = 16
"""Names that are indexed; by others alone all clients are looked at."""


class AttributeIndex:
    """The clients by the values of some attributes."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, dict[Member, None]]] = {}

    def join(self, member: Member) -> None:
        """A client is there; its attributes do not change."""
        for name, values in self._names.items():
            _add(values, member, name)

    def leave(self, member: Member) -> None:
        for name, values in self._names.items():
            value = member.origin.attributes.get(name)
            if value is not None and (members := values.get(value)) is not None:
                members.pop(member, None)
                if not members:
                    del values[value]

    def candidates(
        self, where: Mapping[str, str], everybody: Iterable[Member]
    ) -> Iterable[Member]:
        """The fewest that all who have these attributes are among."""
        known = [name for name in where if name in self._names]
        if not known:
            if len(self._names) >= _MOST_NAMES:
                return everybody
            known = [next(iter(where))]
            values = self._names[known[0]] = {}
            for member in everybody:
                _add(values, member, known[0])
        found = [self._names[name].get(where[name], {}) for name in known]
        return min(found, key=len)


def _add(values: dict[str, dict[Member, None]], member: Member, name: str) -> None:
    value = member.origin.attributes.get(name)
    if value is not None:
        values.setdefault(value, {})[member] = None
