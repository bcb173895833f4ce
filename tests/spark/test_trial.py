"""`gateway test` with Spark: input through a listener to rows of the tables."""

import json

import pytest

from gateway.cli import main
from gateway.spark.jvm import session

pytestmark = pytest.mark.spark

GATEWAY = """
data_dir: data
listeners:
  - {name: beats, protocol: lumberjack, listen: "tcp:127.0.0.1:1",
     limits: {message_bytes: 1KiB}}
  - {name: game, protocol: pomelo, listen: "tcp:127.0.0.1:2"}
spark:
  columns: {degrees: {path: room.temperature, type: double}}
"""
PAYLOAD = {"message": "hello", "room": {"temperature": "21.5"}}
CASES = [
    {
        "listener": "beats",
        "input": {"events": [PAYLOAD, {"message": "x" * 2000}, "no json"]},
        "expect": [{"seq": 1}, {"flaw": "oversized"}, {}],
        "tables": [
            {
                "table": "events",
                "message": "hello",
                "degrees": 21.5,
                "host": None,
                "body": PAYLOAD,
                "payload": None,
                "event_time_source": "received_at",
                "date": "2023-11-14",
            },
            {"table": "quarantine", "flaw": "oversized", "body": None},
            {"table": "quarantine", "payload": "no json", "body": None},
        ],
    },
    {
        "listener": "beats",
        "input": {"events": [{"@timestamp": "2026-11-23T07:00:00.5+01:00"}]},
        "tables": [{"event_time": "2026-11-23T06:00:00.500000Z"}],
    },
    {
        "listener": "game",
        "input": {"events": [{"x": 1}]},
        "only": {"kind": "request"},
        "with": ["--route", "area.move"],
        "tables": [{"channel": "area.move", "body": {"x": 1}, "protocol": "pomelo"}],
    },
    {"listener": "beats", "input": {"hex": "ffff"}, "refused": "", "tables": []},
    {
        "listener": "beats",
        "input": {"events": [PAYLOAD, PAYLOAD]},
        "tables": [{"degrees": 22, "degree": 21.5}],
    },
]


def test_rows_of_the_tables(spark, tmp_path, monkeypatch, capsys):
    """As the job would make them, by the configuration's columns; what differs is told,
    and so is a row that nobody expects.
    """
    (tmp_path / "gateway.yaml").write_text(GATEWAY)
    file = tmp_path / "tests.yaml"
    named = [{"name": str(number), **case} for number, case in enumerate(CASES)]
    file.write_text(json.dumps({"config": "gateway.yaml", "tests": named}))
    monkeypatch.setattr(session, "start", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    status = main(["test", "--json", str(file)])
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(said) == len(CASES)
    *fine, wrong = said
    assert [each["faults"] for each in fine] == [[]] * 4
    value, column, more = wrong["faults"]
    assert value == "tables, row 1: degrees: expected 22, got 21.5"
    assert column.startswith("tables, row 1: no column 'degree'; there is: node, ")
    assert more.startswith("tables, row 2: not expected: ")
    assert '"degrees": 21.5' in more
    assert status == 1
