"""Whether all of a node's files were published by one journal, in one life of it after the
other (`gateway.store.incarnation`).

Two directories with one node's name give the same lsns to different events.  Where their
files meet they show themselves: a journal knows itself and those before it, and nobody
else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.audit.lake import Problem
from gateway.store import digests, incarnation
from gateway.store.finder import SpoolFile

__all__ = ["Incarnations"]

_NEWEST = 64


@dataclass(slots=True)
class Incarnations:
    """Those of all nodes.  Reads each file's footer once."""

    journal: Path
    """With a directory for each node."""
    _known: dict[str, str] = field(default_factory=dict)

    def problems(self, node: str, files: Iterable[SpoolFile]) -> list[Problem]:
        """Of a node's newest files, in order of lsn: those that another journal published.

        Raises PermissionError.
        """
        path = self.journal / node / incarnation.INCARNATION[0]
        this = None
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            this = incarnation.decode(path.read_bytes())
        found: list[Problem] = []
        first: str | None = None
        for file in list(files)[-_NEWEST:]:
            other = self._of(file)
            if not other:
                continue
            first = first or other
            if this is not None and not this.knows(other):
                known = f"{this.id} here, which began at lsn {this.since}"
            elif this is None and other != first:
                known = f"{first}, which other files have"
            else:
                continue
            why = (
                f"two incarnations of node {node}: {other} published it, of which nothing "
                f"is known to {known}"
            )
            found.append(Problem(str(file.path), why))
        return found

    def _of(self, file: SpoolFile) -> str:
        name = file.path.name
        if name not in self._known:
            try:  # of one that is gone, or damaged, others tell
                metadata = digests.metadata_of(file.path)
            except FileNotFoundError:
                return ""
            self._known[name] = digests.said(metadata, incarnation.KEY) or ""
        return self._known[name]
