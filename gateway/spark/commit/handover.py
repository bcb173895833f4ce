"""Batches for a function of the user's own: `spark.sink: module:function`.

    def function(batch: DataFrame, context: Context) -> None

It is called once for each batch and returns when the rows are where they belong.  Before
the call, durably, `lake/.gateway/handover.json` says which files the batch is.  After it,
the ledger says that it is done, and it is never handed over again.  A batch that was handed
over and is not in the ledger comes again at the next start, before anything else.  It has
the same rows under the same number, whatever became of the checkpoint, and `repeated` is
true.

So each event is handed over at least once.  A function that writes the rows of a number in
one step, and does nothing where it has that number, has each exactly once.

One of its files may be unreadable by then, and moved aside.  If every call
for this batch has raised, its target has nothing of that number, which then names the
rest.  After a crash in between only the target knows: the job stops and asks, and
`settle` takes the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attrs import define

from gateway.spark.commit import one_sink
from gateway.spark.commit.closing import Closing
from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.ledger import Broken, Ledger, Ranges, write_json
from gateway.spark.commit.sink import (
    Committed,
    Parts,
    Plan,
    Sink,
    check_behind,
    shortfall,
)
from gateway.spark.commit.taken import Taken
from gateway.spark.files import footers
from gateway.spark.own import Context, Function
from gateway.spark.source import spool_of
from gateway.store.names import Life, SpoolFile, parse_file_name
from gateway.store.node.incarnation import Record
from gateway.store.readers.lake import INTERNAL

_INTENT = "handover.json"


class HandOverFailed(Exception):
    """The user's function has raised; says what."""


@define(eq=False, slots=False)
class HandOver(Sink):
    """Gives each batch to *function*.

    *read* makes the rows of spool files, without some events.
    """

    _read: Callable[[Plan], Any]
    _function: Function

    repeats = True

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._intent = self._lake / INTERNAL / _INTENT
        self._refused = 0
        """The batch that it has certainly not: every call for it has raised, in this life."""

    def recover(self) -> None:
        """Recover as `Sink` does; raises what the user's function raises, too."""
        self._disk.make_directory(self._path.parent)
        self.ledger = self.closing.whole(Ledger.load(self._disk, self._path))
        self.failure = None
        if self._disk.exists(self._intent):
            told = json.loads(self._disk.read(self._intent))
            # One that is in the ledger was done; only the file stayed.
            if told["sequence"] == self.ledger.sequence + 1:
                self._again(told)
            else:
                self.looked_at(_files(told))
                self.taken.note(self._digests)
            self._disk.unlink(self._intent)
        check_behind(self._lake, self._checkpoint, self.ledger)

    def _again(self, told: dict[str, Any]) -> None:
        noted = {hole.file for hole in self.ledger.holes}
        away = [
            name for name in told["files"] if not self._disk.exists(self._spool / name)
        ]
        if gone := [name for name in away if name not in noted]:
            raise _undecided(
                told, gone, f"is gone from {self._spool}. Put it back", "gone"
            )
        if away:
            if self._refused != told["sequence"]:
                mend = (
                    "is in poison/ by now. Mend it there and run gateway spark requeue"
                )
                raise _undecided(told, away, mend, "aside")
            _leave_out(self._disk, self._intent, told, away)
        if files := _files(told):
            self.types = told["types"]
            found = self.looked_at(files)
            plan = Plan(files, Ranges(told["without"]), row_bytes=found.row_bytes)
            self._hand(
                plan,
                found.rows,
                found.records,
                told["query"],
                told["batch"],
                repeated=True,
            )

    def _take(self, rows: Any, batch: int) -> Committed:
        files = self._checkpoint.batch_files(batch)
        found, row_bytes, records, *_ = self.looked_at(files)
        took = Ranges.of(files)
        if not self.is_repeated(batch):
            self.check_apart(files)
        without = took.common(self.ledger.committed)
        count = 0
        if took != without:
            query = self._checkpoint.query
            plan = Plan(files, without, row_bytes=row_bytes)
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
            count = self._hand(plan, found, records, query, batch, repeated=False)
            self._disk.unlink(self._intent)
        return Committed(batch, count, len(files))

    def _hand(
        self,
        plan: Plan,
        found: int,
        records: Mapping[Life, Record],
        query: str | None,
        batch: int,
        *,
        repeated: bool,
    ) -> int:
        """*found* is how many rows its files have, *records* what they say of their
        incarnations.
        """
        number = self.ledger.sequence + 1
        took = Ranges.of(plan.files)
        events = took.minus(plan.without)
        context = Context.of(number, events.plain(), repeated=repeated)
        never = not repeated or self._refused == number
        try:
            if found != len(took):
                raise shortfall(batch, len(took), found)
            self.take_back(self.arrived(plan.files, plan.without))
            self._call(self._read(plan), context)
        except Exception:
            self._refused = number if never else 0
            raise
        self._point("handed over")
        after = self.after(query, batch, took, records)
        types = {**self.ledger.types, **self.types}
        self._write_down(replace(after, types=types))
        self._point("in ledger")
        self.taken.note(self._digests)
        return len(events)

    def _call(self, rows: Any, context: Context) -> None:
        try:
            self._function(rows, context)
        except Exception as why:
            raise HandOverFailed(
                f"{self._function.__module__}:{self._function.__qualname__}, batch"
                f" {context.batch}: {type(why).__name__}: {_first_lines(why)}"
            ) from why


def made(parts: Parts, name: str, function: Function) -> HandOver:
    """The sink that gives a job's batches to *function*, of the kind of tables called *name*."""
    from gateway.spark.run import query

    lake = parts.config.data_dir / "lake"
    read = query.whole_reader(parts.config, parts.spark)
    one_sink.claim(lake, parts.disk, {"sink": name})
    return HandOver(
        lake,
        spool_of(parts.config),
        parts.checkpoint,
        parts.disk,
        read=read,
        function=function,
        done=parts.done,
    )


def settle(
    lake: Path, spool: Path, disk: LakeDisk, batch: int, *, written: bool
) -> int:
    """Say whether the function's target has *batch*, which only it knows.

    Returns how many of its events are in no table then.  Raises `Broken` if this is not
    what is asked, OSError.
    """
    path, intent = lake / INTERNAL / f"{Sink.name}.json", lake / INTERNAL / _INTENT
    ledger = Closing(lake, disk).whole(Ledger.load(disk, path))
    told = json.loads(disk.read(intent)) if disk.exists(intent) else None
    if told is None or told["sequence"] != ledger.sequence + 1:
        raise Broken("no batch waits to be settled")
    if told["sequence"] != batch:
        raise Broken(f"batch {told['sequence']} waits to be settled, not {batch}")
    aside = [name for name in told["files"] if not disk.exists(spool / name)]
    files = _files(told)
    if not written:
        _leave_out(disk, intent, told, aside)
        return len(Ranges.of(files).minus(Ranges.of(_files(told))))
    done = ledger.after(told["query"], told["batch"], Ranges.of(files), {})
    replace(done, types=told["types"]).save(disk, path)
    Taken(lake).note(footers.read(spool, files).digests)
    disk.unlink(intent)
    return 0


def _files(told: dict[str, Any]) -> list[SpoolFile]:
    found = [parse_file_name(name) for name in told["files"]]
    return [file for file in found if file is not None]


def _leave_out(
    disk: LakeDisk, intent: Path, told: dict[str, Any], names: Sequence[str]
) -> None:
    """Let the number name the rest; of nothing nothing is intended."""
    told["files"] = [name for name in told["files"] if name not in names]
    if told["files"]:
        write_json(disk, intent, told)
    else:
        disk.unlink(intent)


def _undecided(
    told: dict[str, Any], names: Sequence[str], mend: str, away: str
) -> Broken:
    number = told["sequence"]
    return Broken(
        f"batch {number} may have been written before a crash, and"
        f" {', '.join(names)} of it {mend}: the batch comes whole then. Or look whether"
        f" your target has batch {number}, and say so: gateway spark settle --batch"
        f" {number} --written (nothing of it comes again), or --missing (the rest of it"
        f" comes, and what is {away} stays in no table)"
    )


def _first_lines(why: Exception) -> str:
    return " ".join(str(why).splitlines()[:3])[:1000]
