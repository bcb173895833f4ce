"""An answer from outside the gateway: to one request of one session.

{"session": "…", "id": 7, "body": {"code": 200}}
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.protocols.pomelo.push.row import Row
from gateway.protocols.pomelo.registry import Delivery, Registry

_MOST_ID = 0xFFFFFFFF


@dataclass(slots=True, frozen=True)
class AnswerRow(Row):
    """One answer."""

    session: str
    id: int
    """Of the request, as its client counts."""
    body: bytes
    """JSON."""

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return len(self.body)

    @property
    def to_session(self) -> str | None:
        """See `Row`."""
        return self.session

    def begin(self, registry: Registry) -> Delivery:
        """Answer the request; there is nothing else to deliver.

        Raises ValueError if the body is not JSON.
        """
        answered = registry.answer(self.session, self.id, self.body)
        return Delivery.done(answered=int(answered))


def answer_row(
    session: str | None, number: object, body: bytes, ttl: float | None
) -> AnswerRow:
    """The answer that was given.  Raises ValueError if it is to nothing."""
    if session is None:
        raise ValueError("an answer must have a session")
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or not 0 < number <= _MOST_ID:  # type: ignore[operator]
        raise ValueError(f"id: must be a number from 1 to {_MOST_ID}")
    return AnswerRow(session, number, body, ttl=ttl)  # type: ignore[arg-type]
