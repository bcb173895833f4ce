"""Rate limit of the log lines that peers can cause: what is left out is told by rule.

One peer's fault must not hide another, nor another fault of the same peer.  So there is
one line a minute for each address, listener and rule, and a minute later a line that tells
how many there were.  A flood from many addresses is told by listener and rule only, and
so are the faults of one address that has found many rules to break.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from gateway.event import network_of

_INTERVAL_SECONDS = 60.0
_MOST_REMEMBERED = 4096
_MOST_LINES = 600
"""Lines in a minute, of all peers together."""
_MOST_LINES_OF_ONE = 20
"""Lines in a minute, of one address."""
_MOST_KINDS = 100
_KIND_CHARACTERS = 100
_MOST_ENTRIES = 100
_TEXT_CHARACTERS = 300
#: What a peer chose: quoted text, hexadecimal, and numbers.
_CHOSEN = re.compile(
    r"""
      '(?:[^'\\]|\\.)*'
    | "(?:[^"\\]|\\.)*"
    | \b(?:0x[0-9a-f]+|[0-9a-f]{8,})\b
    | [0-9]+
    """,
    re.VERBOSE | re.IGNORECASE,
)

_Key = tuple[str, str, str]
"""Address, listener, kind of fault."""


@dataclass(slots=True)
class Recent:
    """A fault of one address, again and again."""

    listener: str
    peer: str
    """The last one; of an IPv6 /64, say."""
    why: str
    """The last reason, with limit and key."""
    key: str | None
    """The configuration key of the limit."""
    at: float
    """When it was the last time; by the reactor's clock."""
    count: int


class RecentRejections:
    """The hundred last rejections of all listeners, for `/api/rejections`.

    One that comes again is counted, not listed again: a flood of one peer hides no other.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[_Key, Recent] = OrderedDict()
        self.serial = 0
        """Grows with each rejection."""

    def note(self, kind: _Key, peer: str, why: str, key: str | None, at: float) -> None:
        self.serial += 1
        before = self._entries.pop(kind, None)
        count = 1 if before is None else before.count + 1
        self._entries[kind] = Recent(
            kind[1], peer, why[:_TEXT_CHARACTERS], key, at, count
        )
        if len(self._entries) > _MOST_ENTRIES:
            self._entries.popitem(last=False)

    def __iter__(self) -> Iterator[Recent]:
        """The newest first."""
        return reversed(self._entries.values())


@dataclass(slots=True)
class _Line:
    at: float
    left_out: int = 0


class RejectionLog:
    """The rejection log of all listeners of a daemon."""

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self.recent = RecentRejections()
        """The last rejections, whether they got a line or not."""
        self._lines_told: OrderedDict[_Key, _Line] = OrderedDict()
        self._left_out: Counter[tuple[str, str]] = Counter()
        """Lines left out, by listener and kind, where addresses or kinds are too many."""
        self._minute = -_INTERVAL_SECONDS
        self._lines = 0
        self._lines_of: Counter[str] = Counter()
        """Lines in this minute, by address, without those that tell what was left out."""
        self._scheduled = False

    def admit(self, host: str, listener: str, rule: str) -> bool:
        """Whether to write a line about *host*, which broke *rule*.

        A host is an IPv4 address or the /64 of an IPv6 one, as an IPv6 peer has 2^64
        addresses.  Rules that differ in numbers and quoted text only are one.
        """
        now = self._clock.seconds()
        key = network_of(host), listener, _kind(rule)
        line = self._lines_told.get(key)
        if line is not None and now - line.at < _INTERVAL_SECONDS:
            line.left_out += 1
        elif self._room_of(key[0], now):
            self._tell(key, now)
            return True
        else:
            self._leave_out(key, 1)
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(_INTERVAL_SECONDS, self._tell_left_out)
        return False

    def note(
        self, host: str, listener: str, rule: str, peer: str, why: str, key: str | None
    ) -> None:
        """Remember it among the `recent`; *why* is for people."""
        kind = network_of(host), listener, _kind(rule)
        self.recent.note(kind, peer, why, key, self._clock.seconds())

    def _room(self, now: float) -> bool:
        """Whether this minute may have one more line."""
        self._begin_minute(now)
        self._lines += 1
        return self._lines <= _MOST_LINES

    def _room_of(self, address: str, now: float) -> bool:
        """Whether it may have one more line about *address*."""
        self._begin_minute(now)
        if self._lines_of[address] >= _MOST_LINES_OF_ONE or not self._room(now):
            return False
        self._lines_of[address] += 1
        return True

    def _begin_minute(self, now: float) -> None:
        if now - self._minute >= _INTERVAL_SECONDS:
            self._minute, self._lines = now, 0
            self._lines_of.clear()

    def _tell(self, key: _Key, now: float) -> None:
        line = self._lines_told.pop(key, None) or _Line(now)
        line.at = now
        self._lines_told[key] = line
        if len(self._lines_told) > _MOST_REMEMBERED:
            oldest, forgotten = self._lines_told.popitem(last=False)
            if forgotten.left_out:
                self._leave_out(oldest, forgotten.left_out)

    def _leave_out(self, key: _Key, count: int) -> None:
        _, listener, kind = key
        if (listener, kind) not in self._left_out and (
            len(self._left_out) >= _MOST_KINDS
        ):
            kind = "other rules"
        self._left_out[listener, kind] += count

    def _tell_left_out(self) -> None:
        self._scheduled = False
        now = self._clock.seconds()
        for key, line in self._lines_told.items():
            count, line.left_out = line.left_out, 0
            if not count:
                continue
            if self._room(now):
                address, listener, kind = key
                self._write(listener, f"{address}: ", count, kind)
            else:
                self._leave_out(key, count)
        for (listener, kind), count in self._left_out.items():
            self._write(listener, "", count, kind)
        self._left_out.clear()

    def _write(self, listener: str, address: str, count: int, kind: str) -> None:
        self._log.warn(
            "{listener}: {address}{count} more in the last minute: {kind}",
            listener=listener,
            address=address,
            count=count,
            kind=kind,
        )


def _kind(rule: str) -> str:
    return _CHOSEN.sub("#", rule[: 4 * _KIND_CHARACTERS])[:_KIND_CHARACTERS]
