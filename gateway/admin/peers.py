"""`/api/connections` and `/api/rejections`: who is connected, and who was rejected.

    GET /api/connections?sort=bytes&order=down&limit=100&listener=beats&find=10.0.
        {"total": 9000, "found": 40, "connections": [{…}], "listeners": {"beats": {…}}}

All connections are looked at once in two seconds at most, however many ask.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from attrs import define

from gateway.admin.site import number, plain
from gateway.sdk.protocol import Answer

_SORTS = (
    "listener", "session", "peer", "principal", "seconds", "bytes", "events",
    "unacknowledged", "last_error",
)  # fmt: skip
_FOUND_IN = ("session", "peer", "principal", "last_error")
_KEYS = ("sort", "order", "limit", "listener", "find")
_USUAL_CONNECTIONS, _MOST_CONNECTIONS = 100, 1000
_FRESH_SECONDS = 2.0


@define(eq=False, slots=False)
class Peers:
    """*connections* gives each open one, *rejections* the newest first: objects that
    msgspec can write, with the columns of the pages.  *clock* is that of `at`.
    """

    _connections: Callable[[], Iterable[Any]]
    _rejections: Callable[[], Iterable[Any]]
    _clock: Callable[[], float]

    def __attrs_post_init__(self) -> None:
        self._looked: float | None = None
        self._all: Sequence[Any] = ()

    def connections(self, query: Mapping[str, str]) -> Answer:
        """`/api/connections`."""
        try:
            body = self._chosen(query)
        except ValueError as why:
            return plain(400, str(why), "/api/connections")
        return Answer(json.dumps(body).encode(), "application/json")

    def rejections(self, _: Mapping[str, str]) -> Answer:
        """`/api/rejections`."""
        return Answer(self.rejections_json(), "application/json")

    def rejections_json(self) -> bytes:
        """The newest first; `seconds` ago."""
        now = self._clock()
        rows = []
        for one in self._rejections():
            row = msgspec.to_builtins(one)
            row["seconds"] = round(max(0.0, now - row.pop("at")), 1)
            rows.append(row)
        return msgspec.json.encode(rows)

    def _chosen(self, query: Mapping[str, str]) -> dict[str, Any]:
        for key in query:
            if key not in _KEYS:
                raise ValueError(f"no key {key[:40]!r}; there is {', '.join(_KEYS)}")
        sort = query.get("sort", "bytes")
        if sort not in _SORTS:
            raise ValueError(f"sort={sort[:40]}: one of {', '.join(_SORTS)}")
        order = query.get("order", "down")
        if order not in ("up", "down"):
            raise ValueError(f"order={order[:40]}: up or down")
        everyone = self._look()
        found = [one for one in everyone if _matches(one, query)]
        found.sort(key=lambda one: _sortable(one, sort), reverse=order == "down")
        return {
            "total": len(everyone),
            "found": len(found),
            "connections": msgspec.to_builtins(found[: _limit(query)]),
            "listeners": self._by_listener(),
        }

    def _look(self) -> Sequence[Any]:
        now = self._clock()
        if self._looked is None or not 0 <= now - self._looked < _FRESH_SECONDS:
            self._looked, self._all = now, list(self._connections())
        return self._all

    def _by_listener(self) -> dict[str, dict[str, Any]]:
        """Unacknowledged bytes and the last error of each listener."""
        unacknowledged: Counter[str] = Counter()
        for one in self._all:
            unacknowledged[one.listener] += one.unacknowledged
        found: dict[str, dict[str, Any]] = {
            name: {"unacknowledged": size, "last_error": None}
            for name, size in unacknowledged.items()
        }
        for one in self._rejections():
            row = found.setdefault(
                one.listener, {"unacknowledged": 0, "last_error": None}
            )
            row["last_error"] = row["last_error"] or f"{one.peer}: {one.why}"
        return found


def _matches(one: Any, query: Mapping[str, str]) -> bool:
    if query.get("listener", one.listener) != one.listener:
        return False
    wanted = query.get("find", "").lower()
    return not wanted or any(
        wanted in (getattr(one, name) or "").lower() for name in _FOUND_IN
    )


def _sortable(one: Any, column: str) -> Any:
    value = getattr(one, column)
    return "" if value is None else value


def _limit(query: Mapping[str, str]) -> int:
    text = query.get("limit", str(_USUAL_CONNECTIONS))
    if (limit := number(text, _MOST_CONNECTIONS)) is None:
        raise ValueError(f"limit={text[:20]}: 1 to {_MOST_CONNECTIONS}")
    return limit
