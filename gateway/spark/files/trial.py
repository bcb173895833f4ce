"""Rows of the tables for spool files that no job takes: what `gateway test` compares.

They are made by the job's own expressions, in a Spark of one core, and written nowhere.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway.spark.jvm import java, session
from gateway.spark.source import SCHEMA_DDL, url

_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
}


class CanNot(Exception):
    """No tables are made here; the text says why, and what to do."""


def rows_of(config: Any, files: Sequence[Path]) -> list[dict[str, Any]]:
    """All events in *files*, as rows of `events` and `quarantine`, by node and lsn.

    `table` says which; `payload` is bytes, times are texts in UTC, and everything else
    is as in JSON.  Raises `CanNot`.
    """
    settings = config.spark.model_copy(update={"master": "local[1]", "ui": False})
    with tempfile.TemporaryDirectory() as warehouse:
        return _rows_of(config, settings, files, Path(warehouse))


def _rows_of(
    config: Any, settings: Any, files: Sequence[Path], warehouse: Path
) -> list[dict[str, Any]]:
    try:
        spark = session.start(settings, warehouse, noise=warehouse / "java.log")
    except ModuleNotFoundError as why:
        raise CanNot(
            f"tables are Spark's, and there is no {why.name} here: "
            "pip install 'gateway[spark]'"
        ) from None
    except java.NoJava as why:
        raise CanNot(f"tables are Spark's: {why}") from None
    from pyspark.sql import functions as f

    from gateway.spark.rows import tables
    from gateway.spark.rows.columns import Columns

    try:
        found = spark.read.schema(SCHEMA_DDL).parquet(*map(url, files))
        columns = Columns.of(config.spark)
        rows = tables.events(found, config.spark.body, columns).orderBy("node", "lsn")
        written = rows.select(f.to_json(f.struct("*"), _OPTIONS)).collect()
    finally:
        spark.stop()
    return [_row(json.loads(text)) for (text,) in written]


def _row(row: dict[str, Any]) -> dict[str, Any]:
    row.pop("place", None)  # what `spark.deduplicate` knows events by
    if row["payload"] is not None:
        row["payload"] = base64.b64decode(row["payload"])
    return row
