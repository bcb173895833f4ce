"""Groups of users that stand in the options: guilds, teams.

    {"guild-7": ["alice", "bob"], "guild-8": ["alice"]}

Who connects as one of these users is in his groups from the start, after a restart, too,
and on each gateway that has the same file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.protocols.pomelo.auth import Denied, checked_uid
from gateway.protocols.pomelo.groups import MOST_OF_ONE, checked_name
from gateway.protocols.pomelo.protobuf import Unusable
from gateway.protocols.pomelo.routes import value_of, where


def standing(option: Any) -> Mapping[str, Sequence[str]]:
    """Groups by uid of `options.groups`, a value or the path of a JSON file, in its order.

    Raises `Unusable`, which names the option, and the file if there is one.
    """
    groups = value_of(option, "groups")
    place = where("groups", option)
    if groups is None:
        return {}
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
    return found


def _uid(given: Any, name: str, place: str) -> str:
    try:
        uid = checked_uid(given)
    except Denied:
        uid = None
    if uid is None:
        raise Unusable(f"{place}: {name!r}: {given!r:.80} is no uid of 1 to 255 bytes")
    return uid
