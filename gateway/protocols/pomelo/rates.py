"""Rates: how many messages and bytes a second a connection, and a user, may send.

Also how many sessions an address may begin.  A bucket holds `burst` seconds of its rate
and fills up again in so many.  It may be overdrawn by what arrives at once, which is then
paid back before anything else is taken.  Refused messages are counted in a second bucket of
the same size: a sender that empties it, by sending at twice the rate, has to go.

Messages that a client sends while it is not read arrive at once, and late.  So for that
time its bucket fills up beyond `burst`: no more is taken than `burst` and what the rate
allows.

No I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from gateway.protocols.pomelo import options

_ROUNDING = 1e-6
"""Seconds: twenty tenths are two."""
_MOST_BUCKETS = 1 << 16
_LOOK_AGAIN = 1024


class Verdict(Enum):
    TAKEN = "taken"
    REFUSED = "refused"
    """Too many."""
    KICKED = "kicked"
    """Too many, again and again."""


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate of one second; None: no limit."""

    messages: float | None
    bytes: float | None
    burst: float
    """Seconds."""
    key: str
    """Where that is configured."""
    what: str = "messages"
    """The word for what is counted."""

    def __str__(self) -> str:
        parts = []
        if self.messages is not None:
            parts.append(f"{self.messages:g} {self.what}")
        if self.bytes is not None:
            parts.append(f"{self.bytes:g} bytes")
        return f"{' and '.join(parts)} a second"


class Bucket:
    """How much of a `Rate` is spent: the times when each would be full again.

    Times are in seconds since some moment that is not long ago: a message may be a
    millionth of a second's worth.
    """

    __slots__ = ("_bytes", "_messages", "_refused", "_unread", "_unread_until", "rate")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._messages = self._bytes = self._refused = 0.0
        self._unread = self._unread_until = 0.0

    def is_full(self, now: float) -> bool:
        """Nothing is spent: another bucket would do as well."""
        return max(self._messages, self._bytes, self._refused) <= now

    def is_empty(self, now: float) -> bool:
        return max(self._messages, self._bytes) - now > self.rate.burst - _ROUNDING

    def unread(self, since: float, now: float) -> None:
        """Allow for late messages of a sender that was not read: it has `burst` to catch up."""
        if since > self._unread_until:
            self._unread = since
        self._unread_until = now + self.rate.burst

    def take(self, now: float, messages: int, size: int) -> None:
        """Take so many messages of so many bytes together."""
        rate = self.rate
        full = now if now > self._unread_until else min(self._unread, now)
        if rate.messages is not None:
            self._messages = max(self._messages, full) + messages / rate.messages
        if rate.bytes is not None:
            self._bytes = max(self._bytes, full) + size / rate.bytes

    def refuse(self, now: float, messages: int, size: int) -> bool:
        """Refuse messages; false if they are so many that their sender must go."""
        rate = self.rate
        seconds = 0.0 if rate.messages is None else messages / rate.messages
        if rate.bytes is not None:
            seconds = max(seconds, size / rate.bytes)
        patient = self._refused - now < rate.burst - _ROUNDING
        self._refused = max(self._refused, now) + seconds
        return patient


def judge(
    buckets: Sequence[Bucket], now: float, messages: int, size: int
) -> tuple[Verdict, Rate | None]:
    """The verdict on messages that count in all of these, and the rate that decides."""
    empty = [one for one in buckets if one.is_empty(now)]
    if not empty:
        for one in buckets:
            one.take(now, messages, size)
        return Verdict.TAKEN, None
    patient = [one.refuse(now, messages, size) for one in empty]
    if all(patient):
        return Verdict.REFUSED, empty[0].rate
    return Verdict.KICKED, empty[patient.index(False)].rate


class Buckets:
    """The buckets of a listener's users, or addresses, whether they are connected or not."""

    def __init__(self, rate: Rate, most: int = _MOST_BUCKETS) -> None:
        self.rate = rate
        self._most = most
        self._buckets: dict[str, Bucket] = {}
        self._look_at = _LOOK_AGAIN
        """Sort them out when there are so many."""

    def __len__(self) -> int:
        return len(self._buckets)

    def of(self, name: str, now: float) -> Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= self._look_at:
                self._sort_out(now)
            bucket = self._buckets[name] = Bucket(self.rate)
        return bucket

    def take(self, name: str, now: float) -> bool:
        """One more of his; False if it is too many."""
        bucket = self.of(name, now)
        if bucket.is_empty(now):
            return False
        bucket.take(now, 1, 0)
        return True

    def _sort_out(self, now: float) -> None:
        """Forget full buckets; and the oldest if too many, some at once."""
        kept = {who: one for who, one in self._buckets.items() if not one.is_full(now)}
        for who in list(islice(kept, max(0, len(kept) - self._most * 7 // 8))):
            del kept[who]
        self._buckets = kept
        self._look_at = min(max(2 * len(kept), _LOOK_AGAIN), self._most)


class Meter:
    """The limits of one connection: a bucket of its own, and that of its user."""

    __slots__ = ("_own", "_users", "paused_at")

    def __init__(self, rate: Rate | None, users: Buckets | None) -> None:
        self._own = [] if rate is None else [Bucket(rate)]
        self._users = users
        self.paused_at = 0.0
        """When the connection was last paused."""

    def judge(
        self, uid: str | None, now: float, messages: int, size: int
    ) -> tuple[Verdict, Rate | None]:
        return judge(self._buckets(uid, now), now, messages, size)

    def unread(self, uid: str | None, now: float) -> None:
        """The connection was not read since `paused_at`."""
        for bucket in self._buckets(uid, now):
            bucket.unread(self.paused_at, now)

    def _buckets(self, uid: str | None, now: float) -> list[Bucket]:
        if self._users is None or uid is None:
            return self._own
        return [*self._own, self._users.of(uid, now)]


class Rates:
    """The rates of one listener's clients; and the counts of what was refused."""

    def __init__(self, wanted: options.Rates) -> None:
        burst, key = wanted.burst, "options.rates"
        self._connection = _rate(wanted.connection, burst, f"{key}.connection")
        rate = _rate(wanted.uid, burst, f"{key}.uid")
        self.users = None if rate is None else Buckets(rate)
        """The buckets of users; None: no limit."""
        self._addresses: Buckets | None = None
        """How many sessions addresses may begin; None: any number."""
        if wanted.sessions is not None:
            rate = Rate(wanted.sessions, None, burst, f"{key}.sessions", "sessions")
            self._addresses = Buckets(rate)
        self.too_many = 0
        """Messages that were more than may come."""
        self.kicked = 0
        """Clients that were kicked for them."""
        self.turned_away = 0
        """Handshakes that were more than an address may begin sessions with."""

    def meter(self) -> Meter | None:
        """The meter of a new connection; None where nothing is limited."""
        if self._connection is None and self.users is None:
            return None
        return Meter(self._connection, self.users)

    def begins(self, address: str, now: float) -> Rate | None:
        """An address begins a session; that is too many by this rate, or it may."""
        if self._addresses is None or self._addresses.take(address, now):
            return None
        self.turned_away += 1
        return self._addresses.rate


def _rate(wanted: options.Rate, burst: float, key: str) -> Rate | None:
    if wanted.messages is None and wanted.bytes is None:
        return None
    return Rate(wanted.messages, wanted.bytes, burst, key)
