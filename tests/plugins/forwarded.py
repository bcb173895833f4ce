"""Files that an edge has, and forwards."""

from __future__ import annotations

import hashlib

from gateway.event import Rows
from gateway.sdk.forwarding import File
from gateway.store.names import file_name
from incarnations import A
from spools import spool_file

__all__ = ["Sent"]


class Sent:
    """One of them, with its bytes."""

    def __init__(
        self,
        first: int,
        count: int = 3,
        *,
        by: str = A,
        node: str = "edge",
        text: str = "event",
    ) -> None:
        payloads = [f"{text} {first + at}".encode() for at in range(count)]
        self.data = spool_file(node, first, [Rows(payloads)], incarnation=by)
        self.name = file_name(node, by, first, first + count - 1)
        digest = hashlib.sha256(self.data).hexdigest()
        self.file = File(self.name, by, len(self.data), digest)

    def at(self, at: int) -> File:
        """The announcement that goes on there."""
        file = self.file
        return File(file.name, file.incarnation, file.bytes, file.sha256, at)
