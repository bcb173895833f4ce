"""The recipes in docs/recipes.md: what they promise, with the real server where it is."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from deadlines import ROOT, eventually
from gateway.spark import job
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
