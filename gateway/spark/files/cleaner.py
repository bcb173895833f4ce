"""Takes spool files out of the spool once they have been committed, and only then.

A file may go when the checkpoint has committed the batch with it and the ledger says
its events are in the tables.  Spark's own `cleanSource` is a batch late, and forgets
files when it is killed in between.
Few files left also keeps Spark fast: it lists the spool for every batch.

Spark takes each path once.  A copy of a node may publish other events under a name that Spark
has taken before: it is done, says the checkpoint.  Such are `overlooked` until the query
begins anew, and then compared (`overlaps`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attrs import define

from gateway.sdk.disk import Disk
from gateway.spark.run.checkpoint import Checkpoint
from gateway.store.digests import are_same
from gateway.store.hub.archiving import to_archive
from gateway.store.names import SpoolFile, parse_file_name


@dataclass
class _Progress:
    """How far the query is, as far as it concerns files that are still there."""

    checkpoint: Checkpoint
    batch: int = -1
    entry: int = -1
    done: dict[str, SpoolFile] = field(default_factory=dict)
    """All that it has taken."""

    def follow(self) -> None:
        """Read what Spark has committed since the last time."""
        batch = self.checkpoint.committed
        if batch <= self.batch:
            return
        entry = self.checkpoint.offset(batch)
        new = self.checkpoint.files(self.entry, entry)
        self.done |= {file.name: file for file in new}
        # No power cut may undo this once a file is gone.  What is older than the last
        # ten was synced then, or is in their one compact log.
        self.checkpoint.sync(
            range(max(self.batch + 1, batch - 9), batch + 1),
            range(max(self.entry + 1, entry - 9), entry + 1),
        )
        self.batch, self.entry = batch, entry


@define(eq=False, slots=False)
class Cleaner:
    """The cleaner of one spool directory and the query that reads it; one thread uses it.

    *in_tables* says of a file whether all its events are in the tables.  Files go to
    *archive*, of which *before* is told, or nowhere if it is None.  *doubtful* says of one
    that it is not known to be what the tables have.
    """

    _spool: Path
    _archive: Path | None
    _checkpoint: Checkpoint
    _in_tables: Callable[[SpoolFile], bool]
    _disk: Disk
    _before: Callable[[Sequence[SpoolFile]], None] = lambda _: None
    _doubtful: Callable[[SpoolFile], bool] = lambda _: False

    def __attrs_post_init__(self) -> None:
        self._query = _Progress(self._checkpoint)
        self.overlooked: list[str] = []
        """Files that Spark takes for done, and are in no table; of the last run."""
        self._there: dict[str, SpoolFile | None] = {}
        """The spool's files at the last look: of 600,000 names, a week's, few are new."""
        if self._archive is not None:
            self._disk.make_directory(self._archive)

    def run(self) -> list[str]:
        """Take out what may go; its names.  Raises `Broken`, OSError."""
        query = self._query
        query.follow()
        resident = self.resident()
        done = [file for name, file in query.done.items() if name in resident]
        goes: list[SpoolFile] = []
        self.overlooked = []
        for file in done:
            if self._in_tables(file) and not self._is_another(file):
                goes.append(file)
            else:
                self.overlooked.append(file.name)
        if goes and self._archive is not None:
            self._before(goes)
        for file in goes:
            self._take_out(file.name)
        if goes:
            if self._archive is not None:
                self._disk.sync_directory(self._archive)
            self._disk.sync_directory(self._spool)
        return [file.name for file in goes]

    def _is_another(self, file: SpoolFile) -> bool:
        """Whether it may have other events than the one of its name that the tables have."""
        if self._doubtful(file):
            return True
        there = None if self._archive is None else self._archive / file.name
        if there is None or not self._disk.exists(there):
            return False
        return are_same(there, self._spool / file.name) is False

    def waiting(self) -> list[SpoolFile]:
        """The files in the spool that Spark is not done with."""
        self._query.follow()
        done = self._query.done.keys() - set(self.overlooked)
        return [file for name, file in self.resident().items() if name not in done]

    def resident(self) -> dict[str, SpoolFile]:
        before = self._there
        self._there = {
            name: before[name] if name in before else parse_file_name(name)
            for name in self._disk.names(self._spool)
        }
        return {name: file for name, file in self._there.items() if file is not None}

    def _take_out(self, name: str) -> None:
        if self._archive is None:
            self._disk.unlink(self._spool / name)
        else:
            to_archive(self._spool / name, self._archive, self._disk)
