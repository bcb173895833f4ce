"""Events as rows of a table in PostgreSQL, each once: `spark.sink: to_postgres:put`.

    pip install 'psycopg[binary]'
    createdb events && psql events < examples/recipes/to_postgres.sql
    PYTHONPATH=examples/recipes EVENTS_DSN='dbname=events' gateway spark --config gateway.yaml

A batch is one transaction: its rows go to a table that is gone at the end, and from there
to `events`, whose key is (node, incarnation, lsn).  What is there already is passed over; so a batch
that comes again, after a crash or an answer that was lost, adds nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from gateway.spark.own import Context

__all__ = ["put"]

_TEXTS = ("host", "message", "body", "flaw")

_COPY = """
CREATE TEMPORARY TABLE staged (node text, incarnation text, lsn bigint,
    event_micros bigint, protocol text, host text, message text, body text, flaw text) ON COMMIT DROP
"""
_MOVE = """
INSERT INTO events (node, incarnation, lsn, event_time, protocol, host, message, body, flaw)
SELECT node, coalesce(incarnation, ''), lsn,
    timestamptz 'epoch' + event_micros * interval '1 microsecond',
    protocol, host, message, body, flaw FROM staged
ON CONFLICT (node, incarnation, lsn) DO NOTHING
"""
_COUNT = """
SELECT count(*) FROM events WHERE node = %s AND incarnation = %s AND lsn BETWEEN %s AND %s
"""


def put(batch: DataFrame, context: Context) -> None:
    """Have the rows of *batch* in the table, durably.  Raises `psycopg.Error`."""
    rows = batch.selectExpr(
        *("node", "incarnation", "lsn", "unix_micros(event_time)", "protocol"),
        *_TEXTS,
    )
    with psycopg.connect(os.environ["EVENTS_DSN"]) as database:
        database.execute(_COPY)
        with database.cursor().copy("COPY staged FROM STDIN") as copy:
            for row in rows.toLocalIterator(prefetchPartitions=True):
                copy.write_row([_kept(value) for value in row])
        database.execute(_MOVE)
        there = 0
        for node, lives in context.names.items():
            for incarnation, spans in lives.items():
                for name in ((node, incarnation, *span) for span in spans):
                    found = database.execute(_COUNT, name).fetchone()
                    assert found is not None
                    there += found[0]
        if there != context.rows:
            raise ValueError(f"{there} of {context.rows} rows are there; rolled back")


def _kept(value: Any) -> Any:
    """PostgreSQL's text has no zero byte; an event may."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(
        value, str
    ) else value  # fmt: skip
