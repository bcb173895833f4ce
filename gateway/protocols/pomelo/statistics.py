"""Figures of Pomelo for /api/status, /metrics and the live page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from gateway.protocols.pomelo.answering import OUTCOMES as ANSWERS
from gateway.protocols.pomelo.answering import Answering
from gateway.protocols.pomelo.figures import PUSHES
from gateway.protocols.pomelo.hook import OUTCOMES as AUTHENTICATIONS
from gateway.protocols.pomelo.hook import Hook
from gateway.protocols.pomelo.lobby.lobby import Lobby
from gateway.protocols.pomelo.lobby.taken import Taken
from gateway.protocols.pomelo.push.outbox import Outbox
from gateway.protocols.pomelo.registry import Registry
from gateway.sdk.protocol import Statistics

if TYPE_CHECKING:
    from gateway.protocols.pomelo.listener import Pomelo


@dataclass(slots=True)
class Figures:
    """Counters of several servers together, those that a reload has replaced included."""

    authentications: Counter[str] = field(default_factory=Counter)
    """Handshakes that hooks decided about, by outcome."""
    answers: Counter[str] = field(default_factory=Counter)
    """Requests that backends were to answer, by outcome."""
    answer_seconds: float = 0.0
    """Seconds that those answers took, all together."""
    too_many: Counter[str] = field(default_factory=Counter)
    """Messages refused, being more than a client may send, by listener."""
    kicked: Counter[str] = field(default_factory=Counter)
    """Clients kicked for that, by listener."""
    turned_away: Counter[str] = field(default_factory=Counter)
    """Handshakes refused, being more than an address may begin, by listener."""

    @classmethod
    def of(cls, servers: Iterable[Pomelo], before: Self) -> Self:
        """The figures of *servers*, added to those *before*."""
        found = deepcopy(before)
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


def statistics(
    registry: Registry,
    figures: Figures,
    hooks: Sequence[Hook],
    services: Iterable[Answering],
    boxes: Sequence[Outbox],
    lobby: Lobby,
    taken: Taken,
) -> Statistics:
    services = list(services)
    files = {
        "pushed": sum(one.files for one in boxes),
        "set_aside": sum(one.folder.set_aside for one in boxes),
        "repeated": sum(one.folder.repeated for one in boxes),
    }
    refused = sum(one.refused for one in boxes)
    expired = sum(one.expired for one in boxes)
    pushed = sum(one.rows for one in boxes) - refused - expired
    told = [
        *(one.backend.trouble for one in hooks),
        *(one.trouble for one in services),
        *(one.folder.trouble for one in boxes),
        *lobby.troubles,
    ]
    return PUSHES.of(
        {
            "clients": len(registry),
            "groups": len(registry.groups),
            "group_members": registry.groups.memberships,
            "authentications": {
                name: figures.authentications[name] for name in AUTHENTICATIONS
            },
            "authenticating": sum(one.backend.waiting for one in hooks),
            "too_many": dict(figures.too_many),
            "kicked": dict(figures.kicked),
            "turned_away": dict(figures.turned_away),
            "backend_answers": {name: figures.answers[name] for name in ANSWERS},
            "backend_seconds": figures.answer_seconds,
            "backend_waiting": sum(one.waiting for one in services),
            "pushes": dict(registry.outcomes),
            "outbox_files": files,
            "outbox_rows": {"pushed": pushed, "refused": refused, "expired": expired},
            "outbox_remembered": sum(one.folder.remembered for one in boxes),
            "lobby_gateways": len(lobby.others),
            "lobby_away": len(lobby.troubles),
            "lobby_calls": dict(lobby.outcomes),
            "lobby_taken": dict(taken.outcomes),
        },
        troubles=[one for one in told if one],
    )
