"""Two incarnations of a node, and names of files that they give."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from gateway.sdk.disk import Disk
from gateway.store.journal import recovery, segment
from gateway.store.names import parse_file_name

__all__ = ["A", "B", "examine", "rows_of", "segment_name", "settled"]

A, B = "a" * 10, "b" * 10


def segment_name(first_lsn: int, attempt: int = 0) -> str:
    """That of a segment of incarnation `A`."""
    return segment.name(first_lsn, A, attempt)


def rows_of(table: pa.Table, file: str) -> pa.Table:
    """Rows of a spool file of this name, as tables have them: with its incarnation."""
    named = parse_file_name(file)
    assert named is not None
    return table.append_column("incarnation", pa.repeat(named.incarnation, len(table)))


def examine(directory: Path, disk: Disk, **more: Any) -> recovery.Recovered:
    """What `recovery.examine` sees; `A` gave what no segment says of."""
    return recovery.examine(
        directory, disk, given_by=lambda *span: [(A, *span)], **more
    )


def settled(directory: Path, disk: Disk, **more: Any) -> recovery.Recovered:
    """The same, once the segments agree with it."""
    return examine(directory, disk, **more).settle().found
