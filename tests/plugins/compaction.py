"""Days of twenty batches as a job leaves them, and a disk that stops before a change of a name."""

from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from gateway.spark.commit.lakedisk import Lake
from played_spark import PowerCut

BEFORE = date(2026, 3, 2)
SIZE = 10
LAST = 1 << 40


def rows(batch: int, **more: Any) -> pa.Table:
    lsns = range(batch * SIZE + 1, (batch + 1) * SIZE + 1)
    texts = [f'{{"n": {lsn}}}' for lsn in lsns]
    columns = {"node": ["gw"] * SIZE, "lsn": list(lsns), "body": texts}
    return pa.table({**columns, **more})


def put(
    lake: Path,
    batch: int,
    table: pa.Table,
    *,
    day: str = "2026-03-01",
    compression: str = "snappy",
) -> Path:
    folder = lake / "events" / "protocol=lumberjack" / f"date={day}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"part-{batch:010d}-0badcafe-0.parquet"
    pq.write_table(table, path.with_name(f".{path.name}"), compression=compression)
    return path.with_name(f".{path.name}").rename(path)


def seen(lake: Path) -> Counter[int]:
    found = ds.dataset(lake / "events", partitioning="hive", format="parquet")
    return Counter(found.to_table(columns=["lsn"])["lsn"].to_pylist())


def files(lake: Path, day: str = "2026-03-01") -> list[Path]:
    return sorted((lake / "events").glob(f"*/date={day}/*"))


class Fuse(Lake):
    """Stops before its *left*th change of a name."""

    def __init__(self, left: int, *, exchanges: bool) -> None:
        self.left = left
        self.exchanges = exchanges

    def rename(self, old: Path, new: Path) -> None:
        self._count()
        super().rename(old, new)

    def remove_tree(self, path: Path) -> None:
        self._count()
        super().remove_tree(path)

    def exchange(self, one: Path, other: Path) -> None:
        self._count()
        if self.exchanges:
            super().exchange(one, other)
            return
        between = one.with_name(f".{one.name}.between")
        self.rename(other, between)
        self.rename(one, other)
        self.rename(between, one)

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise PowerCut
