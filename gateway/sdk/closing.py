"""How a server ends its connection: once, and with the refusal if there is one."""

from __future__ import annotations

from gateway.sdk.interfaces import Connection, Refusal

__all__ = ["Closing"]


class Closing:
    """The server of a connection, as far as its end is concerned."""

    __slots__ = ("_closed", "_connection", "_refusal")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._closed = False
        self._refusal: Refusal | None = None
        """Why it is closed once all that was taken is answered; None: as agreed."""

    def closed(self) -> None:
        self._over()

    def _over(self) -> None:
        if not self._closed:
            self._closed = True
            self._forget()

    def _forget(self) -> None:
        """Let go of all there is of the connection, which is over.  Called once."""
        raise NotImplementedError

    def _hang_up(self) -> None:
        if self._closed:
            return
        refusal = self._refusal
        self._over()
        self._refusal = None
        if refusal is None:
            self._connection.close()
        else:
            self._connection.refuse(refusal)

    def _not_stored_because(self, why: str) -> None:
        """Neither this batch nor any later one may be acknowledged: close."""
        if self._closed:
            return
        rule = f"closed, what it sent can not be stored: {why}"
        self._connection.report(Refusal(rule))
        self._hang_up()
