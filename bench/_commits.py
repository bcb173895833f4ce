"""Tables of Delta and Iceberg with many commits in them, made without a Spark job for each.

A commit adds a small file and the ledger, as a batch of the job does; its file is that of
a real batch under another name.  Iceberg makes it by its own library.  Delta's log is
files, and each says when it was made by its own time: so they are written as of then, and
Delta removes the old ones as it does after a month.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from _history import NODE, many_names

from gateway.sinks.delta_table import DeltaTable
from gateway.sinks.iceberg_snapshots import LEDGER
from gateway.sinks.iceberg_table import IcebergTable
from gateway.spark.commit.ledger import Ledger
from gateway.store.names import Life

__all__ = ["of_table", "pasts"]


class Past(Protocol):
    """What a table has behind it."""

    def add(self, at: datetime, count: int, rows: int) -> None:
        """Commit so many files, as of that day, each of which has so many events."""


def pasts(tables: Iterable[Any]) -> list[Past]:
    """Of tables that the job has made some commits of."""
    return [
        _OfDelta(one) if isinstance(one, DeltaTable) else _OfIceberg(one)
        for one in tables
    ]


def of_table(table: Any) -> Iterator[tuple[str, str, float]]:
    """What there is to know of it: name, unit and number."""
    if isinstance(table, DeltaTable):
        log = _path(table.name) / "_delta_log"
        files = [path.stat().st_size for path in log.iterdir()]
        yield "commits in the log", "", len(list(log.glob("*.json")))
        yield "data files", "", table._now()[1].numOfFiles()
        yield "its log", "KiB", sum(files) / 2**10
        return
    java = table._table()
    yield "snapshots", "", len(list(java.snapshots()))
    words = java.currentSnapshot().summary()
    yield "data files", "", int(words.get("total-data-files"))
    where = _path(java.operations().current().metadataFileLocation())
    yield "its description", "KiB", where.stat().st_size / 2**10


def _path(place: str) -> Path:
    return Path(unquote(urlsplit(place).path))


def _kept(path: Path, home: Path) -> Path:
    """A copy that maintenance of the table does not remove."""
    return Path(shutil.copyfile(path, home.with_name(f"{home.name}.template")))


def _grown(ledger: Ledger, rows: int) -> Ledger:
    """After one more batch."""
    last = ledger.committed.last()[NODE]
    ledger.committed.add(Life(NODE), last + 1, last + rows)
    return replace(ledger, sequence=ledger.sequence + 1)


class _OfIceberg:
    def __init__(self, table: IcebergTable) -> None:
        self._table = table
        java: Any = table._table()
        self._file = next(
            file
            for snapshot in table._line(java)
            if table._number(snapshot) is not None
            for file in snapshot.addedDataFiles(java.io())
        )
        path = _path(str(self._file.location()))
        self._home = path.parent.parent.parent
        self._template = _kept(path, self._home)

    def add(self, at: datetime, count: int, rows: int) -> None:
        """See `Past`."""
        java: Any = self._table._table()
        ledger = Ledger.of(self._table._newest()[""], "")
        jvm: Any = self._table._spark._jvm
        day = f"protocol=lumberjack/date={at.date()}"
        folder = self._home / day
        folder.mkdir(parents=True, exist_ok=True)
        begin = ledger.sequence + 1
        paths = [folder / f"{begin + n:08d}-past.parquet" for n in range(count)]
        many_names(self._template, paths)
        whole = java.newTransaction()
        for path in paths:
            ledger = _grown(ledger, rows)
            made = jvm.org.apache.iceberg.DataFiles.builder(java.spec()).copy(
                self._file
            )
            made = made.withPath(f"file:{path}").withPartitionPath(day).build()
            append = whole.newAppend().appendFile(made)
            append.set(LEDGER, ledger.text())
            append.set("wap.id", f"gateway-{ledger.sequence}")
            append.commit()
        whole.commitTransaction()


class _OfDelta:
    def __init__(self, table: DeltaTable) -> None:
        self._table = table
        self._home = _path(table.name)
        self._actions = self._of_a_batch(self._home / "_delta_log")
        path = self._home / unquote(self._actions["add"]["path"])
        self._template = _kept(path, self._home)

    def add(self, at: datetime, count: int, rows: int) -> None:
        """See `Past`."""
        home, actions = self._home, self._actions
        # What was done since is of that day, too: none is younger than those behind it.
        for path in (home / "_delta_log").iterdir():
            if path.stat().st_mtime > at.timestamp():
                os.utime(path, (at.timestamp(), at.timestamp()))
        log, snapshot = self._table._now()
        version = int(snapshot.version())
        ledger = Ledger.of(self._table._newest()[""], "")
        day = f"protocol=lumberjack/date={at.date()}"
        (home / day).mkdir(parents=True, exist_ok=True)
        names = [f"{day}/part-{version + n:08d}-past.parquet" for n in range(count)]
        many_names(self._template, [home / name for name in names])
        stamp = int(at.timestamp() * 1000)
        for name in names:
            version += 1
            ledger = _grown(ledger, rows)
            info = actions["commitInfo"] | {"timestamp": stamp}
            info["userMetadata"] = ledger.text(seen=version - 1)
            if "inCommitTimestamp" in info:
                info["inCommitTimestamp"] = stamp
            values = {"protocol": "lumberjack", "date": f"{at.date()}"}
            made = {"path": name, "partitionValues": values, "modificationTime": stamp}
            lines = [
                {"commitInfo": info},
                {"txn": actions["txn"] | {"version": ledger.sequence}},
                {"add": actions["add"] | made},
            ]
            path = home / "_delta_log" / f"{version:020d}.json"
            path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
            os.utime(path, (at.timestamp(), at.timestamp()))
        self._table._now()
        log.checkpoint()

    @staticmethod
    def _of_a_batch(log: Path) -> dict[str, Any]:
        """The actions of a real batch that is not the first, which makes the table."""
        for path in sorted(log.glob("*.json"))[1:]:
            found = [json.loads(line) for line in path.read_text().splitlines()]
            kinds = {kind: one for line in found for kind, one in line.items()}
            if {"txn", "add", "commitInfo"} <= kinds.keys():
                return kinds
        raise LookupError(f"no batch in {log}")
