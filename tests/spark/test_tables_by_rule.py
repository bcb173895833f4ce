"""Tables by rule, from the spool on: rules, counts, columns of their own, and all that rewrites
tables later.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pydantic import TypeAdapter
from pyspark.sql import functions as f

from gateway.audit import audit
from gateway.audit.content import find_resent
from gateway.cli import main
from gateway.config.tables import TableByRule
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken
from gateway.spark.jvm import session
from gateway.spark.later import requeue
from gateway.spark.later.backfill import Folders
from gateway.spark.later.compact import compact
from gateway.spark.later.deletion import Asked, delete
from gateway.spark.rows import tables
from gateway.spark.rows.columns import Columns, Source
from gateway.spark.rows.fields import Wanted, function, judge
from gateway.spark.run.failure import reason
from gateway.spark.source import SCHEMA_DDL
from gateway.store.directories import Directories
from gateway.store.readers.lake import tables_of
from rule_vectors import vectors

pytestmark = pytest.mark.spark

TABLES = TypeAdapter(dict[str, TableByRule])
ORDERS = {
    "where": {"path": "kind", "equals": "order"},
    "columns": {"total": {"path": "total", "type": "int"}},
}
CHAT = {"where": [{"path": "kind", "equals": "chat"}]}
PAYLOADS = [
    {"kind": "order", "total": 7, "who": "zoe"},
    {"kind": "chat", "who": "zoe"},
    {"kind": "other", "who": "zoe"},
    {"kind": "order", "total": "many", "who": "bob"},
    {"kind": "chat", "who": "bob"},
    {"kind": "chat", "who": "bob"},
]
OLD = 1_600_000_000_000_000
Rows = Callable[..., list[dict[str, Any]]]
Run = Callable[[], list[Mapping[str, Any]]]


@pytest.fixture
def send(spool, run_once) -> Callable[..., None]:
    """Has a file of `PAYLOADS` put into the tables; the last one is flawed."""

    def put(first: int, received_at: int | None = None) -> None:
        texts = [json.dumps(one).encode() for one in PAYLOADS]
        spool.put("gw", first, texts, flaws={5: "oversized"}, received_at=received_at)
        run_once()

    return put


@pytest.fixture
def lake(config) -> Path:
    config.spool.s3 = None
    config.spark.tables = TABLES.validate_python({"orders": ORDERS, "chat": CHAT})
    return Path(config.data_dir / "lake")


def lsns(rows: Rows, lake: Path) -> dict[str, list[int]]:
    """The lsns in each table."""
    found = {
        name: sorted(row["lsn"] for row in rows(lake / name, "lsn"))
        for name in tables_of(lake).of_events
    }
    return {name: some for name, some in found.items() if some}


def counts(rows: Rows, lake: Path) -> Counter[str | None]:
    """The sum of `events` by table."""
    found: Counter[str | None] = Counter()
    for row in rows(lake / "stats"):
        found[row["table"]] += row["events"]
    return +found


def test_an_event_is_in_the_first_table_that_takes_it(
    lake, send, config, table_rows, capsys, settings_file
):
    """Flawed ones are in quarantine; the counts of a table are its rows, and the audit is complete.

    A rule that is changed moves no row: what comes then follows it, and a table that is no longer
    configured keeps its rows for all readers, after a compaction, too.
    """
    send(1)
    assert lsns(table_rows, lake) == {
        "orders": [1, 4],
        "chat": [2, 5],
        "events": [3],
        "quarantine": [6],
    }
    rows = {row["lsn"]: row for row in table_rows(lake / "orders")}
    assert [(rows[n]["total"], rows[n]["misfits"]) for n in (1, 4)] == [
        (7, None),
        (None, "total"),
    ]
    others = {"where": {"path": "kind", "matches": "^o"}}
    config.spark.tables = TABLES.validate_python({"others": others, "orders": ORDERS})
    send(7)
    expected = {
        "orders": [1, 4],
        "others": [7, 9, 10],
        "chat": [2, 5],
        "events": [3, 8, 11],
        "quarantine": [6, 12],
    }
    assert lsns(table_rows, lake) == expected
    assert counts(table_rows, lake) == {name: len(n) for name, n in expected.items()}
    assert audit(Directories.under(config.data_dir)).complete
    assert find_resent(lake).problems == []
    done = list(compact(lake, Lake(), before=date(2100, 1, 1)))
    assert {one.day.partition("/")[0] for one in done} >= {"events", "stats"}
    assert lsns(table_rows, lake) == expected
    assert counts(table_rows, lake) == {name: len(n) for name, n in expected.items()}
    where = ["--config", str(settings_file()), "--no-wait", "--json"]
    assert main(["table", "chat", *where]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["protocol"] for line in said] == ["lumberjack"] * 2
    assert main(["table", "nothing", *where]) == 2
    assert "there is: events, orders, chat, others, quarantine, stats" in (
        capsys.readouterr().err
    )


def test_what_comes_later(lake, send, config, spark, table_rows):
    """A person is deleted from all tables, that of before, too; days go by the retention of each;
    a column is filled in one table; a row whose flaw is accepted goes where its rule says.
    """
    send(1, OLD)
    send(7)
    tables = {
        "orders": {**ORDERS, "retention": "1d"},
        "chat": {**CHAT, "columns": {"author": {"path": "who"}}},
    }
    config.spark.tables = TABLES.validate_python(tables)
    assert list(Folders(spark, config, Lake(), ["author"], ["chat"]).run())
    assert {row["author"] for row in table_rows(lake / "chat")} == {"zoe", "bob"}
    assert "author" not in table_rows(lake / "orders")[0]

    config.spark.tables["new"] = config.spark.tables["chat"]
    with pytest.raises(Broken, match="has not begun new yet"):
        requeue.rows(spark, config, Lake(), ["oversized"])
    del config.spark.tables["new"]
    done = requeue.rows(spark, config, Lake(), ["oversized"])
    assert done.fine == 2
    before = {"orders": [1, 4, 7, 10], "chat": [2, 5, 6, 8, 11, 12], "events": [3, 9]}
    assert lsns(table_rows, lake) == before
    assert counts(table_rows, lake) == {name: len(n) for name, n in before.items()}
    assert sum(row["flawed"] for row in table_rows(lake / "stats")) == 0

    del tables["chat"]
    config.spark.tables = TABLES.validate_python(tables)
    asked = Asked("body LIKE '%zoe%'", "case 1")
    [(_, data)] = delete(config, spark, Lake(), asked)
    assert data["counts"].items() >= {"lake/orders": 2, "lake/chat": 2}.items()
    after = {"orders": [4, 10], "chat": [5, 6, 11, 12]}
    assert lsns(table_rows, lake) == after
    assert counts(table_rows, lake) == {name: len(n) for name, n in after.items()}

    send(13)
    assert lsns(table_rows, lake)["orders"] == [10, 13, 16]
    assert 5 in lsns(table_rows, lake)["chat"]
    report = audit(Directories.under(config.data_dir))
    assert report.complete
    assert (report.count("deleted"), report.count("expired")) == (6, 1)


def test_what_was_sent_twice_is_in_quarantine(
    lake, spool, run_once, config, table_rows
):
    """Of whatever table the first one is, and whether the job was started again meanwhile."""
    config.spark.deduplicate = True
    place = {"agent": {"id": "a"}, "log": {"file": {"path": "/x"}, "offset": 0}}
    texts = [
        json.dumps({**place, "kind": kind}).encode() for kind in ("order", "other")
    ]
    texts = [one.replace(b": 0}", b": %d}" % n) for n, one in enumerate(texts)]
    now = int(time.time() * 1e6)
    for first in (1, 3):
        spool.put("gw", first, texts, received_at=now)
        run_once()
    assert lsns(table_rows, lake) == {
        "orders": [1],
        "events": [2],
        "quarantine": [3, 4],
    }
    assert {row["flaw"] for row in table_rows(lake / "quarantine")} == {"resent"}


def test_a_command_for_one_table(settings_file, capsys, monkeypatch):
    """It says which tables there are, and starts no Java for one that is none."""
    monkeypatch.setattr(session, "of", None)
    path = settings_file(tables={"orders": ORDERS})
    given = ["--config", str(path), "--table"]
    assert main(["spark", "backfill", *given, "order"]) == 2
    assert "no order; there is: events, orders, quarantine" in capsys.readouterr().err
    assert main(["spark", "compact", *given, "events"]) == 2


VECTORS = vectors()


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
