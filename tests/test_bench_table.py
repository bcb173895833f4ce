"""Pages have no figures but those that `bench/table.py` wrote into them."""

import ast
import contextlib
import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))

import _lines  # noqa: E402
import _pages  # noqa: E402
import table  # noqa: E402

sys.path.remove(str(ROOT / "bench"))

FIRST, SECOND = _lines.LINES[:2]
PAGES = list(_pages.pages())
CLAIMING = [
    page for page in PAGES if page.name != "design.md" and page.parent.name != "adr"
]
MEASURED = re.compile(r"(?<![\w.,])(\d[\d.,]*)(?: M| k| million)? ?(events/s|µs)(?!\w)")
"""A figure that no comment follows."""
EXAMPLE = re.compile(r"[1-9]0*(,000)*")
RESULTS = re.compile(r"(\d[\d,]*(?:\.\d+)?)<!-- bench/RESULTS.md -->")
HERE = {"day": "2026-11-23", "cpu": "one", "cores": "2", "run": "whole"}


def test_benchmarks_take_what_there_is():
    """Some take an hour, and nobody runs them each day: a name that the gateway has no
    more is missed here.
    """
    pytest.importorskip("pyspark")
    for path in (ROOT / "bench").glob("*.py"):
        code, modules = list(ast.walk(ast.parse(path.read_text()))), {}
        for node in code:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(
                "gateway"
            ):
                there = importlib.import_module(str(node.module))
                for name in (each.name for each in node.names):
                    with contextlib.suppress(ModuleNotFoundError):
                        importlib.import_module(f"{node.module}.{name}")
                    assert hasattr(there, name), f"{path.name}: {node.module}.{name}"
                    modules[name] = getattr(there, name)
        for node in code:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                of = modules.get(node.value.id)
                known = not isinstance(of, ModuleType) or hasattr(of, node.attr)
                assert known, f"{path.name}: {node.value.id}.{node.attr}"


def of(line: _lines.Line, value: float = 1.0) -> dict[str, float]:
    return dict.fromkeys(line.fields, value)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_the_figures_of_record(page):
    """Table and sentences are what the script makes of results.json, to the letter; if
    not, `python bench/table.py --pages`.
    """
    text = page.read_text("utf-8")
    assert _pages.written(text, table.recorded()) == text


def test_the_readme_has_six_lines_and_one_page_has_them_all():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert _lines.short(table.recorded()) in readme
    assert _lines.short(table.recorded()).count("\n") == 2 + 6
    whole = (ROOT / "docs" / "performance.md").read_text("utf-8")
    assert _lines.table(table.recorded()) in whole


def test_pages_for_users_say_figures_in_sentences_too():
    """So that what holds them is no test of nothing."""
    having = {page.name for page in PAGES if [*_pages.figures(page.read_text("utf-8"))]}
    assert {"sizing.md", "scale.md", "comparison.md", "CHANGELOG.md"} <= having


@pytest.mark.parametrize("page", CLAIMING, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_rate_on_a_page_says_where_it_is_from(page):
    """One that no comment follows is an example, and a round number.  Decisions, and what
    the design was made of, say what was measured then.
    """
    text = page.read_text("utf-8")
    for begin in ("<!-- bench/table.py: a few lines -->", "<!-- bench/table.py: all"):
        before, _, rest = text.partition(begin)
        text = before + rest.partition("<!-- end -->")[2]
    found = [one[0] for one in MEASURED.finditer(text) if not EXAMPLE.fullmatch(one[1])]
    assert not found


def test_what_only_results_md_has_stands_there():
    """Figures of benchmarks that are no lines of the table."""
    results = (ROOT / "bench" / "RESULTS.md").read_text("utf-8")
    found = [
        (page.name, number)
        for page in PAGES
        for number in RESULTS.findall(page.read_text("utf-8"))
    ]
    assert found
    for page, number in found:
        assert re.search(rf"(?<![\d.,]){re.escape(number)}(?!\d|[.,]\d)", results), page


def test_a_figure_of_no_line_is_an_error():
    with pytest.raises(_pages.Unknown, match=r"beats\.speed"):
        _pages.written("1<!-- beats.speed -->", table.recorded())


def test_a_figure_in_a_sentence_is_written_times_its_factor():
    record = {FIRST.case: {**HERE, "values": of(FIRST, 3.35)}}
    text = "so 9<!-- beats.cpu --> µs, or 9,999.9<!-- beats.cpu * 0.1 --> cores"
    wanted = "so 3.4<!-- beats.cpu --> µs, or 0.34<!-- beats.cpu * 0.1 --> cores"
    assert _pages.written(text, record) == wanted


@pytest.mark.parametrize("line", _lines.LINES, ids=lambda line: line.case)
def test_a_line_says_all_its_numbers_and_has_a_measurement(line):
    templates = [line.figure, *line.beside]
    assert set().union(*map(_lines.needed, templates)) == line.fields.keys()
    assert line.measurement in _lines.MEASUREMENTS
    assert "{" not in line.said(of(line))


def test_no_two_lines_are_of_one_case():
    for names in zip(*((line.key, line.case) for line in _lines.LINES), strict=True):
        assert len(names) == len(set(names))


def test_every_number_of_a_line_is_one_that_its_benchmark_names():
    """As far as its source says: names are made of a case and of what is there."""
    for line in _lines.LINES:
        script = _lines.MEASUREMENTS[line.measurement].script
        source = sources(script)
        for field in line.fields.values():
            tail = re.sub(r"^floor: |^[A-Za-z0-9/, -]+: ", "", field.name)
            tail = re.sub(r", (p\d+)$", "", tail)
            tail = re.sub(r"\d+ B$", "{size} B", tail)
            assert tail in source, f"{script}: {field.name}"


def sources(script: str) -> str:
    names = [script, "_report", "_machine", "_run"]
    return "".join((ROOT / "bench" / f"{name}.py").read_text("utf-8") for name in names)


def test_what_was_not_measured_beside_it_is_left_out():
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


def test_a_figure_that_was_not_measured_is_no_line():
    assert FIRST.values({}) is None


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (705_248.3, "705,000"), (14_340, "14,300"), (1000.4, "1,000"), (264.4, "264"),
        (29.4, "29"), (3.5, "3.5"), (1.0, "1.0"), (0.0019, "0.0019"),
        (float("inf"), "∞"),
    ],
)  # fmt: skip
def test_numbers_are_said_with_as_many_digits_as_they_are_good_for(number, text):
    assert _lines.said(number) == text


@pytest.mark.parametrize(
    ("better", "now", "worse"),
    [
        (1, 89.0, True), (1, 91.0, False), (1, 200.0, False),
        (-1, 111.0, True), (-1, 109.0, False), (-1, 50.0, False),
        (0, 1.0, False), (0, 1000.0, False),
    ],
)  # fmt: skip
def test_worse_is_what_is_more_than_a_tenth_worse(better, now, worse, monkeypatch):
    line = _lines.Line(
        "key", "case", "beats", "{x}", [], {"x": _lines.Field("n", better)}
    )
    monkeypatch.setattr(_lines, "LINES", [line])
    was = {"case": {"values": {"x": 100.0}}}
    assert bool([*_lines.worse(was, {"case": {"x": now}})]) is worse


def test_what_has_no_record_is_not_worse():
    assert not [*_lines.worse({}, {FIRST.case: of(FIRST)})]


def test_it_says_what_is_worse_by_how_much_and_than_what():
    was = {FIRST.case: {**HERE, "values": of(FIRST, 100.0)}}
    now = {FIRST.case: {**HERE, "values": {**of(FIRST, 100.0), "rate": 80.0}}}
    head, what = table.compared(was, now)
    assert "2026-11-23, one, 2 cores, a whole run" in head
    assert "100 → 80 (20 % less)" in what
    assert FIRST.case in what


def test_a_record_of_some_lines_leaves_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "RECORD", tmp_path / "results.json")
    monkeypatch.setattr(table, "ROOT", tmp_path)
    page = tmp_path / "README.md"
    whole = (ROOT / "docs" / "performance.md").read_text("utf-8")
    page.write_text(whole, "utf-8")
    table.write({SECOND.case: {**HERE, "values": of(SECOND, 7.0)}})
    record = table.recorded(table.RECORD)
    table.write(record | {FIRST.case: {**HERE, "values": of(FIRST, 3.0)}})
    assert [*json.loads(table.RECORD.read_text("utf-8"))] == [FIRST.case, SECOND.case]
    before, _, rest = whole.partition("\n| what |")
    assert page.read_text("utf-8").startswith(before)
    assert page.read_text("utf-8").endswith(rest.partition("<!-- end -->")[2])
    rows = [
        row for row in page.read_text("utf-8").splitlines() if row.startswith("| ")
    ][1:3]
    assert [row.split(" | ")[0][2:] for row in rows] == [FIRST.case, SECOND.case]
    assert "3.0" in rows[0]
    assert "7.0" in rows[1]
