"""Tables by rule in the job: the same answers as `gateway test` has, and columns of their own."""

import json
from functools import partial

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pydantic import TypeAdapter
from pyspark.sql import functions as f

from gateway.config.tables import TableByRule
from gateway.spark.rows import tables
from gateway.spark.rows.columns import Columns, Source
from gateway.spark.rows.fields import Wanted, function, judge
from gateway.spark.run.failure import reason
from gateway.spark.source import SCHEMA_DDL
from rule_vectors import vectors

pytestmark = pytest.mark.spark

VECTORS = vectors()
TABLES = TypeAdapter(dict[str, TableByRule])


def test_rules_take_what_the_vectors_say(spark):
    """The same vectors hold `gateway test` to the same answers, in tests/config/test_tables.py."""
    where = {name: {"where": one} for name, one in VECTORS["tables"].items()}
    columns = Columns(tables=TABLES.validate_python(where))
    find = function(spark, columns.keys, rules=columns.asked(), columns=columns.count)
    rows = spark.createDataFrame(
        [{**event, "n": n} for n, event in enumerate(VECTORS["events"])],
        "n int, protocol string, listener string, channel string, principal string,"
        " attributes map<string, string>, content_type string, payload string",
    ).withColumn("payload", f.encode("payload", "UTF-8"))
    json_only = f"CASE WHEN {tables.JSON} THEN {find}(payload) END"
    rules = columns.rules(partial(judge, spark))
    judged = rows.withColumn("j", f.expr(json_only)).select(
        "n", *(f.expr(rule).alias(name) for name, rule in rules.items())
    )
    for row in judged.collect():
        event = VECTORS["events"][row["n"]]
        taken_by = [name for name in rules if row[name]]
        assert taken_by == event["taken_by"], event["payload"]


def test_an_expression_that_only_the_configuration_takes(spark):
    """Java's RE2 knows scripts of an older Unicode; what it lacks is named when the job starts."""
    with pytest.raises(Py4JJavaError, match="Kawi") as why:
        judge(spark, Wanted("\\p{Kawi}", expression=True))
    assert "spark.tables: error parsing regexp" in reason(why.value)


def test_a_rule_changes_no_column(spark, make_envelope, tmp_path):
    """Where it looks below an object, that is still the value of a column."""
    labels = Source(("labels",), "json")
    rules = {"web": {"where": {"path": "labels.app", "equals": "x"}}}
    columns = Columns({"labels": labels}, tables=TABLES.validate_python(rules))
    sent = make_envelope(
        "gw", 1, [b'{"labels": {"app": "x", "n": [1, {}]}}', b'{"labels.app": "x"}']
    )
    pq.write_table(sent, tmp_path / "sent.parquet")
    rows = spark.read.schema(SCHEMA_DDL).parquet(str(tmp_path / "sent.parquet"))
    made = tables.events(rows, "json", columns).orderBy("lsn")
    found = [tuple(row) for row in made.select("table", "labels").collect()]
    assert found == [("web", '{"app":"x","n":[1,{}]}'), ("web", None)]


def test_a_table_has_columns_of_its_own(spark, make_envelope, tmp_path):
    """They are null in other tables, where a value that does not fit is no misfit; one that
    all tables have is looked for elsewhere in this one.
    """
    given = {
        "orders": {
            "where": {"path": "kind", "equals": "order"},
            "columns": {
                "total": {"path": "total", "type": "int"},
                "message": {"path": "note"},
            },
        },
        "chat": {
            "where": {"path": "kind", "equals": "chat"},
            "columns": {"total": {"path": "words", "type": "int", "default": 0}},
        },
    }
    payloads = [
        {"kind": "order", "total": 7, "note": "a note", "message": "a message"},
        {"kind": "order", "total": "seven", "words": 3},
        {"kind": "chat", "total": "seven", "message": "a message"},
        {"kind": "other", "total": 7, "words": "none"},
    ]
    sent = make_envelope("gw", 1, [json.dumps(one).encode() for one in payloads])
    pq.write_table(sent, tmp_path / "sent.parquet")
    rows = spark.read.schema(SCHEMA_DDL).parquet(str(tmp_path / "sent.parquet"))
    columns = Columns(tables=TABLES.validate_python(given))
    made = tables.events(rows, "json", columns).orderBy("lsn")
    found = [
        tuple(row)
        for row in made.select("table", "total", "message", "misfits").collect()
    ]
    assert found == [
        ("orders", 7, "a note", None),
        ("orders", None, None, "total"),
        ("chat", 0, "a message", None),
        ("events", None, None, None),
    ]
