"""Elements to publish, kept until the subscriber confirms that it has them safe."""

from __future__ import annotations

import os
from collections import deque
from itertools import accumulate, islice

_INSTANCE_BYTES = 8


class Outbox:
    """Outlives connections: what was not confirmed on one is sent again on the next.

    A gateway that knows our name (extension 2) stores each element exactly once, any
    other subscriber gets it at least once.

    An outbox is one instance of a sender: a gateway that knows extension 7 tells it from
    others with the same name, and the one that began last may publish.
    """

    def __init__(self, *, whole: bool = False) -> None:
        """*whole*: it is given every element ever published under this name, those of
        earlier runs of the program too; what the gateway has already is not sent.

        Otherwise its elements follow those that the gateway has of this name.
        """
        self.first = 0
        """How many elements of this name the subscriber had before the first of these."""
        self.resent = 0
        """How many elements were sent more than once."""
        self.instance = os.urandom(_INSTANCE_BYTES)
        """The instance of this process; empty once a gateway that does not ask for it placed us."""
        self.resumed = False
        """A gateway that was told of the instance has asked us to go on."""
        self._whole = self._placed = whole
        self.confirmed = 0
        """How many elements are safe."""
        self.sent = 0
        """How many elements are safe or on their way."""
        self._reached = 0
        """How many were sent on earlier streams."""
        self._elements: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._elements)

    @property
    def unsent(self) -> int:
        return self.confirmed + len(self._elements) - self.sent

    @property
    def largest(self) -> int:
        return max(map(len, self._elements), default=0)

    def add(self, element: bytes) -> None:
        self._elements.append(element)

    def take(self, most: int, octets: int | None = None) -> list[bytes]:
        """The next elements to send: *most* at most, and no further one once they have
        so many *octets*.
        """
        first = self.sent - self.confirmed
        taken = list(islice(self._elements, first, first + most))
        if octets is not None:
            sizes = accumulate(map(len, taken))
            enough = next(
                (n for n, size in enumerate(sizes, 1) if size >= octets), most
            )
            del taken[enough:]
        self.sent += len(taken)
        return taken

    def confirm(self, number: int) -> None:
        """The first *number* elements are safe; a smaller number than before is ignored."""
        for _ in range(
            min(number, self.confirmed + len(self._elements)) - self.confirmed
        ):
            self._elements.popleft()
            self.confirmed += 1
        self.sent = max(self.sent, self.confirmed)

    def rewind(self, offset: int | None, *, announced: bool = False) -> None:
        """A new stream begins: the subscriber has *offset* elements, None if unknown.

        *announced*: it was told the instance.  ValueError if it claims elements that
        were never sent, which are another sender's, or lacks confirmed ones.
        """
        sent = self.sent
        if offset is not None:
            if not self._placed:
                self._placed, self.first = True, offset - self.confirmed
            offset -= self.first
            self._check(offset)
            self.confirm(offset)
            self._whole = False
            self.resumed = announced and bool(self.instance)
            if not announced:
                self.instance = b""
        self.sent = self.confirmed
        self._reached = max(self._reached, sent)
        self.resent += max(0, sent - self.sent)

    def _check(self, offset: int) -> None:
        # Of all elements ever published, earlier instances may have sent any.
        reached = self.confirmed + len(self) if self._whole else self.reached
        if not self.confirmed <= offset <= reached:
            why = "another sender has this name"
            if offset < self.confirmed:
                why = "this gateway has forgotten the name, or is not the one before"
            raise ValueError(
                f"asked to go on behind {offset} elements, "
                f"{self.confirmed} to {reached} are possible: {why}"
            )

    @property
    def reached(self) -> int:
        """How many were ever sent, or are safe."""
        return max(self._reached, self.sent)
