"""Batches for a function of the user's own: `spark.sink: module:function`.

    def function(batch: DataFrame, context: Context) -> None

It is called once for each batch and returns when the rows are where they belong.  Before
the call, durably, `lake/.gateway/handover.json` says which files the batch is; after it,
the ledger says that it is done, and it is never handed over again.  What was handed over
and is not in the ledger comes again at the next start, before anything else: the same
rows under the same number, whatever became of the checkpoint, and `repeated` is true.

So each event is handed over at least once, and a function that writes the rows of a
number in one step, and does nothing where it has that number, has each exactly once.
"""

from __future__ import annotations

import importlib
import inspect
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attrs import define

from gateway.spark.checkpoint import Checkpoint
from gateway.spark.lakedisk import LakeDisk
from gateway.spark.ledger import Broken, Hole, Ledger, Ranges, SpoolFile, write_json
from gateway.spark.sink import (
    Committed,
    Plan,
    Sink,
    check_behind,
    count_rows,
    shortfall,
)
from gateway.store.lake import INTERNAL

__all__ = ["Context", "HandOver", "HandOverFailed", "function_of"]


class HandOverFailed(Exception):
    """The user's function has raised; says what."""


@dataclass(frozen=True)
class Context:
    """What a user's function is told of the batch that it gets."""

    batch: int
    """Its number: 1, 2, …; it never names other rows, in the tables of one data_dir."""
    repeated: bool
    """Whether it was handed over before, and the ledger does not know how that ended.

    False: certainly for the first time.  What the ledger knows to be committed is not
    handed over at all.
    """
    events: dict[str, list[tuple[int, int]]]
    """The lsns in it, by node, as intervals with both ends."""
    rows: int
    """How many rows the batch has: all events of these intervals."""


def function_of(name: str) -> Callable[[Any, Context], None]:
    """The function called *name*, `module:function`.

    Raises `Broken` if there is none that takes a batch and a context.
    """
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as why:  # a module may raise anything as it is imported
        raise Broken(f"spark.sink: {name}: {type(why).__name__}: {why}") from why
    if not callable(found):
        raise Broken(f"spark.sink: {name} is no function but {type(found).__name__}")
    try:
        inspect.signature(found).bind(None, None)
    except TypeError as why:
        raise Broken(
            f"spark.sink: {name} can not be called with (batch, context): {why}"
        ) from None
    except ValueError:  # one that C made tells nothing of itself
        pass
    return found  # type: ignore[no-any-return]


@define(eq=False, slots=False)
class HandOver(Sink):
    """Gives each batch to *function*.

    *read* makes the rows of spool files, without some events; *point* is called at each
    step, by name.
    """

    _lake: Path
    _spool: Path
    _checkpoint: Checkpoint
    _disk: LakeDisk
    _read: Callable[[Plan], Any]
    _function: Callable[[Any, Context], None]
    _done: Callable[[Committed], None] = lambda committed: None
    _point: Callable[[str], None] = lambda name: None

    def __attrs_post_init__(self) -> None:
        super().__init__()
        self._path = self._lake / INTERNAL / f"{self.name}.json"
        self._intent = self._lake / INTERNAL / "handover.json"

    def recover(self) -> None:
        """See `Sink`; raises what the user's function raises, too."""
        self._disk.make_directory(self._path.parent)
        self.ledger = Ledger.load(self._disk, self._path)
        self.failure = None
        if self._disk.exists(self._intent):
            told = json.loads(self._disk.read(self._intent))
            # One that is in the ledger was done; only the file stayed.
            if told["sequence"] == self.ledger.sequence + 1:
                self._again(told)
            self._disk.unlink(self._intent)
        check_behind(self._lake, self._checkpoint, self.ledger)

    def note(self, hole: Hole) -> None:
        """See `Sink`."""
        self.ledger = self.ledger.with_hole(hole)
        self.ledger.save(self._disk, self._path)

    def _again(self, told: dict[str, Any]) -> None:
        aside = {hole.file for hole in self.ledger.holes}
        files = [
            file
            for name in told["files"]
            if name not in aside and (file := SpoolFile.parse(name)) is not None
        ]
        if files:
            self.batch_files = files
            self.types = told["types"]
            plan = Plan(files, without=Ranges(told["without"]))
            self._hand(plan, told["query"], told["batch"], repeated=True)
        else:  # all are aside: the number may be in the user's tables, and is used up
            self.ledger = replace(self.ledger, sequence=told["sequence"])
            self.ledger.save(self._disk, self._path)

    def _take(self, rows: Any, batch: int) -> None:
        begun = time.monotonic()
        files = self.batch_files = self._checkpoint.batch_files(batch)
        took = Ranges.of(files)
        without = took.common(self.ledger.committed)
        count = 0
        if took != without:
            query = self._checkpoint.query
            plan = Plan(files, without)
            intent = {
                "sequence": self.ledger.sequence + 1,
                "query": query,
                "batch": batch,
                "files": [file.name for file in files],
                "without": without.plain(),
                "types": {**self.ledger.types, **self.types},
            }
            write_json(self._disk, self._intent, intent)
            self._point("intended")
            count = self._hand(plan, query, batch, repeated=False)
            self._disk.unlink(self._intent)
        self.seconds = time.monotonic() - begun
        self._done(Committed(batch, count, len(files)))

    def _hand(
        self, plan: Plan, query: str | None, batch: int, *, repeated: bool
    ) -> int:
        took = Ranges.of(plan.files)
        events = took.minus(plan.without)
        self._check_complete(batch, plan.files, len(took))
        context = Context(
            self.ledger.sequence + 1, repeated, events.plain(), len(events)
        )
        rows = self._read(plan)
        try:
            self._function(rows, context)
        except Exception as why:
            raise HandOverFailed(
                f"{self._function.__module__}:{self._function.__qualname__}, batch"
                f" {context.batch}: {type(why).__name__}: {_first_lines(why)}"
            ) from why
        self._point("handed over")
        after = self.ledger.after(query, batch, took)
        self.ledger = replace(after, types={**self.ledger.types, **self.types})
        self.ledger.save(self._disk, self._path)
        self._point("in ledger")
        return len(events)

    def _check_complete(
        self, batch: int, files: Sequence[SpoolFile], expected: int
    ) -> None:
        count = count_rows(self._spool, files)
        if count != expected:
            raise shortfall(batch, expected, count)


def _first_lines(why: Exception) -> str:
    return " ".join(str(why).splitlines()[:3])[:1000]
