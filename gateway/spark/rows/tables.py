"""The tables of the lake: which columns they have and how they are made.

    events      every event that is fine: the envelope and what its JSON says
    quarantine  the flawed ones: the same columns, the payload as sent
    stats       how many per window, protocol, listener and channel (`stats.py`)

All are partitioned by protocol and date.  The date is that of arrival, not the one in
the event: a partition is complete once its day is over, whatever clocks senders have.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from gateway.spark.commit.ledger import Ranges
from gateway.spark.files.not_taken import RESENT
from gateway.spark.rows import framed
from gateway.spark.rows.columns import EVENT_TIME, Columns
from gateway.spark.rows.fields import TEXT, function, judge
from gateway.store.names import Life, SpoolFile
from gateway.tables import EVENTS, QUARANTINE, TABLE

#: The sink writes one folder level for each, the table first.
PARTITIONS = (TABLE, "protocol", "date")
_WITHOUT_RULES = f"CASE WHEN flaw IS NULL THEN '{EVENTS}' ELSE '{QUARANTINE}' END"

#: Whether the payload says that it is JSON.
JSON = (
    "(content_type = 'application/json' OR content_type LIKE '%+json'"
    " OR content_type LIKE 'application/json;%')"
)


def events(
    stream: DataFrame,
    body: str = "json",
    columns: Columns | None = None,
    carried: Sequence[str] = (),
) -> DataFrame:
    """Rows of `events` and `quarantine`; the column `table` says which.  Columns of *stream*
    that are *carried* stay beside them.

    `body` holds what was sent where that is JSON in valid UTF-8 and has no flaw; as
    VARIANT only where that loses no key and no part.  Where it does not, it is null and
    `payload` has the bytes as sent, as of Avro.  No event can make this fail.
    """
    made = columns or Columns()
    # Spool files have it in their footers alone: `named` puts it in.
    named = "incarnation" in stream.columns
    incarnation = (
        f.col("incarnation") if named else f.expr("cast(NULL AS string) AS incarnation")
    )
    spark = stream.sparkSession
    find = function(
        *(spark, made.keys, made.instants),
        lists=made.lists,
        contents=made.contents,
        rules=made.asked(),
        columns=made.count,
    )
    text = (
        f"CASE WHEN {JSON} THEN j.{TEXT} WHEN content_type LIKE 'text/%'"
        " THEN try_validate_utf8(cast(payload AS string)) END"
    )
    values, misfits = f"CASE WHEN {JSON} THEN {find}(payload) END", made.misfits()
    if made.schemas:
        decode = framed.function(spark, made.schemas)
        value = f"{find}({decode}(payload, content_type, channel))"
        may_be = f"({framed.FRAMED} AND NOT {JSON})"
        values = f"CASE WHEN {JSON} THEN {find}(payload) WHEN {may_be} THEN {value} END"
        misfits = f"CASE WHEN {may_be} AND j IS NULL THEN 'body' ELSE {misfits} END"
    found = stream.withColumn("j", f.expr(values))
    found = found.withColumns(
        {"text": f.expr(text), "payload_bytes": f.expr("length(payload)")}
    )
    if ruled := made.table(partial(judge, spark)):
        found = found.withColumn(TABLE, f.expr(ruled))
    if body != "json":
        found = _with_variant(found)
    held = "variant" if body == "variant" else f"CASE WHEN {JSON} THEN text END"
    payload = f"CASE WHEN flaw IS NOT NULL OR ({held}) IS NULL THEN payload END"
    found = found.withColumn("payload", f.expr(payload))
    # Each step is used more than once by the next; Spark keeps such steps apart.
    raw = found.withColumns(_expressions(made.raw()))
    typed = raw.withColumns(_expressions(made.cast()))
    return typed.select(
        *("node", incarnation, "lsn", "received_at"),
        *_times(made),
        *("listener", "session", "peer", "principal", "channel", "kind", "seq"),
        "content_type",
        *_columns(made),
        *_bodies(body),
        "attributes",
        "flaw",
        "payload_bytes",
        f.expr(misfits).alias("misfits"),
        *([f.expr(place).alias("place")] if (place := made.place()) else []),
        f.expr(f"`{TABLE}`" if ruled else _WITHOUT_RULES).alias(TABLE),
        "protocol",
        f.expr("cast(received_at AS date)").alias("date"),
        *carried,
    )


def _expressions(named: dict[str, str]) -> dict[str, Column]:
    return {name: f.expr(sql) for name, sql in named.items()}


def _times(made: Columns) -> list[Column]:
    value = made.values()[EVENT_TIME]
    return [
        f.expr(f"coalesce({value}, received_at)").alias(EVENT_TIME),
        f.expr(made.time_source()).alias("event_time_source"),
    ]


def _columns(made: Columns) -> list[Column]:
    values = {**made.values(), **made.envelope()}
    return [f.expr(values[name]).alias(name) for name in made.names()]


def _bodies(body: str) -> list[Column | str]:
    if body == "variant":
        return [f.expr("variant").alias("body"), "payload"]
    text = f.expr(f"CASE WHEN flaw IS NULL AND {JSON} THEN text END").alias("body")
    both = [f.col("variant").alias("body_variant")] if body == "both" else []
    return [text, "payload", *both]


def _with_variant(stream: DataFrame) -> DataFrame:
    """The column `text` as VARIANT `variant`.

    Spark's parser stops after the first value and drops what follows.  So it gets the
    text as first element of an array whose second no sender can guess: only if that is
    what comes second was the text one value.
    """
    mark = secrets.randbelow(2**62) + 2**60
    pair = f"CASE WHEN {JSON} THEN try_parse_json('[' || text || ',{mark}]') END"
    first = (
        f"CASE WHEN try_variant_get(pair, '$[1]', 'bigint') = {mark}"
        " THEN try_variant_get(pair, '$[0]', 'variant') END"
    )
    return stream.withColumn("pair", f.expr(pair)).withColumn("variant", f.expr(first))


def is_json(rows: DataFrame) -> Column:
    """Whether the payload is one JSON object in UTF-8, as its content type says."""
    text = "try_validate_utf8(cast(payload AS string))"
    mark = secrets.randbelow(2**62) + 2**60
    pair = f"try_parse_json('[' || {text} || ',{mark}]')"
    found = (
        f"{JSON} AND ltrim({text}) LIKE '{{%'"
        f" AND try_variant_get({pair}, '$[1]', 'bigint') = {mark}"
    )
    return f.expr(f"coalesce({found}, false)")


def named(rows: DataFrame, files: Sequence[SpoolFile]) -> DataFrame:
    """*rows*, which are of *files*, with the incarnations that gave them.

    No node has two of them in *files*: see `layers`.
    """
    by = {file.node: file.incarnation for file in files}
    pairs = [f.lit(text) for pair in by.items() for text in pair]
    found = f.try_element_at(f.create_map(*pairs), f.col("node").cast("string"))
    return rows.withColumn("incarnation", found)


def layers(files: Sequence[SpoolFile]) -> list[list[SpoolFile]]:
    """*files* in as few parts as it takes that no node has two incarnations in one."""
    found: list[tuple[dict[str, str], list[SpoolFile]]] = []
    for file in files:
        for by, mine in found:
            if by.setdefault(file.node, file.incarnation) == file.incarnation:
                mine.append(file)
                break
        else:
            found.append(({file.node: file.incarnation}, [file]))
    return [mine for _, mine in found]


def without(rows: DataFrame, left_out: Ranges) -> DataFrame:
    """*rows* without the events of *left_out*, which may be thousands of single ones."""
    from gateway.spark.later.erasure import as_sql

    for condition in as_sql(left_out):
        rows = rows.where(f"NOT ({condition})")
    return rows


def resent(rows: DataFrame, again: Ranges) -> DataFrame:
    """*rows* with the events of *again* in quarantine, as sent twice."""
    from gateway.spark.later.erasure import as_sql

    found = f.lit(False)
    for condition in as_sql(again):
        found = found | f.expr(condition)
    mine = found & (f.col("table") != QUARANTINE)
    return rows.withColumns(
        {
            "flaw": f.when(mine, f.lit(RESENT)).otherwise(f.col("flaw")),
            "table": f.when(mine, f.lit(QUARANTINE)).otherwise(f.col("table")),
        }
    )


def _inside(life: Life, first: int, last: int) -> Column:
    mine = (f.col("node") == life.node) & (_incarnation() == life.incarnation)
    return mine & f.col("lsn").between(first, last)


def _incarnation() -> Column:
    return f.coalesce(f.col("incarnation"), f.lit(""))


def within(rows: DataFrame, wanted: Ranges) -> DataFrame:
    """The events of *wanted* among *rows* of a table."""
    found = f.lit(False)
    for life, first, last in wanted:
        found = found | _inside(life, first, last)
    return rows.where(found)


def ranges(rows: DataFrame) -> Ranges:
    """The events in *rows* of a table: their lsns, by node and incarnation."""
    names = ("node", "incarnation")
    numbered = rows.select(
        "node", _incarnation().alias("incarnation"), "lsn"
    ).distinct()
    order = Window.partitionBy(*names).orderBy("lsn")
    runs = numbered.withColumn("run", f.col("lsn") - f.row_number().over(order))
    spans = runs.groupBy(*names, "run").agg(f.min("lsn"), f.max("lsn"))
    found = Ranges()
    for node, incarnation, _, first, last in spans.collect():
        found.add(Life(node, incarnation), first, last)
    return found


def counted(rows: DataFrame, window: float) -> DataFrame:
    """Rows of `stats` for events of a batch; a window has *window* seconds."""
    width = round(window * 1e6)
    start = f"timestamp_micros(unix_micros(received_at) div {width} * {width})"
    keyed = rows.withColumn("window_start", f.expr(start))
    keyed = keyed.withColumn(
        "window_end", f.expr(f"timestamp_micros(unix_micros(window_start) + {width})")
    )
    keyed = keyed.withColumn("date", f.expr("cast(window_start AS date)"))
    keys = ["window_start", "window_end", "listener", "channel", "protocol", "date"]
    if TABLE in rows.columns:
        keys.append(TABLE)
    sums = {
        "events": "count(*)",
        "payload_bytes": "cast(sum(payload_bytes) AS bigint)",
        "flawed": "count(flaw)",
    }
    grouped = keyed.groupBy(*keys).agg(
        *(f.expr(sql).alias(name) for name, sql in sums.items())
    )
    return grouped.coalesce(1).select(*keys[:4], *sums, *keys[4:])
