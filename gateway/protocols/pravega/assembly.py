"""Puts the large body of a merge together, some megabytes in each turn.

A transaction may have hundreds of megabytes.  To copy them at once would hold the event
loop for as long as that takes.
"""

from __future__ import annotations

from io import BytesIO

from gateway.protocols.pravega.segments import Change

STEP_BYTES = 1 << 22
"""Bytes that are copied in one step: some 2 ms."""


class Assembly:
    """The body that is being put together."""

    __slots__ = ("_at", "_body", "_piece")

    def __init__(self) -> None:
        self._body = BytesIO()
        self._piece = self._at = 0
        """The piece that comes next, and where in it."""

    def put_together(self, change: Change) -> bool:
        """Go on with the pieces of *change*; true: it has its body now, and none left."""
        left = STEP_BYTES
        while self._piece < len(change.pieces):
            piece = memoryview(change.pieces[self._piece])[self._at : self._at + left]
            self._body.write(piece)
            left -= len(piece)
            self._at += len(piece)
            if self._at < len(change.pieces[self._piece]):
                return False
            self._piece, self._at = self._piece + 1, 0
        if change.pieces:
            change.body, change.pieces = self._body.getvalue(), ()
            self._body, self._piece = BytesIO(), 0
        return True
