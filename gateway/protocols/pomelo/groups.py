"""Groups of connected clients: rooms, guilds, matches.

A group is there while somebody is in it, and a client is in it until it leaves or its
connection ends.  Nothing of it outlives the daemon: neither does a connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.protocols.pomelo.registry import Member

__all__ = ["Groups", "checked_name"]

_MOST_NAME_BYTES = 255
_MOST_OF_ONE = 256
"""Groups that one client is in."""


def checked_name(given: str | int) -> str:
    """The name of a group.  Raises ValueError if none can be called so."""
    name = str(given)
    if not 0 < len(name.encode(errors="replace")) <= _MOST_NAME_BYTES:
        raise ValueError(f"group: must have 1 to {_MOST_NAME_BYTES} bytes")
    return name


class Groups:
    """All groups of one gateway."""

    def __init__(self) -> None:
        self._members: dict[str, dict[Member, None]] = {}
        self._of: dict[Member, dict[str, None]] = {}
        self.memberships = 0
        """Clients in groups, each counted as often as it is in one."""

    def __len__(self) -> int:
        return len(self._members)

    def members(self, name: str) -> list[Member]:
        """Who is in it."""
        return list(self._members.get(name, ()))

    def sizes(self) -> Iterable[tuple[str, int]]:
        """All groups, in the order in which they began, and how many are in each."""
        return ((name, len(members)) for name, members in self._members.items())

    def join(self, member: Member, name: str) -> bool:
        """Add a connected client; false if it is in already, or in too many others."""
        mine = self._of.setdefault(member, {})
        if name in mine or len(mine) >= _MOST_OF_ONE:
            return False
        mine[name] = None
        self._members.setdefault(name, {})[member] = None
        self.memberships += 1
        return True

    def leave(self, member: Member, name: str) -> bool:
        """Take a client out; false if it is not in."""
        mine = self._of.get(member, {})
        if name not in mine:
            return False
        del mine[name]
        if not mine:
            del self._of[member]
        self._remove(member, name)
        return True

    def forget(self, member: Member) -> None:
        """The client is gone."""
        for name in self._of.pop(member, ()):
            self._remove(member, name)

    def _remove(self, member: Member, name: str) -> None:
        self.memberships -= 1
        others = self._members[name]
        del others[member]
        if not others:
            del self._members[name]
