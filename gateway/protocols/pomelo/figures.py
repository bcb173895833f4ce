"""Counters of all Pomelo listeners, those that a reload has replaced included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from gateway.protocols.pomelo.listener import Pomelo


@dataclass(slots=True)
class Figures:
    """Of several servers together."""

    authentications: Counter[str] = field(default_factory=Counter)
    """Handshakes that hooks decided about, by outcome."""
    answers: Counter[str] = field(default_factory=Counter)
    """Requests that backends were to answer, by outcome."""
    answer_seconds: float = 0.0
    """What those took, all together."""
    too_many: Counter[str] = field(default_factory=Counter)
    """Messages refused, being more than a client may send, by listener."""
    kicked: Counter[str] = field(default_factory=Counter)
    """Clients kicked for that, by listener."""
    turned_away: Counter[str] = field(default_factory=Counter)
    """Handshakes refused, being more than an address may begin, by listener."""

    @classmethod
    def of(cls, servers: Iterable[Pomelo], before: Self) -> Self:
        """Those of *servers*, and of others *before*."""
        found = cls(
            Counter(before.authentications),
            Counter(before.answers),
            before.answer_seconds,
            Counter(before.too_many),
            Counter(before.kicked),
            Counter(before.turned_away),
        )
        for one in servers:
            if one.hook is not None:
                found.authentications.update(one.hook.outcomes)
            for service in set(one.services.values()):
                found.answers.update(service.outcomes)
                found.answer_seconds += service.seconds
            found.too_many[one.name] += one.rates.too_many
            found.kicked[one.name] += one.rates.kicked
            found.turned_away[one.name] += one.rates.turned_away
        return found
