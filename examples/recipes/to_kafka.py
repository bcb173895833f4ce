"""Events as records of a topic in Kafka, at least once: `spark.sink: to_kafka:put`.

    export PYTHONPATH=examples/recipes KAFKA_SERVERS=broker:9092 KAFKA_TOPIC=events
    gateway spark --config gateway.yaml

    spark:
      sink: to_kafka:put
      conf: {spark.jars.packages: "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"}

The jar must be that of your Spark's version.  Spark's Kafka sink has no transactions: a
batch that comes again is written again.  Each record's key is NODE/LSN, the same each
time, so a compacted topic keeps one of them, and any reader tells them apart.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from gateway.spark.own import Context

__all__ = ["put", "records"]


def put(batch: DataFrame, context: Context) -> None:
    """Have the rows of *batch* acknowledged by all replicas."""
    writer = records(batch, context.batch).write.format("kafka")
    writer = writer.option("kafka.bootstrap.servers", os.environ["KAFKA_SERVERS"])
    writer = writer.option("topic", os.environ["KAFKA_TOPIC"])
    # So that a broker's failure does not double or reorder within one attempt.
    writer.option("kafka.enable.idempotence", "true").option("kafka.acks", "all").save()


def records(batch: DataFrame, number: int) -> DataFrame:
    """The records: what was sent as the value, and what it is in headers."""
    return batch.selectExpr(
        "encode(concat_ws('/', node, incarnation, lsn), 'UTF-8') AS key",
        "coalesce(encode(body, 'UTF-8'), payload) AS value",
        f"""array(
            struct('protocol' AS key, encode(protocol, 'UTF-8') AS value),
            struct('flaw' AS key, encode(coalesce(flaw, ''), 'UTF-8') AS value),
            struct('batch' AS key, encode('{number}', 'UTF-8') AS value)
        ) AS headers""",
    )
