"""The README's table has nothing that `bench/table.py` did not print."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
sys.path.insert(0, str(ROOT / "bench"))

import _lines  # noqa: E402
import table  # noqa: E402

sys.path.remove(str(ROOT / "bench"))

FIRST, SECOND = _lines.LINES[:2]
HERE = {"day": "2026-11-23", "cpu": "one", "cores": "2", "run": "whole"}


def of(line: _lines.Line, value: float = 1.0) -> dict[str, float]:
    return dict.fromkeys(line.fields, value)


def test_the_readme_has_the_table_of_the_figures_of_record() -> None:
    assert table.recorded()
    assert table.in_readme(README) == _lines.table(table.recorded())


def test_the_readme_has_no_figures_beside_that_table() -> None:
    _, _, section = README.partition("## Measured\n")
    section = section.partition("\n## ")[0]
    assert table.in_readme(section)
    assert "|" not in table.with_table(section, "")


@pytest.mark.parametrize("line", _lines.LINES, ids=lambda line: line.case)
def test_a_line_says_all_its_numbers_and_has_a_measurement(line: _lines.Line) -> None:
    templates = [line.figure, *line.beside]
    assert set().union(*map(_lines.needed, templates)) == line.fields.keys()
    assert line.measurement in _lines.MEASUREMENTS
    assert "{" not in line.said(of(line))


def test_no_two_lines_are_of_one_case() -> None:
    cases = [line.case for line in _lines.LINES]
    assert len(cases) == len(set(cases))


def test_every_number_of_a_line_is_one_that_its_benchmark_names() -> None:
    """As far as its source says: names are made of a case and of what is there."""
    for line in _lines.LINES:
        script = _lines.MEASUREMENTS[line.measurement].script
        source = sources(script)
        for field in line.fields.values():
            tail = re.sub(r"^floor: |^[a-z0-9-]+: ", "", field.name)
            tail = re.sub(r", (p\d+)$", "", tail)
            tail = re.sub(r"\d+ B$", "{size} B", tail)
            assert tail in source, f"{script}: {field.name}"


def sources(script: str) -> str:
    names = [script, "_report", "_machine", "_run"]
    return "".join((ROOT / "bench" / f"{name}.py").read_text("utf-8") for name in names)


def test_what_was_not_measured_beside_it_is_left_out() -> None:
    """Without Go there is no go-lumber to compare with, and still a rate."""
    numbers = {
        field.name: 2.0
        for field in FIRST.fields.values()
        if "go-lumber" not in field.name
    }
    values = FIRST.values(numbers)
    assert values is not None
    assert "sustained" in FIRST.said(values)
    assert "go-lumber" not in FIRST.said(values)


def test_a_figure_that_was_not_measured_is_no_line() -> None:
    assert FIRST.values({}) is None


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (705_248.3, "705,000"), (14_340, "14,300"), (1000.4, "1,000"), (264.4, "264"),
        (29.4, "29"), (3.5, "3.5"), (1.0, "1.0"), (0.0019, "0.0019"),
        (float("inf"), "∞"),
    ],
)  # fmt: skip
def test_numbers_are_said_with_as_many_digits_as_they_are_good_for(
    number: float, text: str
) -> None:
    assert _lines.said(number) == text


@pytest.mark.parametrize(
    ("better", "now", "worse"),
    [
        (1, 89.0, True), (1, 91.0, False), (1, 200.0, False),
        (-1, 111.0, True), (-1, 109.0, False), (-1, 50.0, False),
        (0, 1.0, False), (0, 1000.0, False),
    ],
)  # fmt: skip
def test_worse_is_what_is_more_than_a_tenth_worse(
    better: int, now: float, worse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = _lines.Line("case", "beats", "{x}", [], {"x": _lines.Field("n", better)})
    monkeypatch.setattr(_lines, "LINES", [line])
    was = {"case": {"values": {"x": 100.0}}}
    assert bool([*_lines.worse(was, {"case": {"x": now}})]) is worse


def test_what_has_no_record_is_not_worse() -> None:
    assert not [*_lines.worse({}, {FIRST.case: of(FIRST)})]


def test_it_says_what_is_worse_by_how_much_and_than_what() -> None:
    was = {FIRST.case: {**HERE, "values": of(FIRST, 100.0)}}
    now = {FIRST.case: {**HERE, "values": {**of(FIRST, 100.0), "rate": 80.0}}}
    head, what = table.compared(was, now)
    assert "2026-11-23, one, 2 cores, a whole run" in head
    assert "100 → 80 (20 % less)" in what
    assert FIRST.case in what


def test_a_record_of_some_lines_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "RECORD", tmp_path / "results.json")
    monkeypatch.setattr(table, "README", tmp_path / "README.md")
    table.README.write_text(README, "utf-8")
    table.write({SECOND.case: {**HERE, "values": of(SECOND, 7.0)}})
    record = table.recorded(table.RECORD)
    table.write(record | {FIRST.case: {**HERE, "values": of(FIRST, 3.0)}})
    assert [*json.loads(table.RECORD.read_text("utf-8"))] == [FIRST.case, SECOND.case]
    rows = table.in_readme(table.README.read_text("utf-8")).splitlines()
    assert [row.split(" | ")[0][2:] for row in rows[2:]] == [FIRST.case, SECOND.case]
    assert "7.0" in rows[3]
    assert "3.0" in rows[2]
    without = [
        table.with_table(text, "") for text in (README, table.README.read_text())
    ]
    assert without[0] == without[1]
