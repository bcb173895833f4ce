"""How a micro-batch becomes files of a table, once: two phases on a file system.

Spark runs a batch again after a crash, and its own Parquet sink leaves half-written
and doubled files that only Spark knows to skip.  Here a file under lake/<table>/ is
whole and counted from the moment it has its name, for any reader:

    lake/.gateway/staging/<query>/<batch>/data/…    Spark writes here; nobody reads it
    lake/.gateway/staging/<query>/<batch>/manifest  which file gets which name: once
                                                    this is there the batch *will* be
    lake/<table>/protocol=…/date=…/part-…           one rename each
    lake/.gateway/<query>.json                      the ledger: the batch is done
    (staging/<query>/<batch> goes)

A crash before the manifest leaves only staging, which is wiped, and Spark runs the
batch again.  A crash after it leaves names to be given, which `recover` does before
Spark starts.  Names say query and batch, so giving one twice changes nothing.
Everything is synced before what rests on it.

What it does not hide: while the renames of one batch are under way a reader may see
some of its files and not yet the others.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow.parquet as pq

from gateway.spark.checkpoint import Checkpoint
from gateway.spark.ledger import Broken, Ledger, Ranges, replace
from gateway.store.disk import Disk, RealDisk

__all__ = ["Committed", "Lake", "LakeDisk", "Sink"]


class LakeDisk(Disk, Protocol):
    """A `Disk` with folders that others fill."""

    def tree(self, path: Path) -> list[Path]:
        """Every file below *path*, sorted; nothing if it is not there."""

    def remove_tree(self, path: Path) -> None:
        """*path* and all below it; one that is gone already is fine."""


class Lake(RealDisk):
    """The operating system's `LakeDisk`."""

    def tree(self, path: Path) -> list[Path]:
        """See `LakeDisk`."""
        return sorted(
            Path(folder) / name for folder, _, names in os.walk(path) for name in names
        )

    def remove_tree(self, path: Path) -> None:
        """See `LakeDisk`."""
        if path.exists():
            shutil.rmtree(path)


@dataclass(frozen=True)
class Committed:
    """A batch that is in the tables now."""

    query: str
    batch: int
    rows: int
    """In its tables, all together."""
    files: int
    """That it took from the spool."""


class Sink:
    """Takes the batches of one query: what `foreachBatch` calls.

    After any exception the process must end: `recover` belongs to the next start.
    """

    def __init__(
        self,
        name: str,
        lake: Path,
        checkpoint: Checkpoint,
        disk: LakeDisk,
        *,
        write: Callable[[Any, Path], None],
        drain: Callable[[Any], None] = lambda rows: None,
        every_row: bool,
        done: Callable[[Committed], None] = lambda committed: None,
    ) -> None:
        """A sink called *name*.

        *write* puts a batch into a folder as table=…/protocol=…/date=…/*.parquet;
        *drain* runs a batch that is already in the tables, for what the query
        remembers; *every_row* says that a batch has a row for each event it took.
        """
        self.name = name
        self.ledger = Ledger()
        self.failure: Exception | None = None
        """Why the last batch failed, as we know it (Spark wraps it in Java)."""
        self.busy = False
        """Whether a batch is on its way into the tables right now."""
        self._lake = lake
        self._path = lake / ".gateway" / f"{name}.json"
        self._staging = lake / ".gateway" / "staging" / name
        self._checkpoint = checkpoint
        self._disk = disk
        self._write = write
        self._drain = drain
        self._every_row = every_row
        self._done = done

    def recover(self) -> None:
        """Finish what a crash has left, and get ready for the query's start.

        After this the tables are whole.  Raises `Broken`, OSError.
        """
        self._disk.make_directory(self._staging)
        self.ledger = Ledger.load(self._disk, self._path)
        for name in self._disk.names(self._staging):
            manifest = self._staging / name / "manifest"
            if self._disk.exists(manifest):
                self._publish(json.loads(self._disk.read(manifest)))
            self._disk.remove_tree(self._staging / name)
        self.ledger = self.ledger.adopted_by(self._checkpoint.query)

    def __call__(self, rows: Any, batch: int) -> None:
        """Put a batch into the tables, or see that it is there already."""
        self.busy = True
        try:
            self._take(rows, batch)
        except Exception as why:
            self.failure = why
            raise
        finally:
            self.busy = False

    def _take(self, rows: Any, batch: int) -> None:
        if self.ledger.query is None:
            self.ledger = self.ledger.adopted_by(self._checkpoint.query)
        files = self._checkpoint.batch_files(batch)
        took = Ranges.of(files)
        if batch <= self.ledger.batch:
            self._check_repeated(batch, took)
            self._drain(rows)
            return
        staged = self._staging / str(batch)
        self._disk.remove_tree(staged)
        self._disk.make_directory(staged)
        self._write(rows, staged / "data")
        moves, count = self._collect(batch, staged)
        self._check_complete(batch, took, count)
        # Which files this batch is must survive whatever the manifest survives.
        first, last = (self._checkpoint.offset(n) for n in (batch - 1, batch))
        self._checkpoint.sync(range(batch, batch + 1), range(first + 1, last + 1))
        manifest = {
            "query": self.ledger.query,
            "batch": batch,
            "took": took.plain(),
            "moves": moves,
        }
        replace(self._disk, staged / "manifest", manifest)
        self._publish(manifest)
        self._disk.remove_tree(staged)
        self._done(Committed(self.name, batch, count, len(files)))

    def _collect(self, batch: int, staged: Path) -> tuple[list[tuple[str, str]], int]:
        """Durably, the files that have rows: (number, goal) of each; rows of all."""
        moves: list[tuple[str, str]] = []
        count = 0
        data = staged / "data"
        for path in self._disk.tree(data):
            inside = path.relative_to(data).parts
            hidden = any(part.startswith((".", "_")) for part in inside)
            if hidden or not self._disk.size(path):
                continue
            rows = pq.read_metadata(path).num_rows
            if not rows:
                continue
            count += rows
            self._sync(path)
            table, *partition = inside[:-1]
            name = (
                f"part-{str(self.ledger.query)[:8]}-{batch:010d}-{len(moves)}.parquet"
            )
            goal = Path(table.removeprefix("table="), *partition, name)
            # Flat, so that one folder is to sync and not a whole tree.
            self._disk.rename(path, staged / str(len(moves)))
            moves.append((str(len(moves)), str(goal)))
        self._disk.sync_directory(staged)
        return moves, count

    def _sync(self, path: Path) -> None:
        file = self._disk.open(path)
        try:
            file.sync()
        finally:
            file.close()

    def _publish(self, manifest: dict[str, Any]) -> None:
        """Give the files their names and write it down; may be done again."""
        if manifest["query"] == self.ledger.query:
            if manifest["batch"] <= self.ledger.batch:
                return
        else:
            self.ledger = self.ledger.adopted_by(manifest["query"])
        folders = set()
        staged = self._staging / str(manifest["batch"])
        for number, goal in manifest["moves"]:
            source, target = staged / number, self._lake / goal
            if target.parent not in folders:
                self._disk.make_directory(target.parent)
                folders.add(target.parent)
            if self._disk.exists(source):
                self._disk.rename(source, target)
            elif not self._disk.exists(target):
                raise Broken(
                    f"{target}: neither there nor in staging; someone else writes"
                    f" to {self._lake}"
                )
        for folder in sorted(folders):
            self._disk.sync_directory(folder)
        self.ledger = self.ledger.after(manifest["batch"], Ranges(manifest["took"]))
        self.ledger.save(self._disk, self._path)

    def _check_repeated(self, batch: int, took: Ranges) -> None:
        """Spark repeats its last batch and no other, with the same files."""
        if batch != self.ledger.batch or took != self.ledger.latest:
            raise Broken(
                f"{self._checkpoint.path} is older than the tables: it is at batch"
                f" {batch}, they have {self.ledger.batch}. Remove it; nothing will"
                " be doubled"
            )

    def _check_complete(self, batch: int, took: Ranges, count: int) -> None:
        """Spark skips a file that is gone, and says nothing."""
        expected = len(took) - took.overlap(self.ledger.earlier)
        if self._every_row and count != expected:
            raise Broken(
                f"batch {batch} of {self.name}: the names of its spool files promise"
                f" {expected} events, Spark made {count} rows of them. Is a file"
                " missing from the spool?"
            )
