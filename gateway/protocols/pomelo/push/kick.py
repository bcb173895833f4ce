"""A kick from outside the gateway: who must go, and what he is told.

{"session": "…"}     {"uid": "alice", "reason": "maintenance"}
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from gateway.protocols.pomelo.push.row import Row
from gateway.protocols.pomelo.registry import Delivery, Registry

_REASON_CHARS = 200


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    uid: str | int | None = None
    session: str | None = None
    reason: str = "kicked"


_ASKED = msgspec.json.Decoder(_Asked)


@dataclass(slots=True, frozen=True)
class Kick(Row):
    """One session, or all of those who are, or say that they are, one user."""

    reason: str
    session: str | None = None
    uid: str | None = None

    def begin(self, registry: Registry) -> Delivery:
        """Kick those who are connected now."""
        if self.session is not None:
            members = registry.session(self.session)
        else:
            members = registry.claiming(self.uid or "")
        return Delivery.done(kicked=registry.kick(members, self.reason))

    @property
    def to_session(self) -> str | None:
        """See `Row`."""
        return self.session


def kick(request: bytes) -> Kick:
    """The kick that a request's body asks for.  ValueError says what is wrong."""
    try:
        asked = _ASKED.decode(request)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as why:
        raise ValueError(f"the request is no kick: {why}") from None
    if (asked.uid is None) == (asked.session is None):
        raise ValueError("must have one of session, uid")
    if not 0 < len(asked.reason) <= _REASON_CHARS:
        raise ValueError(f"reason: must have 1 to {_REASON_CHARS} characters")
    uid = None if asked.uid is None else str(asked.uid)
    return Kick(asked.reason, asked.session, uid)
