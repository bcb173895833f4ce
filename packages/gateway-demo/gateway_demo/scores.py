"""The demo's Spark job: `gateway spark`, and in the same session a streaming query.

The query reads `lake/events` and adds up the points of each player in windows of 5 s.  It
writes the sums to the outbox, from where the gateway pushes them to the players.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.spark import beside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ROUTE", "start_scores"]

ROUTE = "onScore"

_COLUMNS = "received_at TIMESTAMP, body STRING, protocol STRING, date DATE"


def start_scores(spark: SparkSession, data: Path) -> StreamingQuery:
    """Start the query on *data*, the `data_dir`; its `outbox` directory must exist."""
    from pyspark.sql import functions as f

    table, outbox = data / "lake" / "events", data / "outbox"
    table.mkdir(parents=True, exist_ok=True)

    def push(scores: DataFrame, number: int) -> None:
        rows = [
            {
                "route": ROUTE,
                "uid": row["player"],
                "body": {
                    "player": row["player"],
                    "from": row["begin"],
                    "score": row["score"],
                },
            }
            for row in scores.collect()
        ]
        beside.put(outbox, f"scores-{number:06d}.json", rows)

    return (
        spark.readStream.schema(_COLUMNS)
        .parquet(str(table))
        .where("protocol = 'pomelo'")
        .select(
            "received_at",
            f.from_json("body", "player STRING, points BIGINT").alias("body"),
        )
        .select("received_at", "body.player", "body.points")
        .where("player IS NOT NULL AND points IS NOT NULL")
        .groupBy(f.window("received_at", "5 seconds"), "player")
        .agg(f.sum("points").alias("score"))
        .select(
            "player", "score", f.date_format("window.start", "HH:mm:ss").alias("begin")
        )
        .writeStream.queryName("demo-scores")
        .outputMode("update")
        .foreachBatch(push)
        .option("checkpointLocation", str(data / "checkpoint" / "scores"))
        .trigger(processingTime="2 seconds")
        .start()
    )


if __name__ == "__main__":
    sys.exit(beside.run(sys.argv[1], start_scores))
