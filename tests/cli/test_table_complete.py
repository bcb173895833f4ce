"""`gateway table complete`: whether a day is whole, and who holds it."""

import argparse
import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from gateway.cli import _complete
from gateway.sdk.command import WrongUse
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger
from gateway.store.names import Life
from gateway.store.readers.complete import Completeness
from gateway.store.readers.lake import health_path, leave_word
from incarnations import A

NOW = 1_795_910_400.0 + 600
"""Ten minutes into 2026-11-29."""
YESTERDAY = date(2026, 11, 28)


@pytest.fixture
def lake(tmp_path) -> Path:
    return tmp_path / "lake"


def keep(lake: Path, through: float | None, *days: date, **words: object) -> None:
    """What the job has in its ledger, and says."""
    (lake / ".gateway").mkdir(parents=True, exist_ok=True)
    micros = None if through is None else int(through * 1e6)
    known = Completeness(micros, {Life("gw", A): micros} if micros else {})
    known = known.saying([day.toordinal() for day in days])
    ledger = replace(Ledger(), complete=known)
    ledger.save(Lake(), lake / ".gateway" / "events.json")
    said = {"at": NOW, "state": "running", "complete_through": through, **words}
    leave_word(health_path(lake), json.dumps(said).encode())


def ask(
    lake: Path, *, day: date | None = None, wait: bool = False, as_json: bool = False
) -> int:
    args = argparse.Namespace(day=day, wait=wait, json=as_json)
    return _complete.run(args, lake, lambda: NOW, lambda _: keep(lake, NOW, YESTERDAY))


def test_yesterday_is_complete(lake, capsys):
    """By the ledger, in UTC; and so is each day before the first one that was said."""
    keep(lake, NOW - 20, YESTERDAY)
    assert ask(lake) == 0
    assert capsys.readouterr().out == "2026-11-28 is complete\n"
    assert ask(lake, day=date(2026, 5, 1)) == 0
    assert ask(lake, day=date(2026, 11, 29)) == 1


def test_who_holds_it_is_named(lake, capsys):
    """And since when; for programs, too."""
    held = {"node": "shop-17", "incarnation": A, "why": "is silent since 07:12"}
    keep(lake, NOW - 7200, held_by=[held])
    assert ask(lake) == 1
    assert capsys.readouterr().out == (
        "2026-11-28 is not complete: the tables are, through 2026-11-28 22:10:00 UTC\n"
        "  shop-17 is silent since 07:12\n"
    )
    assert ask(lake, as_json=True) == 1
    assert json.loads(capsys.readouterr().out) == {
        "day": "2026-11-28",
        "complete": False,
        "through": "2026-11-28 22:10:00 UTC",
        "taken_back": 0,
        "held_by": [{"node": "shop-17", "why": "is silent since 07:12"}],
    }


def test_a_job_that_is_down_is_named(lake, capsys):
    """It says nothing any more, or was stopped."""
    keep(lake, None, state="stopped")
    assert ask(lake) == 1
    assert "the Spark job does not run (stopped)" in capsys.readouterr().out


def test_another_job_of_the_table_counts(lake, capsys):
    """The table's moment is the least; a day is complete where all jobs have said so."""
    keep(lake, NOW - 20, YESTERDAY)
    other = Completeness(int((NOW - 90_000) * 1e6)).saying([YESTERDAY.toordinal() - 1])
    shared = json.dumps({"north": other.plain(), "south": None})
    words = {"sink": "delta", "table": "t", "shared": "yes", "complete": shared}
    (lake / ".gateway" / "sink.json").write_text(json.dumps(words))
    assert ask(lake) == 1
    out = capsys.readouterr().out
    assert "nobody knows since when" in out
    assert "job north has not said that it is complete, since 2026-11-27 23:10" in out
    assert "job south has not said that it is complete, yet" in out


def test_it_waits(lake):
    """For a scheduler; until it is."""
    keep(lake, NOW - 7200)
    assert ask(lake, wait=True) == 0


def test_where_there_are_no_tables(lake):
    """Status 2."""
    with pytest.raises(WrongUse, match="no tables"):
        ask(lake)
