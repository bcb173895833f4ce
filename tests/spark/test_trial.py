"""`gateway test` with Spark: input through a listener to rows of the tables."""

import json
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.spark.jvm import session

pytestmark = pytest.mark.spark

TRIAL = Path(__file__).parents[1] / "vectors" / "trial.yaml"

GATEWAY = """
data_dir: data
listeners:
  - {name: beats, protocol: lumberjack, listen: "tcp:127.0.0.1:1",
     limits: {message_bytes: 1KiB}}
  - {name: game, protocol: pomelo, listen: "tcp:127.0.0.1:2"}
spark:
  columns: {degrees: {path: room.temperature, type: double}}
"""


def test_rows_of_the_tables(spark, tmp_path, monkeypatch, capsys):
    """As the job would make them, by the configuration's columns; what differs is told,
    and so is a row that nobody expects.
    """
    (tmp_path / "gateway.yaml").write_text(GATEWAY)
    file = tmp_path / "tests.yaml"
    file.write_text(TRIAL.read_text().replace("LONG", "x" * 2000))
    monkeypatch.setattr(session, "start", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    status = main(["test", "--json", str(file)])
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(said) == 5
    *fine, wrong = said
    assert [each["faults"] for each in fine] == [[]] * 4
    value, column, more = wrong["faults"]
    assert value == "tables, row 1: degrees: expected 22, got 21.5"
    assert column.startswith("tables, row 1: no column 'degree'; there is: node, ")
    assert more.startswith("tables, row 2: not expected: ")
    assert '"degrees": 21.5' in more
    assert status == 1
