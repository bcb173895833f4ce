"""What puts micro-batches into tables, and what the job asks of it.

    parquet    folders of Parquet files that any reader opens; the default
    commits    Delta and Iceberg: a commit of the table has a batch and the ledger
    handover   a function of the user's own

The job asks three things: `recover` before each start of the query, a call for each
batch, and `note` for events that can not be read.  Each sink knows by its ledger, which
counts events and not batches, what is in its tables already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from gateway.event import SCHEMA_VERSION, SCHEMA_VERSION_KEY
from gateway.spark.checkpoint import Checkpoint
from gateway.spark.ledger import Broken, Hole, Ledger, Ranges, SpoolFile

__all__ = [
    "Committed",
    "Plan",
    "Sink",
    "check_behind",
    "check_versions",
    "count_rows",
    "shortfall",
]


@dataclass(frozen=True)
class Committed:
    """A batch that is in the tables now."""

    batch: int
    rows: int
    """In its tables, all together."""
    files: int
    """That it took from the spool."""
    misfits: int = 0
    """Rows with a value that did not fit its column."""


@dataclass(frozen=True)
class Plan:
    """How a batch is to be written."""

    files: Sequence[SpoolFile] = ()
    """What it takes from the spool."""
    without: Ranges = field(default_factory=Ranges)
    """Events that are in the tables already."""
    resent: Ranges = field(default_factory=Ranges)
    """Events that their sender sent twice."""


class Sink(ABC):
    """Takes the batches of the query: what `foreachBatch` calls.

    After any exception the query must end, and `recover` comes before the next start.
    """

    name = "events"

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.failure: Exception | None = None
        """Why the last batch failed, as we know it (Spark wraps it in Java)."""
        self.busy = False
        """Whether a batch is on its way into the tables right now."""
        self.batch_files: list[SpoolFile] = []
        """What the last batch took, failed or not."""
        self.seconds = 0.0
        """How long the last batch took."""
        self.types: Mapping[str, str] = {}
        """Columns that the next batch has; see `Ledger.types`."""

    @abstractmethod
    def recover(self) -> None:
        """Finish what a crash has left, and get ready for the query's start.

        After this the tables are whole and `ledger` is theirs.  Raises `Broken`,
        OSError, and what Spark raises.
        """

    @abstractmethod
    def note(self, hole: Hole) -> None:
        """Write down, durably, that the events of a file will be in no table."""

    @abstractmethod
    def _take(self, rows: Any, batch: int) -> None:
        """Put a batch into the tables, or see that it is there already."""

    def __call__(self, rows: Any, batch: int) -> None:
        """Take a batch; why that failed is in `failure`, too."""
        self.busy = True
        try:
            self._take(rows, batch)
        except Exception as why:
            self.failure = why
            raise
        finally:
            self.busy = False


def shortfall(batch: int, expected: int, count: int) -> Broken:
    """Spark skips a file that is gone, and says nothing."""
    return Broken(
        f"batch {batch} of {Sink.name}: the names of its spool files promise"
        f" {expected} events, Spark made {count} rows of them. Is a file"
        " missing from the spool?"
    )


def check_behind(tables: object, checkpoint: Checkpoint, ledger: Ledger) -> None:
    """Raise `Broken` unless *ledger* has every event that Spark takes for committed."""
    batch = checkpoint.committed
    if batch < 0:
        return
    noted = {hole.file for hole in ledger.holes}
    lacking = [
        file.name
        for file in checkpoint.files(-1, checkpoint.offset(batch))
        if file.name not in noted and not ledger.committed.covers(file)
    ]
    if lacking:
        raise Broken(
            f"{tables} is older than {checkpoint.path}: it lacks {len(lacking)} files"
            f" that Spark has committed, {lacking[0]} first. If the tables were deleted"
            " or restored, remove the checkpoint too and put what is missing from"
            " archive back into spool"
        )


def count_rows(spool: Path, files: Sequence[SpoolFile]) -> int:
    """How many rows the footers of *files* promise; missing files have none.

    Raises what pyarrow raises for a file that is damaged.
    """
    there = [spool / file.name for file in files if (spool / file.name).exists()]
    return sum(int(pq.read_metadata(path).num_rows) for path in there)


def version_of(path: Path) -> int:
    """The form that a spool file says it has, the first if it says nothing.

    Raises what pyarrow raises.
    """
    return int((pq.read_metadata(path).metadata or {}).get(SCHEMA_VERSION_KEY, b"1"))


def check_versions(spool: Path, files: Sequence[SpoolFile]) -> None:
    """Raise `Broken` if files have a form that this job does not know.

    A node's first and last file are looked at: a gateway does not go to and fro.
    """
    for node in {file.node for file in files}:
        mine = sorted(
            (file for file in files if file.node == node), key=lambda file: file.first
        )
        for file in dict.fromkeys([mine[0], mine[-1]]):
            version = version_of(spool / file.name)
            if version > SCHEMA_VERSION:
                raise Broken(
                    f"{file.name} has form {version}, this job knows {SCHEMA_VERSION}:"
                    " a newer gateway wrote it. Install the same version here"
                )
