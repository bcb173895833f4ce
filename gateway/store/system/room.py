"""Room on the disk that is spoken for: what has to be written, come what may.

The journal takes nothing of it.  With its last byte taken by segments, a disk would have no
room for the files that they must become, and nothing would ever free it.
"""

from __future__ import annotations

from dataclasses import dataclass

SPARE_BYTES = 4 * 2**20


@dataclass(eq=False, slots=True)
class Room:
    """The room of one node.  Each part keeps its own number, and any thread may read them."""

    spare_bytes: int = 0
    """Bytes for all that is not counted."""
    files_bytes: int = 0
    """Bytes of the files that sealed segments will become, at most about: the spool's."""
    state_bytes: int = 0
    """Bytes of the next state files, beside the old: the checkpoint's."""
    wanted_bytes: int = 0
    """Bytes that the group that waits did not find beside all that; 0: it did.  The log's."""

    @property
    def reserved_bytes(self) -> int:
        """All that the journal leaves free."""
        return self.files_bytes + self.state_bytes + self.spare_bytes
