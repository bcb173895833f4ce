"""Remembers up to which lsn files of the archive are in no table, as there was no job.

    state/NODE/kept     {"last": lsn}, null while it goes on; a `statefile`

With `spool.after: keep`, and no bucket, each file goes to the archive as soon as it is
published, and no table has it.  Somebody who then chooses a job, or a bucket, has files
in the archive that neither will ever see.  They stay for `spool.retention`, as was asked
for, also where the disk is short: what is in tables or in the bucket makes room.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from gateway.sdk.disk import Disk
from gateway.store.system.statefile import StateFile

NAME = "kept"


class Kept(msgspec.Struct, frozen=True):
    """How far the archive of one node has the only copy."""

    last: int | None = None
    """The greatest lsn of these; None: all that is published, until this changes."""


def kept_until(state: Path, disk: Disk, published: int, *, keeps: bool) -> int:
    """Up to which lsn that is so, at a start, after which it goes on so if it *keeps*.

    *state* is the node's, *published* the greatest lsn that is in a file.  Raises OSError.
    """
    file = StateFile(state / NAME, Kept, disk)
    found, damaged = file.read()
    if damaged is not None:
        found = Kept()  # it may have said that all is kept
    if keeps:
        if found != Kept():
            disk.make_directory(state)
            file.write(Kept())
        return published
    if found is None:
        return 0
    if found.last is None:
        file.write(Kept(published))
        return published
    return found.last
