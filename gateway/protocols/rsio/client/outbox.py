"""Elements that are to be published, until they are known to be safe."""

from __future__ import annotations

from collections import deque
from itertools import islice

__all__ = ["Outbox"]


class Outbox:
    """Outlives connections: what was not confirmed on one is sent again on the next.

    To a gateway that knows who we are (extension 2) it is sent exactly once, else at
    least once.
    """

    def __init__(self, *, whole: bool = False) -> None:
        """*whole*: these are all the elements that we ever publish under this name,
        from an earlier life too; what the gateway has of them is not sent.

        Else they come behind whatever it has when it first says so.
        """
        self.first = 0
        """How many elements the subscriber had before ours."""
        self.resent = 0
        """How many were sent more than once."""
        self._placed = whole
        self.confirmed = 0
        """How many elements, from the first on, are safe."""
        self.sent = 0
        """How many are safe or on their way."""
        self._elements: deque[bytes] = deque()

    def __len__(self) -> int:
        """How many are not confirmed."""
        return len(self._elements)

    @property
    def unsent(self) -> int:
        """How many are not on their way."""
        return self.confirmed + len(self._elements) - self.sent

    def add(self, element: bytes) -> None:
        """Publish this as well."""
        self._elements.append(element)

    def take(self, most: int) -> list[bytes]:
        """The next elements to send, *most* at most."""
        first = self.sent - self.confirmed
        taken = list(islice(self._elements, first, first + most))
        self.sent += len(taken)
        return taken

    def confirm(self, number: int) -> None:
        """The first *number* are safe; less than is known already is no news."""
        for _ in range(
            min(number, self.confirmed + len(self._elements)) - self.confirmed
        ):
            self._elements.popleft()
            self.confirmed += 1
        self.sent = max(self.sent, self.confirmed)

    def rewind(self, offset: int | None) -> None:
        """A new stream: the subscriber has *offset* elements, or does not say.

        ValueError if it has elements that were never here, or lacks confirmed ones.
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
