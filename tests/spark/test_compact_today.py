"""The current day has few files at any hour, while its batches come."""

from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from compaction import BEFORE, LAST, SIZE, Fuse, files, put, rows, seen
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.partition import alone
from gateway.spark.later import compact as compact_module
from gateway.spark.later.compact import Compactor, compact, compact_open
from played_spark import PowerCut


@pytest.fixture
def lake(tmp_path) -> Path:
    """Twenty batches of one day and one of the next."""
    made = tmp_path / "lake"
    (made / ".gateway").mkdir(parents=True)
    for batch in range(20):
        put(made, batch, rows(batch))
    put(made, 20, rows(20), day="2026-03-02")
    return made


TODAY = date(2026, 3, 1)


def test_the_current_day_has_few_files_at_any_hour():
    """At a batch a second, looked at every five seconds: never more than 200 in a folder,
    and no row is in more than three files over the day."""
    names: list[Path] = []
    most, tiers = 0, Counter[str]()
    for second in range(86_400):
        names.append(Path(f"part-{second:010d}-0badcafe-0.parquet"))
        if second % 5:
            continue
        for word, ripe in compact_module._ripe(names, second - 1).items():
            names = [path for path in names if path not in set(ripe)]
            newest = ripe[-1].name[: len("part-0123456789")]
            names.append(Path(f"{newest}-{word}-{len(ripe)}-0-0.parquet"))
            names.sort()
            tiers[word] += 1
        most = max(most, len(names))
    assert most < 200
    assert set(tiers) == {"tier1", "tier2"}
    assert tiers["tier1"] > 86_400 / 200


@pytest.fixture
def few(monkeypatch) -> None:
    """Six files of a tier are enough, and then three."""
    monkeypatch.setattr("gateway.spark.later.compact.TIERS", (6, 3))


@pytest.mark.usefixtures("few")
def test_files_of_the_current_day_go_from_tier_to_tier(tmp_path):
    """Every row once at each look, and each file of a tier is left alone until there are
    enough; once the day is over they are one, in order."""
    lake = tmp_path / "lake"
    (lake / ".gateway").mkdir(parents=True)
    most = 0
    for batch in range(60):
        put(lake, batch, rows(batch))
        list(compact_open(lake, Lake(), TODAY, upto=batch - 1))
        most = max(most, len(files(lake)))
        assert set(seen(lake).values()) == {1}
    assert len(seen(lake)) == 60 * SIZE
    assert most <= 7 + 3 + 60 // 18
    assert len([path for path in files(lake) if "-tier2-" in path.name]) == 3
    list(compact(lake, Lake(), before=BEFORE))
    (one,) = files(lake)
    assert pq.read_table(one)["lsn"].to_pylist() == list(range(1, 601))


@pytest.mark.usefixtures("few")
def test_what_is_not_committed_yet_is_not_rewritten(lake):
    """The files of a batch may be on their way to their names."""
    (done,) = compact_open(lake, Lake(), TODAY, upto=8)
    assert (done.before, done.after, done.rows) == (20, 12, 90)
    assert not list(compact_open(lake, Lake(), TODAY, upto=12))
    assert set(seen(lake).values()) == {1}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("left", range(8))
def test_a_crash_in_the_current_day(lake, left, exchanges):
    """Leaves the old files or the new ones, and the next time goes on."""
    before = seen(lake)
    try:
        disk = Fuse(left, exchanges=exchanges)
        list(compact_open(lake, disk, TODAY, upto=LAST))
    except PowerCut:
        if exchanges:
            assert seen(lake) == before
    list(compact_open(lake, Lake(), TODAY, upto=LAST))
    assert seen(lake) == before
    assert len(files(lake)) == 1


@pytest.mark.usefixtures("few")
def test_the_job_looks_at_the_current_day(lake):
    """As soon as there are enough files, and not only when a day has ended; while somebody
    else rewrites files it waits for the next look."""
    now, done, failed = [0.0], list[Any](), list[Exception]()
    compactor = Compactor(
        lake,
        Lake(),
        done.append,
        failed.append,
        today=lambda: date(2026, 3, 2),
        clock=lambda: now[0],
        upto=lambda: LAST,
    )

    def tend() -> None:
        now[0] += 5
        compactor.tend()
        assert compactor._thread is not None
        compactor._thread.join()

    tend()
    assert [one.before for one in done] == [20]
    for batch in range(21, 26):
        put(lake, batch, rows(batch), day="2026-03-02")
    with alone(lake):
        tend()
    assert len(done) == 1
    tend()
    tend()
    assert [(one.before, one.after) for one in done[1:]] == [(6, 1)]
    assert failed == []


class _Filler:
    def __init__(self) -> None:
        self.days: list[date] = []

    def fill_day(self, day: date, stop: Callable[[], bool]) -> Any:
        self.days.append(day)
        if len(self.days) == 1:
            raise OSError(28, "no room")
        yield f"made in {day}"


def test_the_current_day_gets_its_columns_at_the_start(lake):
    """Once, after what could not be done was tried again: all that comes later has them."""
    now, done, failed, filler = [0.0], list[Any](), list[Exception](), _Filler()
    compactor = Compactor(
        lake,
        Lake(),
        done.append,
        failed.append,
        lambda: BEFORE,
        lambda: now[0],
        filler=lambda: filler,
    )
    for _ in range(4):
        compactor.tend()
        assert compactor._thread is not None
        compactor._thread.join()
        now[0] += 601
    assert filler.days == [BEFORE] * 2
    assert done[-1] == "made in 2026-03-02"
    assert len(failed) == 1
