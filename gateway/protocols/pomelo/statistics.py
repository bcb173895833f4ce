"""Figures of Pomelo for /api/status, /metrics and the live page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from gateway.protocols.pomelo.answering import OUTCOMES as ANSWERS
from gateway.protocols.pomelo.answering import Answering
from gateway.protocols.pomelo.hook import OUTCOMES as AUTHENTICATIONS
from gateway.protocols.pomelo.hook import Hook
from gateway.protocols.pomelo.lobby.lobby import Lobby
from gateway.protocols.pomelo.lobby.taken import Taken
from gateway.protocols.pomelo.push.outbox import Outbox
from gateway.protocols.pomelo.registry import Registry
from gateway.sdk.protocol import Statistic, Statistics

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


def _by_listener(
    name: str, text: str, counts: Mapping[str, float], metric: str
) -> Statistic:
    return Statistic(name, text, dict(counts), metric, "listener", counter=True)


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
        *(one.trouble for one in hooks),
        *(one.trouble for one in services),
        *(one.folder.trouble for one in boxes),
        *lobby.troubles,
    ]
    return Statistics(
        "pushes",
        "Pomelo, pushes",
        [
            Statistic("clients", "Clients that pushes can reach now.", len(registry),
                      "gateway_push_clients", card="clients that can be reached"),
            Statistic("groups", "Groups that somebody is in.", len(registry.groups),
                      "gateway_pomelo_groups", card="groups"),
            Statistic("group_members", "Clients in groups, each counted in each of them.",
                      registry.groups.memberships, "gateway_pomelo_group_members"),
            Statistic.outcomes("authentications",
                               "Handshakes that the authentication hook decided about.",
                               {name: figures.authentications[name] for name in AUTHENTICATIONS},
                               "gateway_pomelo_authentications_total"),
            Statistic("authenticating",
                      "Clients that the authentication hook is being asked about.",
                      sum(one.waiting for one in hooks), "gateway_pomelo_authenticating"),
            _by_listener("too_many",
                         "Messages that were refused, being more than a client may send.",
                         figures.too_many, "gateway_pomelo_messages_over_rate_total"),
            _by_listener("kicked", "Clients that were kicked for that.", figures.kicked,
                         "gateway_pomelo_kicks_over_rate_total"),
            _by_listener("turned_away",
                         "Handshakes refused, being more than an address may begin sessions.",
                         figures.turned_away, "gateway_pomelo_sessions_over_rate_total"),
            Statistic.outcomes("backend_answers", "Requests that backends were to answer.",
                               {name: figures.answers[name] for name in ANSWERS},
                               "gateway_pomelo_backend_answers_total"),
            Statistic("backend_seconds", "What the answers of backends took, all together.",
                      figures.answer_seconds, "gateway_pomelo_backend_seconds_total",
                      counter=True),
            Statistic("backend_waiting", "Requests that backends have not answered yet.",
                      sum(one.waiting for one in services), "gateway_pomelo_backend_waiting"),
            Statistic.outcomes("pushes",
                               "Pushed messages sent, dropped; pushes for nobody, refused, expired.",
                               dict(registry.outcomes), "gateway_pushes_total", card="pushes"),
            Statistic.outcomes("outbox_files",
                               "Files of the outbox: pushed, set aside, or pushed before.",
                               files, "gateway_outbox_files_total", card="outbox files"),
            Statistic.outcomes("outbox_rows",
                               "Rows of the files that were pushed; no pushes; too late.",
                               {"pushed": pushed, "refused": refused, "expired": expired},
                               "gateway_outbox_rows_total"),
            Statistic("outbox_remembered", "Names of files that are not pushed again.",
                      sum(one.folder.remembered for one in boxes),
                      "gateway_outbox_remembered_files"),
            Statistic("lobby_gateways", "Other gateways of the lobby.", len(lobby.others),
                      "gateway_pomelo_lobby_gateways"),
            Statistic("lobby_away",
                      "Those of them that did not answer the last time they were called.",
                      len(lobby.troubles), "gateway_pomelo_lobby_gateways_away"),
            Statistic.outcomes("lobby_calls",
                               "Calls to other gateways: answered, partly refused, without an "
                               "answer of use.",
                               dict(lobby.outcomes), "gateway_pomelo_lobby_calls_total"),
            Statistic.outcomes("lobby_taken",
                               "Calls of other gateways: done, repeated and so not done again, "
                               "refused.",
                               dict(taken.outcomes), "gateway_pomelo_lobby_taken_total"),
        ],
        troubles=[one for one in told if one],
    )  # fmt: skip
