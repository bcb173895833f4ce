"""Another gateway of the lobby, by the address of its admin port, and calls to it.

Calls are bounded in time, in number, and in bytes that wait.  One whose connection ends
without an answer is made once more: who gets it twice does it once (`taken`).  A gateway
that has not answered in time is asked nothing for a while: calls to it fail at once meanwhile.
"""

from __future__ import annotations

from typing import Any

import msgspec
from attrs import define
from twisted.logger import Logger

from gateway.protocols.pomelo.lobby.call import Done
from gateway.protocols.pomelo.text import reason_in
from gateway.sdk.http_client import Backend, Reply, Unreachable

MOST_CALL_BYTES = 1 << 20
"""Bytes of one call: the admin port takes no more."""
_MOST_WAITING_BYTES = 16 << 20
"""Bytes of all calls to one gateway that have no answer yet."""
_HINTS = {
    401: "options.lobby.token must be its admin.token",
    404: "it has no pomelo listener, or is too old",
}
_SILENT_TIMES = 2
"""The times `options.lobby.timeout` for which one that has not answered is left alone."""


@define(eq=False, slots=False)
class Neighbour:
    """One of the others.  A call takes *seconds* at most, waiting included."""

    _log = Logger()

    address: str
    _backend: Backend
    _reactor: Any
    _seconds: float

    def __attrs_post_init__(self) -> None:
        self._alone_until = float("-inf")
        self._waiting_bytes = 0
        self._useless = ""
        """Why its last answer was of no use; empty: it was, or there was none."""
        self.itself = False
        """Whether it is this very gateway: all of a lobby may have the same list."""

    @property
    def trouble(self) -> str | None:
        """The reason why it does not answer, or not usefully, if so."""
        useless = f"{self.address} {self._useless} (options.lobby)"
        return self._backend.trouble or (useless if self._useless else None)

    async def ask(self, call: bytes) -> Done:
        """Have it do this.  Raises `Unreachable`, which says why it may not have."""
        now, size = self._reactor.seconds(), len(call)
        if now < self._alone_until:
            left = self._alone_until - now
            raise Unreachable(f"did not answer in time; is asked again in {left:.0f} s")
        if size > MOST_CALL_BYTES:
            raise Unreachable(
                f"is not asked: the call has {size} bytes, limit {MOST_CALL_BYTES}"
            )
        if self._waiting_bytes and self._waiting_bytes + size > _MOST_WAITING_BYTES:
            raise Unreachable(
                f"is not asked: {self._waiting_bytes} bytes of calls wait for it, "
                f"limit {_MOST_WAITING_BYTES}"
            )
        self._waiting_bytes += size
        try:
            reply = await self._backend.post(msgspec.Raw(call))
        except Unreachable:
            after = self._reactor.seconds()
            if after - now >= self._seconds:
                self._alone_until = after + _SILENT_TIMES * self._seconds
            raise
        finally:
            self._waiting_bytes -= size
        try:
            done = _read(reply)
        except Unreachable as why:
            if not self._useless:
                self._log.error("{at} {why}", at=self.address, why=str(why))
            self._useless = str(why)
            raise
        self._useless = ""
        return done

    def close(self) -> None:
        self._backend.close()


def _read(reply: Reply) -> Done:
    if reply.code != 200:
        why = reason_in(reply.body, "error", "and does not say why")
        raise Unreachable(f"answers {reply.code}: {_HINTS.get(reply.code, why)}")
    done: Done = reply.json(Done)
    return done
