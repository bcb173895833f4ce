"""Elements to publish, kept until the subscriber confirms that it has them safe."""

from __future__ import annotations

from collections import deque
from itertools import islice

__all__ = ["Outbox"]


class Outbox:
    """Outlives connections: what was not confirmed on one is sent again on the next.

    A gateway that knows our name (extension 2) stores each element exactly once, any
    other subscriber gets it at least once.
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
        self._placed = whole
        self.confirmed = 0
        """How many elements are safe."""
        self.sent = 0
        """How many elements are safe or on their way."""
        self._elements: deque[bytes] = deque()

    def __len__(self) -> int:
        """How many elements are not confirmed."""
        return len(self._elements)

    @property
    def unsent(self) -> int:
        """How many elements were not sent yet."""
        return self.confirmed + len(self._elements) - self.sent

    def add(self, element: bytes) -> None:
        """Append an element."""
        self._elements.append(element)

    def take(self, most: int) -> list[bytes]:
        """The next elements to send, *most* at most."""
        first = self.sent - self.confirmed
        taken = list(islice(self._elements, first, first + most))
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

    def rewind(self, offset: int | None) -> None:
        """A new stream begins: the subscriber has *offset* elements, None if unknown.

        ValueError if it claims elements that were never here, or lacks confirmed ones.
        """
        sent = self.sent
        if offset is not None:
            if not self._placed:
                self._placed, self.first = True, offset - self.confirmed
            offset -= self.first
            if not self.confirmed <= offset <= self.confirmed + len(self._elements):
                raise ValueError(
                    f"asked to go on behind {offset} elements, "
                    f"{self.confirmed} to {self.confirmed + len(self)} are possible"
                )
            self.confirm(offset)
        self.sent = self.confirmed
        self.resent += max(0, sent - self.sent)
