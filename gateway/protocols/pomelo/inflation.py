"""A Pomelo message whose body came compressed, inflated a bit in each turn.

That shows what it comes to; it is stored as it came, and inflated once more for the spool.
No I/O, no clock.
"""

from __future__ import annotations

import math

from gateway.protocols.pomelo import events
from gateway.protocols.pomelo.handshake import KnownRoute
from gateway.protocols.pomelo.wire import Messages
from gateway.sdk.costs import inflating

MOST_GROWTH = 16
"""How much longer than a compressed body its JSON may be."""
_MOST_KEPT = 1 << 16
"""Bytes of a compressed body's JSON for a service; or `MOST_GROWTH` times the compressed body."""
_ZLIB = 1.4
"""Times as much as `turn` has for another inflater, for it is inflated twice."""
_DEFLATED_STEP = 1 << 14
_INFLATE_STEP = 1 << 16


class Inflation:
    """The state of one message that is being inflated."""

    __slots__ = ("at", "body", "inflater", "kept", "known", "most_kept", "rest", "run",
                 "size")  # fmt: skip

    def __init__(self, run: Messages, known: KnownRoute | None, body: bytes) -> None:
        self.run = run
        self.known = known
        self.body = body
        self.at = 0
        self.rest = b""
        self.inflater = events.inflater()
        self.size = 0
        """Bytes that it has inflated to so far."""
        self.kept: list[bytes] | None = None
        """The inflated bytes, if they are to be decoded."""
        self.most_kept: float = math.inf
        if known is not None and (known.request is not None or known.backed):
            self.kept = []
            if known.request is None:
                self.most_kept = max(_MOST_KEPT, MOST_GROWTH * len(body))

    def step(self) -> float:
        """Inflate some more; returns what it cost.  Raises zlib.error."""
        if not self.rest:
            self.rest = self.body[self.at : self.at + _DEFLATED_STEP]
            self.at += _DEFLATED_STEP
        given = len(self.rest)
        out = self.inflater.decompress(self.rest, _INFLATE_STEP)
        self.rest = self.inflater.unconsumed_tail
        self.size += len(out)
        if self.kept is not None:
            self.kept.append(out)
            if self.size > self.most_kept:
                self.kept = None
        return _ZLIB * inflating(given - len(self.rest), len(out))

    @property
    def failed_cost(self) -> float:
        """The cost of a step that raised."""
        return _ZLIB * inflating(len(self.rest), 0)

    @property
    def over(self) -> bool:
        """Nothing more comes out of it."""
        left = self.rest or self.at < len(self.body)
        return self.inflater.eof or not left
