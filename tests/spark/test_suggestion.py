"""Columns that events of late might have: `gateway spark columns --suggest`."""

import json
from typing import Any

import pytest
import yaml

from gateway.cli import main
from gateway.config.columns import Column
from gateway.config.spark import Spark
from gateway.spark.rows.suggestion import Sent, Suggestion, Survey
from gateway_testkit.settings import options_of


def surveyed(events: list[Any], **chosen: Any) -> tuple[Survey, dict[str, Suggestion]]:
    """Each event from a listener of its own kind: what is a pair says which."""
    survey = Survey(chosen)
    for event in events:
        of, sent = event if isinstance(event, tuple) else ("beats", event)
        survey.add(Sent(of, "lumberjack", json.dumps(sent)))
    return survey, {one.path: one for one in survey.suggestions()}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, None], "long"),
        ([1, 2.5], "double"),
        ([True, False], "boolean"),
        ([2**40, 2**70], "decimal(38,0)"),
        (["a", "1"], "string"),
        (["2026-03-01T12:00:00Z", "2026-03-01"], "timestamp"),
        (["2026-03-01"], "date"),
        (["2026-03-01", "soon"], "string"),
        ([95, "low"], "string"),
        ([True, 1], "string"),
        ([["a"], "b", []], "list<string>"),
        ([[1], [2.5]], "list<double>"),
        ([[1, None], 2], "list<long>"),
        ([["a", 1]], "list<string>"),
        ([[{"a": 1}], []], "json"),
        ([[[1]]], "json"),
        ([[]], "list<string>"),
    ],
)
def test_the_type_is_the_widest_that_fits(values, kind):
    """Of all values at a path; whole numbers begin as long."""
    _, found = surveyed([{"v": value} for value in values])
    assert found["v"].type == kind


def test_a_value_of_another_kind_is_told():
    """How many there are and which, so that the narrow type may be taken all the same."""
    _, found = surveyed([{"bat": 95}] * 9 + [{"bat": "low"}, {"bat": {"v": 1}}])
    (bat, below) = found["bat"], found["bat.v"]
    assert bat.remarks == (
        "e.g. 95",
        "1 times an object instead",
        'as long 1 would be misfits, as "low"',
    )
    assert (bat.counts, below.type) == ({("beats", "lumberjack"): 10}, "long")


def test_nested_and_dotted_keys_are_one_path():
    """As they are one for a column; what has no path is left out."""
    sent = [{"a": {"b.c": 1}}, {"a.b": {"c": 2}}, {"a.b.c": 3.5}, {"": 1, "x..y": 1}]
    _, found = surveyed(sent)
    assert {path: one.type for path, one in found.items()} == {"a.b.c": "double"}


def test_names_are_those_of_columns():
    """Lower case, no words of the event or of YAML, each once; keys in quotes where they must
    be.  All of it is what spark.columns takes."""
    sent = {
        "userId": 1,
        "user": {"id": 2},
        "kind": "k",
        "host_sent": 1,
        "null": "n",
        "2fa": True,
        "labels": {"app.kubernetes.io/name": "web", 'say "hi"': 1, "items[0]": 2},
        "Größe": 3,
    }
    survey, found = surveyed([sent])
    text = "\n".join(one.line(survey.events) for one in found.values())
    columns = yaml.safe_load(text)
    assert {name: one["path"] for name, one in columns.items()} == {
        "user_id": "user.id",
        "user_id_sent": "userId",
        "kind_sent": "kind",
        "host_sent": "host_sent",
        "null": "null",
        "n_2fa": "2fa",
        "labels_app_kubernetes_io_name": "labels.app.kubernetes.io/name",
        "labels_items_0": '"labels"."items[0]"',
        "labels_say_hi": 'labels.say "hi"',
        "gr_e": "Größe",
    }
    options_of(Spark, columns={name: Column(**one) for name, one in columns.items()})


def test_columns_that_there_are_need_none():
    """The usual ones, and those of the configuration."""
    sent = {"@timestamp": "2026-03-01T12:00:00Z", "message": "m", "a": 1, "b": 2}
    _, found = surveyed([sent], mine=Column(path=["x", "a"]), message=None)
    assert set(found) == {"b", "message"}


def test_coverage_is_by_listener():
    """What few events of every listener have is counted, and left out."""
    sent = [("game", {"points": 1})] + [{"level": "info"}] * 300 + [{"rare": 1}]
    survey, found = surveyed(sent)
    assert {path: [*one.counts.values()] for path, one in found.items()} == {
        "points": [1],
        "level": [300],
    }
    assert survey.left_out == 1
    assert found["points"].line(survey.events).endswith("# 100% of game; e.g. 1")


def test_keys_that_are_data_are_one_column():
    """However many there are: 10,000 of one object, or of the events of one sender."""
    many = [{"users": {f"u{n}": {"x": n}}, "n": n} for n in range(10_000)]
    _, found = surveyed(many)
    assert {path: one.type for path, one in found.items()} == {
        "n": "long",
        "users": "json",
    }
    assert "ever new keys" in found["users"].remarks[1]
    survey, found = surveyed([{f"k{n}": n, "n": n} for n in range(10_000)])
    assert set(found) == {"n"}
    assert survey.too_many == [("beats", "lumberjack")]
    survey, found = surveyed([{f"k{n}": n for n in range(2000)}] * 3)
    assert len(found) == 300
    many = [{"notes": {f"example.org/{n}": n}, f"x.{n}": n} for n in range(10_000)]
    survey, found = surveyed(many)
    assert {path: one.type for path, one in found.items()} == {"notes": "json"}


@pytest.mark.parametrize("where", ["spool", "archive", "lake/events", "a file"])
def test_the_command(where, settings_file, make_spool, tmp_path, capsys):
    """Reads what waits and what is archived, else the tables, or what is named; prints YAML."""
    folder = tmp_path / ("data" if where != "a file" else "other") / where
    spool = make_spool(folder)
    file = spool.put(
        "gw", 1, [b'{"status": 200}', b"{nope", b"[1]", b'{"status": 404}']
    )
    named = [str(file)] if where == "a file" else []
    config = settings_file()
    assert main(["spark", "columns", *named, "--suggest", "--config", str(config)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# 2 events with JSON objects: 2 of beats (lumberjack)\n")
    assert yaml.safe_load(said) == {"status": {"path": "status", "type": "long"}}
    main(["spark", "columns", *named, "--suggest", "--json", "--config", str(config)])
    (column,) = json.loads(capsys.readouterr().out)["columns"]
    assert column["events"] == [["beats", "lumberjack", 2]]
    assert main(["spark", "columns", "--config", str(config)]) == 2
