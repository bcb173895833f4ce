"""Two incarnations of a node, and names of files that they give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.sdk.disk import Disk
from gateway.store.journal import recovery, segment

__all__ = ["A", "B", "examine", "segment_name"]

A, B = "a" * 10, "b" * 10


def segment_name(first_lsn: int, attempt: int = 0) -> str:
    """That of a segment of incarnation `A`."""
    return segment.name(first_lsn, A, attempt)


def examine(directory: Path, disk: Disk, **more: Any) -> recovery.Recovered:
    """What `recovery.examine` sees; `A` gave what no segment says of."""
    return recovery.examine(directory, disk, given_by=lambda lsn: A, **more)
