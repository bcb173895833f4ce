"""Events of sessions: when one opens, is bound to a uid, closes, as rows of `kind: session`.

    {"event": "opened"}   {"event": "bound", "uid": "alice", "proven": false}
    {"event": "closed", "reason": "lost", "seconds": 12.5}

They are stored as messages are, in the order of their connection, and not answered.  The
end of a session while the journal is full is told when there is room: that is one small
batch for each connection that there was, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from attrs import define
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from gateway.event import Batch
from gateway.protocols.pomelo import events
from gateway.protocols.pomelo.auth import Admitted
from gateway.sdk.interfaces import Connection, Journal, Refusal

Told = Mapping[str, Any]
"""One event: its JSON object."""


@define(eq=False, slots=False)
class SessionEvents:
    """Stores what becomes of one listener's sessions."""

    _journal: Journal
    _clock: IReactorTime

    def __attrs_post_init__(self) -> None:
        self._late: list[tuple[Batch, Connection]] = []

    def opened(self, connection: Connection, admitted: Admitted) -> None:
        """The session is there; what it sends is stored behind this."""
        told: tuple[Told, ...] = ({"event": "opened"},)
        if admitted.uid is not None:
            proven = admitted.principal is not None
            told += ({"event": "bound", "uid": admitted.uid, "proven": proven},)
        self._submit(self._batch(connection, told), connection)

    def closed(self, connection: Connection, reason: str, seconds: float) -> None:
        """The session is over, for this *reason*, after so many seconds."""
        told = {"event": "closed", "reason": reason, "seconds": round(seconds, 3)}
        batch = self._batch(connection, (told,))
        if not self._journal.full:
            self._submit(batch, connection)
            return
        self._late.append((batch, connection))
        if len(self._late) == 1:
            self._journal.when_room().addCallback(lambda _: self.flush())

    def flush(self) -> None:
        """Hand what waits to the journal."""
        late, self._late = self._late, []
        for batch, connection in late:
            self._submit(batch, connection)

    def _batch(self, connection: Connection, told: tuple[Told, ...]) -> Batch:
        payloads = [msgspec.json.encode(each) for each in told]
        return Batch(
            connection.origin,
            int(self._clock.seconds() * 1_000_000),
            len(payloads),
            events.session_body(payloads),
            sum(map(len, payloads)),
        )

    def _submit(self, batch: Batch, connection: Connection) -> None:
        def lost(why: Failure) -> None:
            rule = f"event of its session can not be stored: {why.getErrorMessage()}"
            connection.report(Refusal(rule))

        self._journal.submit(batch).addCallbacks(
            lambda _: connection.count(events=batch.count), lost
        )
