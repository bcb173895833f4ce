"""Splash's leaderboard: the number of fields of each player, from `lake/events` to every screen.

Runs `gateway spark`, and beside it a query on the table that the job writes.  A field
belongs to the player who painted it last, by `lsn`: so it is all the same how often a row
is read, and in which order.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.spark import beside
from rules import HEIGHT, NAME, REACH, ROOMS, WIDTH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_COLUMNS = """
    lsn BIGINT, kind STRING, route STRING, uid STRING, body STRING,
    protocol STRING, date DATE
"""
_BODY = "room STRING, x INT, y INT"


def owners(events: DataFrame) -> DataFrame:
    """room, x, y, player: who holds each field that anybody painted."""
    from pyspark.sql import functions as f

    x, y = f.col("hit.x"), f.col("hit.y")
    fields = f.array(
        *(f.struct((x + i).alias("x"), (y + j).alias("y")) for i, j in REACH)
    )
    player = f.substring(
        f.coalesce(f.nullif("uid", f.lit("")), f.lit("nobody")), 1, NAME
    )
    return (
        events.where("protocol = 'pomelo' AND kind = 'request'")
        .where("route = 'room.splash'")
        .select("lsn", player.alias("player"), f.from_json("body", _BODY).alias("hit"))
        .where(f.col("hit.room").isin(*ROOMS))
        .where(x.between(0, WIDTH - 1) & y.between(0, HEIGHT - 1))
        .select("lsn", "player", "hit.room", f.explode(fields).alias("at"))
        .where(f.col("at.x").between(0, WIDTH - 1))
        .where(f.col("at.y").between(0, HEIGHT - 1))
        .groupBy("room", "at.x", "at.y")
        .agg(f.max_by("player", "lsn").alias("player"))
    )


def start(spark: SparkSession, data: Path) -> StreamingQuery:
    """Start the query on *data*, the `data_dir`."""
    table = data / "lake" / "events"
    table.mkdir(parents=True, exist_ok=True)

    def push(held: DataFrame, number: int) -> None:
        counts = held.groupBy("player").count()
        best: list[dict[str, Any]] = [
            {"player": row["player"], "fields": row["count"]}
            for row in counts.orderBy("count", "player", ascending=[False, True])
            .limit(10)
            .collect()
        ]
        row = {"route": "onLeaders", "all": True, "ttl": 30, "body": best}
        # The same batch, computed again after a crash, has the same name.
        digest = hashlib.sha256(json.dumps(row).encode()).hexdigest()[:12]
        beside.put(data / "outbox", f"leaders-{number:09d}-{digest}.json", [row])

    return (
        owners(spark.readStream.schema(_COLUMNS).parquet(str(table)))
        .writeStream.queryName("leaderboard")
        .outputMode("complete")
        .foreachBatch(push)
        .option("checkpointLocation", str(data / "checkpoint" / "leaderboard"))
        .trigger(processingTime="1 second")
        .start()
    )


if __name__ == "__main__":
    default = Path(__file__).with_name("gateway.yaml")
    config = sys.argv[1] if len(sys.argv) > 1 else default
    sys.exit(beside.run(config, start, as_json=False))
