"""The loop that rewrites days, with transforms that the gateway does not have."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.sink import kind_of
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.later.days import Change, Day, rewrite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DAY_MICROS = 86_400_000_000


def put(lake: Path, day: str, lsns: list[int]) -> None:
    """A file of one day."""
    folder = lake / "events" / "protocol=lumberjack" / f"date={day}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"part-{lsns[0]:010d}-0badcafe-0.parquet"
    pq.write_table(pa.table({"lsn": lsns}), path)


def seen(lake: Path) -> list[int]:
    """The rows of all files."""
    paths = sorted((lake / "events").rglob("*.parquet"))
    return [lsn for path in paths for lsn in pq.read_table(path)["lsn"].to_pylist()]


def drop_odd(day: Day) -> Change | None:
    """A transform of folders: rows with an odd lsn go."""
    going = [path for path in day.files if "-even" not in path.name]
    if not going:
        return None
    staged = day.begin(going)
    for path in going:
        lsns = pq.ParquetFile(path).read()["lsn"].to_pylist()
        table = pa.table({"lsn": [lsn for lsn in lsns if not lsn % 2]})
        pq.write_table(table, staged / f"{path.stem}-even.parquet")
    return Change(going, len(going))


def test_a_transform_is_one_function(tmp_path):
    """It is called for the days that are wanted, the oldest first, and a second time finds
    nothing; folders with other names are left alone."""
    lake = tmp_path / "lake"
    (lake / ".gateway").mkdir(parents=True)
    for number, day in enumerate(("2026-03-03", "2026-03-01", "2026-03-02", "none")):
        put(lake, day, [10 * number + one for one in range(1, 5)])
    last = date(2026, 3, 2)
    for _ in range(2):
        done = rewrite(lake, Lake(), drop_odd, wanted=lambda _, day: day <= last)
        told = [(one.day[-10:], one.before, one.after) for one in done]
        if _ == 0:
            assert told == [("2026-03-01", 1, 1), ("2026-03-02", 1, 1)]
    assert told == []
    assert sorted(seen(lake)) == [1, 2, 3, 4, 12, 14, 22, 24, *range(31, 35)]


def without_peers(rows: DataFrame) -> DataFrame:
    """A transform of all kinds of tables: senders' addresses go."""
    from pyspark.sql import functions as f

    return rows.withColumn("peer", f.lit(""))


@pytest.mark.spark
def test_a_function_of_rows_rewrites_each_day(
    run_once, spark, spool, config, table_rows
):
    """Events and flawed ones, each row once, and all else of them as it was."""
    for day in range(2):
        first, at = 1 + 3 * day, 1_772_366_400_000_000 + day * DAY_MICROS
        texts = [b'{"message": "m"}'] * 3
        spool.put("gw", first, texts, received_at=at, flaws={1: "odd"})
    run_once()
    lake = config.data_dir / "lake"

    def rows() -> list[dict[str, Any]]:
        found = [*table_rows(lake / "events"), *table_rows(lake / "quarantine")]
        return sorted(found, key=lambda row: row["lsn"])

    before = rows()
    assert all(row["peer"] for row in before)
    kind = kind_of(config.spark.sink)
    done = list(kind.rewrite(config, spark, Lake(), without_peers, "peerless"))
    assert [one.rows for one in done] == [2, 1, 2, 1]
    assert rows() == [row | {"peer": ""} for row in before]


def test_a_day_with_a_damaged_file_keeps_no_other_from_its_turn(tmp_path):
    """It stays as it is, and is named."""
    lake = tmp_path / "lake"
    (lake / ".gateway").mkdir(parents=True)
    for number, day in enumerate(("2026-03-01", "2026-03-02")):
        put(lake, day, [10 * number + one for one in range(1, 5)])
    (damaged,) = (lake / "events").rglob("date=2026-03-01/*.parquet")
    damaged.write_bytes(b"damaged")
    with pytest.raises(OSError, match="date=2026-03-01: "):
        list(rewrite(lake, Lake(), drop_odd))
    assert damaged.read_bytes() == b"damaged"
    damaged.unlink()
    assert seen(lake) == [12, 14]
