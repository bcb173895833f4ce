"""Two copies of one directory, or of one machine, publish under one incarnation."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from gateway.audit import audit
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger
from gateway.spark.files.overlaps import Prints, compared, overlapping
from gateway.store.directories import Directories
from gateway.store.lsns import Lsns
from gateway.store.names import Life, SpoolFile
from gateway.store.node.incarnation import Record
from incarnations import A

AT = 1_772_366_400_000_000
MINE, OTHER = Life("gw", A), Life("gw", "b" * 10)


def prints(*rows: tuple[int, int, int]) -> Prints:
    return Prints.of(rows)


def past(name: str, first: int, last: int) -> list[bytes]:
    """What one of two machines got, under these lsns."""
    return [
        b'{"past": "%b", "n": %d}' % (name.encode(), n) for n in range(first, last + 1)
    ]


class Told:
    """What is in the tables: payloads, and how often."""

    def __init__(self, table_rows: Callable[..., Any], lake: Path) -> None:
        rows = table_rows(lake / "events", "incarnation", "lsn", "body")
        self.by_name = {(row["incarnation"], row["lsn"]): row["body"] for row in rows}
        self.bodies = Counter(row["body"].encode() for row in rows)

    def has_once(self, *events: list[bytes]) -> bool:
        return self.bodies == Counter(one for some in events for one in some)


@pytest.fixture
def told(table_rows, config) -> Callable[[], Told]:
    return lambda: Told(table_rows, config.data_dir / "lake")


@pytest.fixture
def put(spool) -> Callable[..., Path]:
    def put(first: int, payloads: list[bytes]) -> Path:
        return spool.put("gw", first, payloads, received_at=AT)  # type: ignore[no-any-return]

    return put


def test_rows_are_known_by_when_they_came_and_what_they_are():
    """Of what can not be read nobody knows; a payload that can not be told says nothing."""
    mine = prints((1, 10, 5), (2, 11, 6), (3, 12, 7), (4, 13, 8), (5, 14, 9))
    known = {MINE: prints((1, 10, 5), (2, 99, 6), (3, 12, 1), (4, 13, 0))}
    committed = {MINE: Lsns([(1, 5)])}
    found = compared(mine, committed, known, MINE)
    assert found.other == Lsns([(2, 3)])
    assert found.unknown == Lsns([(5, 5)])
    assert not found.elsewhere


def test_rows_may_be_there_under_a_derived_incarnation():
    """Then they are nowhere else, whatever has their own name."""
    mine = prints((1, 10, 5), (2, 11, 6), (3, 12, 7))
    known = {
        MINE: prints((1, 10, 5), (2, 99, 1)),
        OTHER: prints((2, 11, 6), (3, 12, 7)),
    }
    committed = {MINE: Lsns([(1, 2)]), OTHER: Lsns([(2, 3)])}
    found = compared(mine, committed, known, MINE)
    assert (found.other, found.unknown) == (Lsns(), Lsns())
    assert found.elsewhere == Lsns([(2, 3)])


@pytest.mark.parametrize("together", [True, False])
def test_the_same_past_with_other_bounds_is_there_once(
    run_once, put, told, spool, config, together
):
    """A copy of a directory publishes it again; in one batch, or after the other.  The audit
    calls nothing doubled, though the archive has it in several files.
    """
    events = past("a", 1, 20)
    put(1, events[:10])
    if not together:
        run_once()
    put(6, events[5:])
    put(3, events[2:8])
    run_once()
    assert told().has_once(events)
    assert {by for by, _ in told().by_name} == {A}
    assert spool.names() == []
    assert audit(Directories.under(config.data_dir), pause=lambda _: None).complete


@pytest.mark.parametrize("together", [True, False])
def test_two_pasts_are_both_there(run_once, put, told, config, together, caplog):
    """A machine that was resumed twice; what both had is there once.  And what either
    publishes again, and what comes after."""
    common, one, two = past("both", 1, 6), past("one", 7, 12), past("two", 7, 15)
    put(1, common + one[:4])
    if not together:
        run_once()
    put(4, common[3:] + two[:5])
    run_once()
    put(12, two[5:])
    put(11, one[4:])
    run_once()
    found = told()
    assert found.has_once(common, one, two)
    assert len({by for by, _ in found.by_name}) in (2, 3)
    assert (
        "two copies of a directory or a machine ran as one incarnation" in caplog.text
    )
    put(5, common[4:] + two)  # each past, cut otherwise
    put(2, common[1:] + one)
    put(9, two[2:])
    run_once()
    assert told().has_once(common, one, two)
    ledger = Ledger.load(Lake(), config.data_dir / "lake/.gateway/events.json")
    derived = [by for by, record in ledger.records.items() if record.of]
    assert {ledger.records[by].of for by in derived} == {A}
    archived = [
        row["payload"]
        for path in (config.data_dir / "archive").iterdir()
        for row in pq.read_table(path, columns=["payload"]).to_pylist()
    ]
    assert set(archived) == {*common, *one, *two}, "the tables could be made again"


def test_another_past_that_comes_with_two_bounds_is_there_once(run_once, put, told):
    """Its machine was copied, too: both files get an incarnation of their own, in one batch."""
    one, two = past("one", 1, 6), past("two", 1, 9)
    put(1, one)
    run_once()
    put(2, two[1:7])
    put(3, two[2:])
    run_once()
    assert told().has_once(one, two[1:])


def test_files_of_one_family_meet():
    """Also where the tables have nothing of it yet."""
    ids = ["b" * 10, "c" * 10]
    files = [SpoolFile("gw", ids[0], 2, 7), SpoolFile("gw", ids[1], 3, 9)]
    said = {file.life: Record(file.first, of=A) for file in files}
    assert {*overlapping(files, Ledger(), said)} == {*files}
    assert not overlapping(files, Ledger(), {})
    apart = [files[0], files[1]._replace(first=8)]
    assert not overlapping(apart, Ledger(), said)


def test_another_past_under_the_very_same_name(run_once, put, told, config):
    """Spark takes each path once; the archive has the first one."""
    one, two = past("one", 1, 5), past("two", 1, 5)
    put(1, one)
    run_once()
    put(1, two)
    run_once()
    run_once()
    assert told().has_once(one, two)
    assert len(list((config.data_dir / "archive").iterdir())) == 2


@pytest.mark.parametrize("archive", [True, False])
def test_what_can_not_be_compared_waits_and_is_missing(
    run_once, put, told, config, archive
):
    """Its rows have left the tables, and the archive; with that, put back, it goes on."""
    put(1, past("one", 1, 10))
    run_once()
    lake, aside = config.data_dir / "lake", config.data_dir / "aside"
    shutil.rmtree(lake / "events")
    if not archive:
        (config.data_dir / "archive").rename(aside)
    path = put(8, past("one", 8, 9) + past("two", 10, 12))
    run_once()
    directories = Directories.under(config.data_dir)
    if archive:
        assert told().has_once(past("two", 10, 12))
        return
    ledger = json.loads((lake / ".gateway/events.json").read_text())
    [hole] = ledger["holes"]
    assert (hole["file"], hole["first"], hole["last"]) == (path.name, 8, 12)
    assert hole["incarnation"] != A
    report = audit(directories, pause=lambda _: None)
    assert not report.complete
    shutil.rmtree(config.data_dir / "archive")
    aside.rename(config.data_dir / "archive")
    moved = config.data_dir / "poison" / path.name
    moved.rename(path)
    run_once()
    assert told().has_once(past("two", 10, 12))
    assert json.loads((lake / ".gateway/events.json").read_text())["holes"] == []


def test_a_set_of_prints_knows_which_are_among_lsns():
    """Each once, in order, whatever pieces they came in."""
    made = prints((5, 1, 1), (2, 1, 1)) | prints((9, 1, 1), (2, 1, 1))
    assert made.lsns.tolist() == [2, 5, 9]
    assert np.flatnonzero(made.are_among(Lsns([(3, 9)]))).tolist() == [1, 2]
    assert not made.are_among(Lsns()).any()
