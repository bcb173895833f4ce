"""Takes the rows of Parquet folders into a table of Delta or Iceberg: `gateway spark adopt`.

Each of the two tables gets all its rows in one commit, with the ledger that the folders
had.  So it is known which events are in, and which are in no table on purpose, without
counting anything.  A call that was cut off does again what it had not committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from gateway.sdk.arrow import footer_of
from gateway.sink import kind_of
from gateway.spark.commit import closing
from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.ledger import Broken, Ledger, Ranges, write_json
from gateway.spark.commit.partition import files_of
from gateway.spark.source import url
from gateway.store.readers import deleted
from gateway.store.readers.lake import INTERNAL, sink_of, tables_of
from gateway.tables import STATS, Tables

if TYPE_CHECKING:
    from gateway.spark.commit.shared import Table

_ADOPTED = "adopted.json"
_LEFT = ("place", "body_variant")
"""Columns that no table of a format has: what they say is in others."""
_TYPES = {"protocol": "string", "date": "date"}
"""Types of columns that are in the folders' names."""


def adopt(
    spark: Any, disk: LakeDisk, old: Path, lake: Path, events: Table, counts: Table
) -> Iterator[str]:
    """Put the rows of *old*, a lake of Parquet folders, into both tables of *lake*.

    No job runs on either.  Says what was done.  Raises `Broken`, OSError, and what Spark
    raises.
    """
    ledger = _checked(disk, old)
    mark = lake / INTERNAL / _ADOPTED
    there = events.open()
    if there.sequence and not disk.exists(mark):
        raise Broken(
            f"{events.name} has rows of its own: adopt comes before all others"
        )
    write_json(disk, mark, {"from": str(old.absolute())})
    for record in deleted.deletions(old):
        deleted.save(disk, lake, record)
    fresh = replace(ledger, query=None, batch=-1, latest=Ranges(), sequence=1)
    fresh = replace(fresh, tables=Tables())  # all of them are in one now
    if not there.sequence:
        yield _append(spark, old, tables_of(old).of_events, events, fresh)
    if not counts.open().sequence:
        known = Ledger(committed=ledger.committed, sequence=1)
        yield _append(spark, old, (STATS,), counts, known)
    fresh.save(disk, lake / INTERNAL / "events.json")


def check_removed(disk: LakeDisk, lake: Path) -> None:
    """Raise `Broken` if the folders are still there whose rows *lake* has adopted: what is
    deleted here would stay there.
    """
    mark = lake / INTERNAL / _ADOPTED
    if disk.exists(mark):
        old = Path(json.loads(disk.read(mark))["from"])
        if (old / INTERNAL).exists():
            raise Broken(
                f"{old}, whose rows were adopted, still has them, and nothing is deleted"
                " there: remove it first"
            )


def _checked(disk: LakeDisk, old: Path) -> Ledger:
    sink = sink_of(old)
    if sink is None or "folders" not in kind_of(sink["sink"]).abilities:
        what = "no lake" if sink is None else f"that of spark.sink: {sink['sink']}"
        raise Broken(f"{old} is {what}: the rows of Parquet folders are adopted")
    if waiting := deleted.unfinished(old):
        raise Broken(f"{old}: {waiting[0].id} is not finished (gateway spark delete)")
    ledger = closing.load(old, disk)
    # Its files of closed incarnations stay where they are.
    ledger = replace(ledger, committed=Ranges().with_all(ledger.committed))
    if ledger.types.get("body") == "variant":
        raise Broken(
            f"{old}: column body is VARIANT (spark.body), which tables of Delta and Iceberg"
            " do not take: they have it as text"
        )
    return ledger


def _append(
    spark: Any, old: Path, names: tuple[str, ...], table: Table, ledger: Ledger
) -> str:
    files = {name: found for name in names if (found := files_of(old, name))}
    if not files:
        return f"{table.name}: {' and '.join(names)} have no rows"
    read = spark.read.option("mergeSchema", "true")
    parts = [read.parquet(url(old / name)) for name in files]
    rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
    rows = rows.withColumns({one: rows[one].cast(kind) for one, kind in _TYPES.items()})
    paths = [path for found in files.values() for path in found]
    count = sum(footer_of(path).num_rows for path in paths)
    table.append(rows.drop(*_LEFT), ledger, count)
    left = [one for one in _LEFT if one in rows.columns]
    without = f", without {' and '.join(left)}" if left else ""
    return f"{table.name}: {count} rows of {' and '.join(files)}{without}"
