"""The lines of docs/spark.md that open the tables do so where files differ in their columns.

Each is run as it stands on the page, in the folder that has `lake`.
"""

import importlib
import json
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.spark import reading

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
_CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FIRST, SECOND = _CODE.findall(PAGE.partition("\n## Tables\n")[2])[:2]
LINES = [line for line in FIRST.splitlines() if line and not line.startswith("from ")]
NAMES = [line.partition(".")[0] for line in LINES]

#: What a file may have beside the column that is asked for, in turn of their batches.
LAYOUTS: dict[str, list[dict[str, pa.DataType]]] = {
    "a new column": [{}, {"status": pa.int32()}],
    "one that is no more": [
        {"status": pa.int32(), "gone": pa.string()},
        {"status": pa.int32()},
    ],
    "one for another": [{"gone": pa.string()}, {"status": pa.int32()}],
    "of before incarnations": [
        {"status": pa.int32()},
        {"incarnation": pa.string(), "status": pa.int32()},
    ],
}
#: Days of the batches: a late one comes into a folder of before.
DAYS = {
    "in turn": ("2026-03-01", "2026-03-02"),
    "one day": ("2026-03-01", "2026-03-01"),
    "late": ("2026-03-02", "2026-03-01"),
}


def value(name: str, lsn: int) -> Any:
    return lsn % 2 if name == "status" else f"{name} {lsn}"


@pytest.fixture(params=DAYS)
def put(
    request, tmp_path, monkeypatch
) -> Callable[[list[dict[str, pa.DataType]]], Counter[Any]]:
    """Makes a lake of two batches of four rows; how often each status is there."""
    monkeypatch.chdir(tmp_path)

    def make(layout: list[dict[str, pa.DataType]]) -> Counter[Any]:
        counts = Counter[Any]()
        for batch, (more, day) in enumerate(
            zip(layout, DAYS[request.param], strict=True)
        ):
            folder = Path("lake/events/protocol=lumberjack") / f"date={day}"
            folder.mkdir(parents=True, exist_ok=True)
            lsns = range(4 * batch + 1, 4 * batch + 5)
            columns = {
                "node": pa.array(["gw"] * 4),
                "lsn": pa.array(lsns, pa.int64()),
                **{
                    name: pa.array([value(name, lsn) for lsn in lsns], kind)
                    for name, kind in more.items()
                },
            }
            pq.write_table(
                pa.table(columns), folder / f"part-{batch + 1:010d}-0badcafe-0.parquet"
            )
            counts.update(
                value("status", lsn) if "status" in more else None for lsn in lsns
            )
        Path("lake/.gateway").mkdir()
        Path("lake/.gateway/events.json").write_text(json.dumps({"sequence": 2}))
        return counts

    return make


def run(line: str, **more: Any) -> Any:
    """What a line of the page gives."""
    names = {"files": reading.files, "pathlib": pathlib, **more}
    for module in ("duckdb", "pandas", "polars", "pyarrow", "pyarrow.dataset"):
        names.setdefault(module.partition(".")[0], importlib.import_module(module))
    return eval(line, names)


def counted(name: str, found: Any) -> Counter[Any]:
    """How often each status is there, as a reader gives it."""
    rows: Iterator[Any]
    match name:
        case "spark":
            rows = map(tuple, found.collect())
        case "duckdb":
            rows = iter(found.fetchall())
        case "pyarrow":
            return Counter(found["status"].to_pylist())
        case "polars":
            rows = found.iter_rows()
        case _:
            rows = (
                (None if str(key) in ("<NA>", "nan") else key, n)
                for key, n in found.items()
            )
    return Counter(dict(rows))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("line", LINES, ids=NAMES)
def test_each_line_sees_all_rows_and_the_new_column(line, layout, put, spark):
    """Whichever of two files came first, and whichever day is the later one: each row once,
    null where its file has no such column."""
    wanted = put(LAYOUTS[layout])
    name = line.partition(".")[0]
    if name == "spark":  # Java stays in the folder that it was started in
        line = line.replace('"lake/', f'"file://{Path.cwd()}/lake/')
    assert counted(name, run(line, spark=spark)) == wanted


@pytest.mark.parametrize("line", [line for line in LINES if "files(" in line])
def test_the_same_order_without_our_package(line, put):
    wanted = put(LAYOUTS["one for another"])
    paths = run(SECOND.removeprefix("paths = "))
    line = line.replace('files("lake", "events")', "paths")
    assert counted(line.partition(".")[0], run(line, paths=paths)) == wanted


def test_the_page_has_a_line_for_each_reader():
    """Those of its table of readers."""
    section = PAGE.partition("### Readers")[2].partition("\n##")[0]
    readers = re.findall(r"^\| (\w+)[^|]*\|", section, re.MULTILINE)[1:]
    assert sorted(NAMES) == sorted(name.lower() for name in readers)
