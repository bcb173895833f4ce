"""Tables by rule, from the spool on: rules, counts, and all that rewrites tables later."""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from gateway.audit import audit
from gateway.audit.content import find_resent
from gateway.cli import main
from gateway.config.tables import TableByRule
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken
from gateway.spark.later import requeue
from gateway.spark.later.backfill import Folders
from gateway.spark.later.compact import compact
from gateway.spark.later.deletion import Asked, delete
from gateway.store.directories import Directories
from gateway.store.readers.lake import tables_of

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
    assert (report.complete, report.deleted, report.expired) == (True, 6, 1)


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


def test_a_command_for_one_table(settings_file, capsys):
    """It says which tables there are."""
    path = settings_file(tables={"orders": ORDERS})
    given = ["--config", str(path), "--table"]
    assert main(["spark", "backfill", *given, "order"]) == 2
    assert "no order; there is: events, orders, quarantine" in capsys.readouterr().err
    assert main(["spark", "compact", *given, "events"]) == 2
