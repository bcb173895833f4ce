"""What Pomelo shows on /api/status, /metrics and the live page: a table of its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.protocols.pomelo.answering import OUTCOMES as ANSWERS
from gateway.protocols.pomelo.answering import Answering
from gateway.protocols.pomelo.figures import Figures
from gateway.protocols.pomelo.hook import OUTCOMES as AUTHENTICATIONS
from gateway.protocols.pomelo.hook import Hook
from gateway.protocols.pomelo.lobby.lobby import Lobby
from gateway.protocols.pomelo.lobby.taken import Taken
from gateway.protocols.pomelo.push.outbox import Outbox
from gateway.protocols.pomelo.registry import Registry
from gateway.sdk.protocol import Statistic, Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Where the numbers are."""

    registry: Registry
    figures: Figures
    hooks: Sequence[Hook]
    services: Sequence[Answering]
    outboxes: Sequence[Outbox]
    lobby: Lobby
    taken: Taken


class _Row(NamedTuple):
    """A `Statistic`, and how it is counted."""

    name: str
    text: str
    metric: str
    value: Callable[[Parts], float | Mapping[str, float]]
    label: str = ""
    counter: bool = False
    card: str = ""


def _counts(
    name: str,
    text: str,
    metric: str,
    value: Callable[[Parts], Mapping[str, float]],
    card: str = "",
) -> _Row:
    """Counters of attempts, by what became of them."""
    return _Row(name, text, metric, value, "outcome", counter=True, card=card)


def _by_listener(
    name: str, text: str, metric: str, value: Callable[[Parts], Mapping[str, float]]
) -> _Row:
    return _Row(name, text, metric, value, "listener", counter=True)


def _files(parts: Parts) -> Mapping[str, float]:
    boxes = parts.outboxes
    return {
        "pushed": sum(one.files for one in boxes),
        "set_aside": sum(one.folder.set_aside for one in boxes),
        "repeated": sum(one.folder.repeated for one in boxes),
    }


def _rows(parts: Parts) -> Mapping[str, float]:
    refused = sum(one.refused for one in parts.outboxes)
    expired = sum(one.expired for one in parts.outboxes)
    rows = sum(one.rows for one in parts.outboxes)
    pushed = rows - refused - expired
    return {"pushed": pushed, "refused": refused, "expired": expired}


_TABLE = (
    _Row("clients", "Clients that pushes can reach now.", "gateway_push_clients",
         lambda parts: len(parts.registry), card="clients that can be reached"),
    _Row("groups", "Groups that somebody is in.", "gateway_pomelo_groups",
         lambda parts: len(parts.registry.groups), card="groups"),
    _Row("group_members", "Clients in groups, each counted in each of them.",
         "gateway_pomelo_group_members", lambda parts: parts.registry.groups.memberships),
    _counts("authentications", "Handshakes that the authentication hook decided about.",
            "gateway_pomelo_authentications_total",
            lambda parts: {n: parts.figures.authentications[n] for n in AUTHENTICATIONS}),
    _Row("authenticating", "Clients that the authentication hook is being asked about.",
         "gateway_pomelo_authenticating",
         lambda parts: sum(one.waiting for one in parts.hooks)),
    _by_listener("too_many",
                 "Messages that were refused, being more than a client may send.",
                 "gateway_pomelo_messages_over_rate_total",
                 lambda parts: dict(parts.figures.too_many)),
    _by_listener("kicked", "Clients that were kicked for that.",
                 "gateway_pomelo_kicks_over_rate_total",
                 lambda parts: dict(parts.figures.kicked)),
    _by_listener("turned_away",
                 "Handshakes refused, being more than an address may begin sessions.",
                 "gateway_pomelo_sessions_over_rate_total",
                 lambda parts: dict(parts.figures.turned_away)),
    _counts("backend_answers", "Requests that backends were to answer.",
            "gateway_pomelo_backend_answers_total",
            lambda parts: {name: parts.figures.answers[name] for name in ANSWERS}),
    _Row("backend_seconds", "What the answers of backends took, all together.",
         "gateway_pomelo_backend_seconds_total", lambda parts: parts.figures.answer_seconds,
         counter=True),
    _Row("backend_waiting", "Requests that backends have not answered yet.",
         "gateway_pomelo_backend_waiting",
         lambda parts: sum(one.waiting for one in parts.services)),
    _counts("pushes", "Pushed messages sent, dropped; pushes for nobody, refused, expired.",
            "gateway_pushes_total", lambda parts: dict(parts.registry.outcomes),
            card="pushes"),
    _counts("outbox_files", "Files of the outbox: pushed, set aside, or pushed before.",
            "gateway_outbox_files_total", _files, card="outbox files"),
    _counts("outbox_rows", "Rows of the files that were pushed; no pushes; too late.",
            "gateway_outbox_rows_total", _rows),
    _Row("outbox_remembered", "Names of files that are not pushed again.",
         "gateway_outbox_remembered_files",
         lambda parts: sum(one.folder.remembered for one in parts.outboxes)),
    _Row("lobby_gateways", "Other gateways of the lobby.", "gateway_pomelo_lobby_gateways",
         lambda parts: len(parts.lobby.others)),
    _Row("lobby_away", "Those of them that did not answer the last time they were called.",
         "gateway_pomelo_lobby_gateways_away", lambda parts: len(parts.lobby.troubles)),
    _counts("lobby_calls",
            "Calls to other gateways: answered, partly refused, without an answer of use.",
            "gateway_pomelo_lobby_calls_total", lambda parts: dict(parts.lobby.outcomes)),
    _counts("lobby_taken",
            "Calls of other gateways: done, repeated and so not done again, refused.",
            "gateway_pomelo_lobby_taken_total", lambda parts: dict(parts.taken.outcomes)),
)  # fmt: skip


def statistics(parts: Parts) -> Statistics:
    """The one section that Pomelo shows."""
    told = [
        *(one.trouble for one in parts.hooks),
        *(one.trouble for one in parts.services),
        *(one.folder.trouble for one in parts.outboxes),
        *parts.lobby.troubles,
    ]
    return Statistics(
        "pushes",
        "Pomelo, pushes",
        [
            Statistic(
                row.name,
                row.text,
                row.value(parts),
                row.metric,
                row.label,
                counter=row.counter,
                card=row.card,
            )
            for row in _TABLE
        ],
        troubles=[one for one in told if one],
    )
