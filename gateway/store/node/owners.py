"""Whose files are in the spool and the archive, which several gateways may share: what a
daemon may move, remove and upload.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attrs import define

from gateway.sdk.disk import Disk
from gateway.store.directories import Directories
from gateway.store.names import parse_file_name


@define(eq=False, slots=False)
class Owners:
    """As one node's daemon sees them.  Any thread may call.

    *is_live* says of a journal's directory whether a daemon has it.
    """

    _node: str
    _directories: Directories
    _disk: Disk
    _is_live: Callable[[Path], bool] = lambda _: False
    _kept_until: int = 0
    """Up to which lsn the archive has the only copy of our files."""
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

    def is_only_copy(self, name: str) -> bool:
        """Whether what is in a file of the archive is in no table, and in no bucket."""
        parsed = parse_file_name(name)
        return (
            parsed is not None
            and parsed.node == self._node
            and parsed.first <= self._kept_until
        )

    def is_nobodys(self, node: str) -> bool:
        """Whether that node's files in the spool are ours to upload: nobody else will."""
        journal = self._directories.journal_of(node)
        return node == self._node or not (
            self._disk.exists(journal) and self._is_live(journal)
        )
