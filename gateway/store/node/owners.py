"""The files of spool and archive that a daemon may move, remove and upload, where several
gateways share these directories.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attrs import define

from gateway.sdk.disk import Disk
from gateway.store.directories import Directories
from gateway.store.names import SpoolFile
from gateway.store.node.catalog import Catalog, Line


class Kept(Line, frozen=True, tag="only-copy"):
    """How far the archive has the only copy of a node's files, as there was no job.

    With `spool.after: keep`, and no bucket, each file goes to the archive as soon as it is
    published, and no table has it.  A job or a bucket that is chosen later never sees those
    files.  They stay for `spool.retention`, also where the disk is short: other files, which
    are in tables or in the bucket, make room.
    """

    last: int | None = None
    """The greatest lsn of these; None: all that is published, until this changes."""


def kept_until(catalog: Catalog, published: int, *, keeps: bool) -> int:
    """The last lsn of which the archive has the only copy, at a start that goes on so if it
    *keeps*.

    *published* is the greatest lsn that is in a file.  Raises OSError.
    """
    known = catalog.newest(Kept)
    # A damaged line may have said that all is kept.
    now = Kept() if keeps or catalog.damaged(Kept) else known
    if now is not None and now.last is None and not keeps:
        now = Kept(published)
    if now is not None and now != known:
        catalog.put(now)
    return published if keeps else now.last or 0 if now else 0


@define(eq=False, slots=False)
class Owners:
    """The files as one node's daemon sees them.  Any thread may call.

    *is_live* says of a journal's directory whether a daemon has it.
    """

    _node: str
    _directories: Directories
    _disk: Disk
    _is_live: Callable[[Path], bool] = lambda _: False
    _kept_until: int = 0
    """The last lsn of our files of which the archive has the only copy."""
    _arrives: Callable[[str], bool] = lambda _: False
    """Says of a node whether its files are brought here."""

    def is_ours(self, node: str) -> bool:
        """Whether this daemon removes that node's files: each knows only what its own
        readers need.

        A node that ran here once has left its journal; one that runs has locked it.  One
        whose files arrive here has none.
        """
        if node == self._node:
            return True
        journal = self._directories.journal_of(node)
        try:
            if self._arrives(node):
                return True
            return self._disk.exists(journal) and not self._is_live(journal)
        except OSError:
            return False

    def is_only_copy(self, file: SpoolFile) -> bool:
        """Whether what is in a file of the archive is in no table, and in no bucket."""
        return file.node == self._node and file.first <= self._kept_until

    def is_nobodys(self, node: str) -> bool:
        """Whether that node's files in the spool are ours to upload, as no other daemon will."""
        journal = self._directories.journal_of(node)
        return node == self._node or not (
            self._disk.exists(journal) and self._is_live(journal)
        )
