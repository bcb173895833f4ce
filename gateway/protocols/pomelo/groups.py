"""Groups of connected clients: rooms, guilds, matches.

A group exists while it has a member, and a client is in it until it leaves or its
connection ends.  Groups end with the daemon, as connections do.  Groups that users join
whenever they connect are in the options (`standing`).

A membership takes two pointers: there are ten times as many as clients.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.protocols.pomelo.registry import Member

_MOST_NAME_BYTES = 255
MOST_OF_ONE = 256
"""Groups that one client is in."""
_number = attrgetter("number")


def checked_name(given: str | int) -> str:
    """The name of a group.  Raises ValueError if none can be called so."""
    name = str(given)
    if not 0 < len(name.encode(errors="replace")) <= _MOST_NAME_BYTES:
        raise ValueError(f"group: must have 1 to {_MOST_NAME_BYTES} bytes")
    return name


class _Group:
    __slots__ = ("members", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: list[Member] = []
        """The members by number."""

    def place(self, member: Member) -> int:
        return bisect_left(self.members, member.number, key=_number)


class Groups:
    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._of: dict[Member, tuple[_Group, ...]] = {}
        self.memberships = 0
        """Clients in groups, each counted as often as it is in one."""

    def __len__(self) -> int:
        return len(self._groups)

    def members(self, name: str) -> list[Member]:
        group = self._groups.get(name)
        return [] if group is None else list(group.members)

    def sizes(self) -> Iterable[tuple[str, int]]:
        """All groups, in the order in which they began, and how many are in each."""
        return ((one.name, len(one.members)) for one in self._groups.values())

    def join(self, member: Member, name: str) -> bool:
        """Add a connected client; false if it is in already, or in too many others."""
        group = self._groups.get(name) or _Group(name)
        mine = self._of.get(member, ())
        if group in mine or len(mine) >= MOST_OF_ONE:
            return False
        group.members.insert(group.place(member), member)
        self._groups[name], self._of[member] = group, (*mine, group)
        self.memberships += 1
        return True

    def leave(self, member: Member, name: str) -> bool:
        """Take a client out; false if it is not in."""
        group, mine = self._groups.get(name), self._of.get(member, ())
        if group is None or group not in mine:
            return False
        if len(mine) > 1:
            self._of[member] = tuple(each for each in mine if each is not group)
        else:
            del self._of[member]
        self._remove(member, group)
        return True

    def forget(self, member: Member) -> None:
        for group in self._of.pop(member, ()):
            self._remove(member, group)

    def _remove(self, member: Member, group: _Group) -> None:
        self.memberships -= 1
        del group.members[group.place(member)]
        if not group.members:
            del self._groups[group.name]
