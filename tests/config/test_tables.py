"""Tables by rule: what a rule takes, what is refused, and where."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from gateway.config import load
from gateway.config.problems import Invalid
from gateway.config.tables import TableByRule, columns_of_all, table_of, taking
from gateway_testkit.daemon import listener
from rule_vectors import vectors

VECTORS = vectors()
TABLES = TypeAdapter(dict[str, TableByRule])


def tables(**where: Any) -> dict[str, TableByRule]:
    return TABLES.validate_python({name: {"where": one} for name, one in where.items()})


def test_rules_take_what_the_vectors_say():
    """The same vectors hold the job to the same answers, in tests/spark/test_tables_by_rule.py."""
    rules = tables(**VECTORS["tables"])
    for event in VECTORS["events"]:
        row = {**event, "payload": event["payload"].encode()}
        assert [*taking(rules, row)] == event["taken_by"], event["payload"]


def test_the_first_table_of_the_file_has_an_event():
    """Flawed events follow no rule, and what none takes is in events."""
    rules = tables(
        late={"path": "a", "equals": "x"}, early={"path": "a", "matches": "x"}
    )
    event = {"content_type": "application/json", "payload": b'{"a": "x"}', "flaw": None}
    assert table_of(rules, event) == "late"
    assert table_of(dict(reversed(rules.items())), event) == "early"
    assert table_of(rules, {**event, "flaw": "oversized"}) == "quarantine"
    assert table_of(rules, {**event, "payload": b"{}"}) == "events"


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"orders": {}}, "orders.where", "is required"),
    ({"orders": {"where": []}}, "orders.where", "must have a condition"),
    (
        {"orders": {"where": {"equals": "x"}}},
        "orders.where",
        "needs one of path, field",
    ),
    (
        {"orders": {"where": {"path": "a", "field": "channel", "equals": "x"}}},
        "orders.where",
        "needs one of path, field",
    ),
    ({"orders": {"where": {"path": "a"}}}, "orders.where", "needs one of equals"),
    (
        {"orders": {"where": {"path": "a..b", "equals": 1}}},
        "orders.where.path",
        "must be keys joined by dots",
    ),
    (
        {"orders": {"where": [{"path": "a", "matches": "(?=x)"}]}},
        "orders.where[0].matches",
        "is no regular expression of RE2: invalid perl operator",
    ),
    (
        {"orders": {"where": {"path": "a", "matches": "(?<n>x)"}}},
        "orders.where.matches",
        "a group is named (?P<name>",
    ),
    (
        {"orders": {"where": {"field": "peer", "equals": "x"}}},
        "orders.where.field",
        "must be protocol, listener, channel or principal",
    ),
    ({"events": {"where": {"path": "a", "equals": 1}}}, "events", "is something else"),
    ({"Orders": {"where": {"path": "a", "equals": 1}}}, "Orders", "lower case letters"),
    (
        {
            "orders": {
                "where": {"path": "a", "equals": 1},
                "columns": {"status": {"path": "s", "type": "long"}},
            }
        },
        "orders.columns.status",
        "must be of type int, as it is in other tables",
    ),
    (
        {
            "orders": {
                "where": {"path": "a", "equals": 1},
                "columns": {"lsn": {"path": "s"}},
            }
        },
        "orders.columns.lsn",
        "is a column of the event itself",
    ),
    (
        {
            "orders": {
                "where": {"path": "a", "equals": 1},
                "columns": {"uid": {"path": "s"}},
            }
        },
        "orders.columns.uid",
        "is a column of a protocol's own",
    ),
    (
        {f"t{n}": {"where": {"path": "a", "equals": n}} for n in range(21)},
        "spark.tables",
        "must be at most 20 tables",
    ),
]


def config(tmp_path: Path, **spark: Any) -> Any:
    path = tmp_path / "gateway.yaml"
    settings = {
        "data_dir": str(tmp_path),
        "listeners": [listener("beats", "lumberjack")],
        "spark": {"columns": {"status": {"path": "status", "type": "int"}}, **spark},
    }
    path.write_text(json.dumps(settings))
    return load(path)


@pytest.mark.parametrize(("given", "where", "why"), WRONG)
def test_what_can_not_be_is_refused(tmp_path, given, where, why):
    """Each mistake is told at its place, before any Java starts."""
    with pytest.raises(Invalid) as raised:
        config(tmp_path, tables=given)
    assert where in str(raised.value)
    assert why in str(raised.value)


def test_other_kinds_of_tables_have_none(tmp_path):
    """A function divides rows itself, and of several jobs on a table none does."""
    given = {"orders": {"where": {"path": "a", "equals": 1}}}
    with pytest.raises(Invalid, match=r"needs spark\.sink: parquet or delta"):
        config(tmp_path, tables=given, sink="mine:put")
    with pytest.raises(Invalid, match="is for one job alone"):
        config(tmp_path, tables=given, sink="iceberg", job="a")
    assert config(tmp_path, tables=given, sink="delta").spark.tables


def test_columns_of_all_tables(tmp_path):
    """What has a column in one table needs no suggestion."""
    total = {"path": "total", "type": "decimal(10,2)"}
    given = {
        "orders": {"where": {"path": "a", "equals": 1}, "columns": {"total": total}}
    }
    assert [*columns_of_all(config(tmp_path, tables=given).spark)] == [
        "total",
        "status",
    ]
