"""Remembers up to which lsn files of the archive are in no table, as there was no job.

    state/NODE/kept     {"last": lsn}, null while it goes on; as `gateway.sdk.summed`

With `spool.after: keep`, and no bucket, each file goes to the archive as soon as it is
published, and no table has it.  Somebody who then chooses a job, or a bucket, has files
in the archive that neither will ever see.  They stay for `spool.retention`, as was asked
for, also where the disk is short: what is in tables or in the bucket makes room.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from gateway.sdk import summed
from gateway.store.disk import Disk, replace_file

__all__ = ["NAME", "Kept", "kept_until"]

NAME = "kept"


class Kept(msgspec.Struct, frozen=True):
    """How far the archive of one node has the only copy."""

    last: int | None = None
    """The greatest lsn of these; None: all that is published, until this changes."""


def kept_until(state: Path, disk: Disk, published: int, *, keeps: bool) -> int:
    """Up to which lsn that is so, at a start, after which it goes on so if it *keeps*.

    *state* is the node's, *published* the greatest lsn that is in a file.  Raises OSError.
    """
    path = state / NAME
    found = None
    if disk.exists(path):
        # One that is damaged may have said that all is kept.
        found = summed.decode(disk.read(path)[:-1], Kept) or Kept()
    if keeps:
        if found != Kept():
            _write(disk, path, Kept())
        return published
    if found is None:
        return 0
    if found.last is None:
        found = Kept(published)
        _write(disk, path, found)
    assert found.last is not None
    return found.last


def _write(disk: Disk, path: Path, kept: Kept) -> None:
    disk.make_directory(path.parent)
    replace_file(disk, path, [summed.encode(kept)]).close()
