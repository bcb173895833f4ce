"""What a transaction or a large event holds in memory until it is merged."""

from __future__ import annotations

from gateway.protocols.pravega.framing import Framing

__all__ = ["Staged"]


class Staged:
    """The bytes of one staged segment, in one piece however small their appends."""

    __slots__ = ("_framing", "data")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray()
        """Only ever grows; nobody may hold a view of it."""
        self._framing = Framing()
        self.add(data)

    @property
    def rows(self) -> int:
        """How many rows it becomes."""
        return self._framing.rows

    def add(self, data: bytes) -> None:
        """An append."""
        self._framing.feed(data)
        self.data += data

    def read(self, offset: int, size: int) -> bytes:
        """At most *size* bytes from *offset* on."""
        with memoryview(self.data) as view:
            return bytes(view[offset : offset + size])
