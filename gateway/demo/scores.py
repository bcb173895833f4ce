"""The demo's Spark job: `gateway spark`, and in the same session a streaming query.

The query reads `lake/events`, adds up the points of each player in windows of 5 s, and
writes the sums to the outbox, from where the gateway pushes them to the players.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.config import load
from gateway.spark import job, progress, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ROUTE", "main", "start_scores"]

ROUTE = "onScore"

_COLUMNS = "received_at TIMESTAMP, body STRING, protocol STRING, date DATE"


def start_scores(spark: SparkSession, data: Path) -> StreamingQuery:
    """Start the query on *data*, the `data_dir`; its `outbox` directory must exist."""
    from pyspark.sql import functions as f

    table, outbox = data / "lake" / "events", data / "outbox"
    table.mkdir(parents=True, exist_ok=True)

    def push(scores: DataFrame, number: int) -> None:
        lines = [
            json.dumps(
                {
                    "route": ROUTE,
                    "uid": row["player"],
                    "body": {
                        "player": row["player"],
                        "from": row["begin"],
                        "score": row["score"],
                    },
                }
            )
            for row in scores.collect()
        ]
        hidden = outbox / f".scores-{number:06d}.json"
        hidden.write_text("\n".join(lines))
        hidden.rename(outbox / hidden.name[1:])

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


def main(config_path: str) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    config = load(config_path)
    progress.start_logging(config.logging)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    spark = session.start(config.spark)
    try:
        scores = start_scores(spark, config.data_dir)
        job.run(config, spark=spark, stop_event=stop, report=progress.as_json)
        scores.stop()
    except job.Failed as why:
        sys.stderr.write(f"{why}\n")
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
