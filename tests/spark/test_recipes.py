"""The recipes in docs/recipes.md: what they promise, with the real server where it is."""

import importlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deadlines import ROOT, eventually
from gateway.spark import job, reading
from incarnations import A
from programs import lacking

pytestmark = pytest.mark.spark

RECIPES = ROOT / "examples" / "recipes"


@pytest.fixture(scope="module")
def database() -> Iterator[Any]:
    """A server of Debian's PostgreSQL on a unix socket, with the recipe's table."""
    if os.environ.get("CI") != "true":
        pytest.importorskip("psycopg")
    import psycopg

    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        lacking("needs PostgreSQL: apt-get install postgresql")
    home = tempfile.mkdtemp(prefix="pg-", dir="/tmp")
    user: dict[str, Any] = {}
    if os.geteuid() == 0:  # the server refuses to be root
        shutil.chown(home, "postgres", "postgres")
        user = {"user": "postgres", "group": "postgres", "cwd": home}
    program = programs[-1] / "initdb"
    words = ["-D", f"{home}/data", "-U", "postgres", "--auth=trust", "--no-sync"]
    subprocess.run([program, *words], check=True, capture_output=True, **user)
    server = subprocess.Popen(
        [
            *(programs[-1] / "postgres", "-D", f"{home}/data", "-k", home),
            *("-c", "listen_addresses=", "-c", "fsync=off"),
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user,
    )  # fmt: skip
    dsn = f"host={home} user=postgres dbname=postgres"

    def connected() -> Any:
        assert server.poll() is None
        try:
            return psycopg.connect(dsn, autocommit=True)
        except psycopg.OperationalError:
            return None

    try:
        opened = eventually(connected, "the server")
        opened.execute((RECIPES / "to_postgres.sql").read_text())
        yield SimpleNamespace(dsn=dsn, execute=opened.execute)
        opened.close()
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(home)


def recipe(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(RECIPES))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return __import__(name)


@pytest.mark.needs_apt
def test_postgres_has_each_event_once(database, spool, config, run_once, monkeypatch):
    """Whether the job is killed before the commit or after it, and what texts come: a
    zero byte, a flaw, a time at the end of all calendars."""
    monkeypatch.setenv("EVENTS_DSN", database.dsn)
    module = recipe("to_postgres", monkeypatch)
    config.spark.sink = "to_postgres:put"
    spool.events("gw", 1, 20)
    spool.put(
        "gw",
        21,
        [
            b'{"message": "a\\u0000b \\ud83d\\ude00", "@timestamp": "9999-12-31T23:59:59.999999Z"}',
            b"{",
        ],
        flaws={1: "invalid-json"},
    )
    put = module.put

    def before(batch: Any, context: Any) -> None:
        context = SimpleNamespace(names=context.names, rows=context.rows + 1)
        put(batch, context)

    def after(batch: Any, context: Any) -> None:
        put(batch, context)
        raise ConnectionError("the answer was lost")

    def found() -> Counter[tuple[str, int]]:
        return Counter(database.execute("SELECT node, lsn FROM events").fetchall())

    with monkeypatch.context() as patch:
        patch.setattr(module, "put", before)
        with pytest.raises(job.Failed, match="22 of 23 rows are there; rolled back"):
            run_once()
        assert not found()
        patch.setattr(module, "put", after)
        with pytest.raises(job.Failed, match="the answer was lost"):
            run_once()
    assert found() == spool.produced
    run_once()
    spool.events("gw", 23, 5)
    run_once()
    assert found() == spool.produced
    rows = database.execute(
        "SELECT message, flaw, extract(year FROM event_time AT TIME ZONE 'UTC')::int"
        " FROM events WHERE lsn IN (21, 22) ORDER BY lsn"
    ).fetchall()
    assert rows[0] == ("a\N{REPLACEMENT CHARACTER}b \N{GRINNING FACE}", None, 9999)
    assert rows[1][1] == "invalid-json"


def test_records_for_kafka(spark, spool, config, run_once, tmp_path, monkeypatch):
    """The bytes that were sent, under a key that is the same whenever they come again."""
    module = recipe("to_kafka", monkeypatch)
    config.spark.sink = "to_kafka:put"
    spool.put("gw", 1, [b'{"a": 1}', b"\xff{"], flaws={1: "invalid-utf8"})
    made: list[Any] = []

    def put(batch: Any, context: Any) -> None:
        made.append(module.records(batch, context.batch).collect())

    monkeypatch.setattr(module, "put", put)
    run_once()
    ((one, other),) = (sorted(rows, key=lambda row: row.key) for rows in made)
    assert (bytes(one.key), bytes(one.value)) == (f"gw/{A}/1".encode(), b'{"a": 1}')
    assert (bytes(other.key), bytes(other.value)) == (f"gw/{A}/2".encode(), b"\xff{")
    headers = {header.key: bytes(header.value) for header in other.headers}
    assert headers == {
        "protocol": b"lumberjack",
        "flaw": b"invalid-utf8",
        "batch": b"1",
    }


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
