"""Groups of users that stand in the options: guilds, teams.

    {"guild-7": ["alice", "bob"], "guild-8": ["alice"]}

Who connects as one of these users is in his groups from the start, after a restart, too,
and on each gateway that has the same file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.protocols.pomelo.auth import Denied, checked_uid
from gateway.protocols.pomelo.groups import MOST_OF_ONE, checked_name
from gateway.protocols.pomelo.protobuf import Unusable
from gateway.protocols.pomelo.routes import changed, value_of, where


@dataclass(slots=True, frozen=True, eq=False)
class Standing:
    """The standing groups of each user."""

    of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Groups by uid, in the order of the file."""
    files: Mapping[Path, int] = field(default_factory=dict)
    """Files, and when they were written, as in `routes.Definitions`."""

    @property
    def stale(self) -> bool:
        """The file has changed; one that is missing does not count."""
        return changed(self.files)


def standing(option: Any) -> Standing:
    """The groups of `options.groups`, a value or the path of a JSON file.

    Raises `Unusable`, which names the option, and the file if there is one.
    """
    files: dict[Path, int] = {}
    groups = value_of(option, "groups", files)
    place = where("groups", option)
    if groups is None:
        return Standing(files=files)
    if not isinstance(groups, Mapping):
        raise Unusable(f"{place}: must be groups, each with a list of uids")
    found: dict[str, list[str]] = {}
    for given, uids in groups.items():
        try:
            name = checked_name(given)
        except ValueError:
            raise Unusable(f"{place}: {given!r:.80}: not 1 to 255 bytes") from None
        if not isinstance(uids, list):
            raise Unusable(
                f"{place}: {name!r}: must be a list of uids, not {uids!r:.80}"
            )
        for uid in dict.fromkeys(_uid(each, name, place) for each in uids):
            found.setdefault(uid, []).append(name)
    for uid, names in found.items():
        if len(names) > MOST_OF_ONE:
            raise Unusable(f"{place}: {uid!r} is in {len(names)}, limit {MOST_OF_ONE}")
    return Standing(found, files)


def _uid(given: Any, name: str, place: str) -> str:
    try:
        uid = checked_uid(given)
    except Denied:
        uid = None
    if uid is None:
        raise Unusable(f"{place}: {name!r}: {given!r:.80} is no uid of 1 to 255 bytes")
    return uid
