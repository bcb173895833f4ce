"""A call from one gateway of a lobby to another, and its answer: JSON.

    -> POST /api/lobby {"by": RUN, "number": 17, "rows": [{"push": {…}}, …]}
    <- 200 {"gateway": "gw-2", "run": RUN, "counts": {"sent": 3, "dropped": 0}}

    -> {"by": RUN, "number": 18, "rows": [], "page": "sessions", "query": {"uid": "alice"}}
    <- 200 {"gateway": "gw-2", "run": RUN, "shown": {"sessions": […], …}}

A run is one process of a gateway's daemon.  Run and number together are the name of a
call, so one that comes twice is known.  The gateway that gets it carries it out, and does
not pass it on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gateway.protocols.pomelo.push.row import (
    Addressee,
    AnswerRow,
    Kick,
    Membership,
    Push,
    Rejected,
    Row,
)
from gateway.protocols.pomelo.registry import PRIORITIES


class _Push(msgspec.Struct):
    route: str
    body: msgspec.Raw
    to: Addressee
    priority: str


class _Answer(msgspec.Struct):
    session: str
    id: int
    body: msgspec.Raw


class _Row(msgspec.Struct, omit_defaults=True):
    """One of these is set."""

    push: _Push | None = None
    answer: _Answer | None = None
    group: Membership | None = None
    kick: Kick | None = None


class Call(msgspec.Struct, omit_defaults=True):
    """A request to another gateway."""

    by: str
    """The run of who asks."""
    number: int
    """The number of this call: each one that `by` makes has another."""
    rows: list[_Row]
    page: str = ""
    """Instead of rows: that of whose clients are to be listed."""
    query: Mapping[str, str] = {}
    """The query of the page."""


class Done(msgspec.Struct, omit_defaults=True):
    gateway: str
    """The node of who did it."""
    run: str
    counts: Mapping[str, int] = {}
    """How many of its clients had what."""
    refused: int = 0
    """Rows that could not be done."""
    why: str = ""
    """The reason of the first one of those."""
    shown: msgspec.Raw = msgspec.Raw(b"")
    """The page."""


def call(by: str, number: int, rows: Iterable[Row]) -> Call:
    """The call that asks for *rows*, whose bodies are JSON."""
    return Call(by, number, [_row(row) for row in rows])


def rows_of(asked: Call) -> list[Row]:
    """The rows asked for, in order; one that this version does not know is rejected."""
    return [_read(one) for one in asked.rows]


def _row(row: Row) -> _Row:
    match row:
        case Push():
            body = msgspec.Raw(row.body)
            return _Row(push=_Push(row.route, body, row.to, row.priority))
        case AnswerRow():
            return _Row(answer=_Answer(row.session, row.id, msgspec.Raw(row.body)))
        case Membership():
            return _Row(group=row)
        case Kick():
            return _Row(kick=row)
    raise TypeError(f"{row!r} is for no other gateway")


def _read(one: _Row) -> Row:
    if (found := one.push) is not None and found.priority in PRIORITIES:
        return Push(found.route, bytes(found.body), found.to, found.priority)
    if (answer := one.answer) is not None:
        return AnswerRow(answer.session, answer.id, bytes(answer.body))
    return one.group or one.kick or Rejected("this gateway does not know such a row")
