"""A job of your own on a gateway's spool, in Parquet: each event once, by batch.

    python to_folders.py gateway.yaml mine /srv/mine

`mine` is one of `spool.consumers` in gateway.yaml (docs/consumers.md).
"""

import sys

import pyspark
from pyspark.sql import DataFrame, SparkSession

from gateway import config
from gateway.spark.consumer import consume
from gateway.spark.files import s3a
from gateway.spark.jvm.session import SAFETY
from gateway.spark.own import Context


def main(file: str, name: str, target: str) -> None:
    """Run until killed, or until the query fails."""
    settings = config.load(file)
    options = {**SAFETY, **s3a.settings(settings.spool, pyspark.__version__)}
    spark = SparkSession.builder.appName(name).config(map=options).getOrCreate()

    def work(events: DataFrame, context: Context) -> None:
        # A batch that comes again is written over: the same events under its number.
        events.write.mode("overwrite").parquet(f"{target}/batch={context.batch}")

    query = consume(spark, settings, name, work, max_bytes=256 * 2**20)
    query = query.option("checkpointLocation", f"{target}-checkpoint")
    query.trigger(processingTime="1 second").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
