"""The tables of the lake: which columns they have and how they are made.

    events      every event that is fine: the envelope and what its JSON says
    quarantine  the flawed ones: the same columns, the payload as sent
    stats       how many per window, protocol, listener and channel

All are partitioned by protocol and date.  The date is that of arrival, not the one in
the event: a partition is complete once its day is over, whatever clocks senders have.
"""

from __future__ import annotations

import secrets
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from gateway.spark.ledger import Ranges

__all__ = ["PARTITIONS", "counts", "events", "without"]

#: The sink writes one folder level for each, the table first.
PARTITIONS = ("table", "protocol", "date")

_JSON = (
    "content_type = 'application/json' OR content_type LIKE '%+json'"
    " OR content_type LIKE 'application/json;%'"
)
#: An instant of our era with a date; anything else would be a guess.
_INSTANT = "^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:"


def events(stream: DataFrame) -> DataFrame:
    """Rows of `events` and `quarantine`; the column `table` says which.

    `body` is the payload as VARIANT; where that would lose something (no JSON, bad
    UTF-8, a key twice, text behind the value, more than VARIANT holds) it is null and
    `payload` has the bytes as sent.  No event can make this fail.
    """
    text = f.expr("try_validate_utf8(cast(payload AS string))")
    parsed = _with_body(stream.withColumn("text", text))
    found = parsed.withColumns(
        {
            "stamp": f.expr("try_variant_get(body, '$[\"@timestamp\"]', 'string')"),
            "host_text": f.expr("try_variant_get(body, '$.host', 'string')"),
        }
    )
    stamp_time = (
        f"CASE WHEN stamp RLIKE '{_INSTANT}' THEN try_cast(stamp AS timestamp) END"
    )
    return found.select(
        "node",
        "lsn",
        "received_at",
        f.expr(f"coalesce({stamp_time}, received_at)").alias("event_time"),
        "listener",
        "session",
        "peer",
        "principal",
        "channel",
        "kind",
        "seq",
        "content_type",
        f.expr(
            # logstash-forwarder and its kin (v1) call it line.
            "CASE WHEN body IS NOT NULL THEN"
            " coalesce(try_variant_get(body, '$.message', 'string'),"
            " try_variant_get(body, '$.line', 'string'))"
            " WHEN content_type LIKE 'text/%' THEN text END"
        ).alias("message"),
        # ECS says host.name, which v1 writers flatten; older shippers just host.
        f.expr(
            "coalesce(try_variant_get(body, '$.host.name', 'string'),"
            " try_variant_get(body, '$[\"host.name\"]', 'string'),"
            " CASE WHEN host_text NOT LIKE '{%' THEN host_text END)"
        ).alias("host"),
        "body",
        f.expr("CASE WHEN flaw IS NOT NULL OR body IS NULL THEN payload END").alias(
            "payload"
        ),
        "attributes",
        "flaw",
        f.expr("CASE WHEN flaw IS NULL THEN 'events' ELSE 'quarantine' END").alias(
            "table"
        ),
        "protocol",
        f.expr("cast(received_at AS date)").alias("date"),
    )


def _with_body(stream: DataFrame) -> DataFrame:
    """The column `text` as VARIANT `body`.

    Spark's parser stops after the first value and drops what follows.  So it gets the
    text as first element of an array whose second nobody can guess: only if that is
    what comes second was the text one value.
    """
    mark = secrets.randbelow(2**62) + 2**60
    pair = f"CASE WHEN {_JSON} THEN try_parse_json('[' || text || ',{mark}]') END"
    first = (
        f"CASE WHEN try_variant_get(pair, '$[1]', 'bigint') = {mark}"
        " THEN try_variant_get(pair, '$[0]', 'variant') END"
    )
    return stream.withColumn("pair", f.expr(pair)).withColumn("body", f.expr(first))


def counts(stream: DataFrame, window: timedelta, watermark: timedelta) -> DataFrame:
    """Rows of `stats`: one when a window can not change any more.

    That is *watermark* after its end, by `received_at`; what comes later is counted
    nowhere (it is in `events` all the same).
    """
    return (
        stream.withWatermark("received_at", _interval(watermark))
        .groupBy(
            f.window("received_at", _interval(window)),
            "protocol",
            "listener",
            "channel",
        )
        .agg(
            f.count("*").alias("events"),
            f.sum(f.length("payload")).alias("payload_bytes"),
            f.count("flaw").alias("flawed"),
        )
        .select(
            f.col("window.start").alias("window_start"),
            f.col("window.end").alias("window_end"),
            "listener",
            "channel",
            "events",
            "payload_bytes",
            "flawed",
            f.lit("stats").alias("table"),
            "protocol",
            f.expr("cast(window.start AS date)").alias("date"),
        )
    )


def without(stream: DataFrame, ranges: Ranges) -> DataFrame:
    """*stream* without the events of *ranges*."""
    for node, first, last in ranges:
        inside = (f.col("node") == node) & f.col("lsn").between(first, last)
        stream = stream.where(~inside)
    return stream


def _interval(span: timedelta) -> str:
    return f"{span // timedelta(milliseconds=1)} milliseconds"
