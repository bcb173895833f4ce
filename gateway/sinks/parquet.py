"""`spark.sink: parquet`: folders of Parquet files below `data_dir/lake`, for any reader."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from gateway.sink import Kind
from gateway.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.audit.remote import Access
    from gateway.spark.commit.lakedisk import LakeDisk
    from gateway.spark.commit.sink import Parts, Sink
    from gateway.spark.later.days import Rewritten, RowsMade


class _Parquet(Kind):
    name = "parquet"
    abilities = frozenset(
        {
            "backfill",
            "compact",
            "deduplicate",
            "expire",
            "folders",
            "rows",
            "tables",
            "variant",
        }
    )

    def make(self, parts: Parts) -> Sink:
        from gateway.spark.commit import one_sink, parquet
        from gateway.spark.rows import stats
        from gateway.spark.rows.columns import Columns
        from gateway.spark.run import query
        from gateway.spark.source import spool_of

        config, spark = parts.config, parts.spark
        lake, spool = config.data_dir / "lake", spool_of(config)
        one_sink.claim(lake, parts.disk, {"sink": self.name})
        parquet.check_shared(lake, spark)
        window = timedelta(seconds=config.spark.stats_window)
        columns = Columns.of(config.spark)
        again = query.reader(spark, spool, config.spark.body, columns)
        return parquet.ParquetSink(
            lake,
            spool,
            parts.checkpoint,
            parts.disk,
            write=query.Writer(spark, spool, again, alike=not config.spark.tables),
            count=lambda files: stats.count(files, window),
            find_resent=parts.find_resent,
            rules=config.spark.tables,
            done=parts.done,
        )

    def backfill(
        self,
        config: Any,
        spark: Any,
        disk: LakeDisk,
        names: Collection[str],
        tables: Collection[str] = (),
    ) -> Iterator[Rewritten]:
        from gateway.spark.commit import one_sink
        from gateway.spark.later.backfill import Folders

        one_sink.claim(config.data_dir / "lake", disk, {"sink": self.name})
        yield from Folders(spark, config, disk, names, tables).run()

    def rewrite(
        self, config: Any, spark: Any, disk: LakeDisk, make: RowsMade, word: str
    ) -> Iterator[Rewritten]:
        from gateway.spark.commit import one_sink
        from gateway.spark.later import days

        lake = config.data_dir / "lake"
        one_sink.claim(lake, disk, {"sink": self.name})
        yield from days.rewrite(lake, disk, days.by_rows(spark, make, word))

    def files(
        self, lake: Path, told: Mapping[str, str], access: Access
    ) -> Iterator[tuple[Path | str, str | None]]:
        from gateway.store.readers.lake import tables_of

        del told, access
        known = Tables()
        with contextlib.suppress(ValueError):  # the audit tells of such a ledger
            known = tables_of(lake)
        for table in known.of_events:
            for path in _visible(lake / table):
                yield path, None


def _visible(directory: Path) -> Iterator[Path]:
    """Every file below *directory* that readers of a table take for data."""
    try:
        entries = list(directory.iterdir())
    except FileNotFoundError:
        return
    for path in entries:
        if path.name[0] in "._":
            continue
        if path.is_dir():
            yield from _visible(path)
        else:
            yield path


kind = _Parquet()
