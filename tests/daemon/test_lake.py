"""How far behind the tables are, and whether the job lives."""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.admin.freshness import Job
from gateway.daemon.lake import SILENT, LakeWatch
from gateway.event import SCHEMA, Batch, Origin, Stored
from gateway.store.readers.lake import health_path


class World:
    """A data directory, a clock and what the job says."""

    def __init__(self, data: Path) -> None:
        self.now = 1000.0
        self.ticks = 0.0
        self.spool = data / "spool"
        self.spool.mkdir(parents=True)
        self._health = health_path(data / "lake")
        self.watch = LakeWatch(
            "gw", data / "lake", self.spool, lambda: self.now,
            monotonic=lambda: self.ticks, is_ours=("", "own", "earlier").__contains__,
        )  # fmt: skip

    def say(self, **news: Any) -> None:
        """As the job does: a new file in place of the old one."""
        self._health.parent.mkdir(parents=True, exist_ok=True)
        new = self._health.with_name("new")
        own = {
            name: {"own": lsn} for name, lsn in news.get("committed_lsn", {}).items()
        }
        told = {"at": self.now, "state": "running", "committed_by": own, **news}
        new.write_text(json.dumps(told))
        new.replace(self._health)

    def file(self, first: int) -> Path:
        return (
            self.spool / f"events-gw_aaaaaaaaaa-{first:020d}-{first + 9:020d}.parquet"
        )

    def publish(self, first: int, at: float) -> None:
        """A spool file of ten events that came at this time."""
        fields = [field for field in SCHEMA if field.name in ("lsn", "received_at")]
        columns = [
            pa.array(range(first, first + 10), pa.int64()),
            pa.array([int(at * 1e6)] * 10, fields[1].type),
        ]
        pq.write_table(pa.table(columns, pa.schema(fields)), self.file(first))

    def durable(self, first: int, count: int, at: float, listener: str = "p") -> None:
        """Events become durable that came at this time."""
        origin = Origin("plain", listener, "s", "peer")
        batch = Batch(origin, int(at * 1e6), count, b"", 0)
        self.watch.durable([Stored(batch, first)])

    def seen(self) -> dict[str, dict[str, Any]]:
        """The sections of /api/status."""
        return {section.name: section.by_name for section in self.watch.statistics()}

    @property
    def job(self) -> Job:
        """After a look at what it says."""
        self.seen()
        return self.watch.job

    @property
    def lag(self) -> float:
        return float(self.seen()["lake"]["lag_seconds"])


@pytest.fixture
def world(tmp_path) -> World:
    """Before anything has come."""
    return World(tmp_path)


def test_without_a_job(world):
    """Events grow old, and the job is down."""
    assert world.lag == 0
    world.durable(1, 10, 1000)
    world.now = 1060
    seen = world.seen()
    lake = {"lag_seconds": 60, "lag_by_node": {"gw": 60}, "committed_lsn": 0}
    assert seen["lake"] == seen["lake"] | lake
    assert not seen["spark"]["up"]
    assert seen["spark"]["last_batch_at"] is None


def test_the_oldest_event_counts(world):
    """What is in a table is no longer waited for; other nodes' events are not ours."""
    for second in range(5):
        world.durable(second * 10 + 1, 10, 1000 + 2 * second)
    world.now = 1010
    world.say(committed_lsn={"gw": 20, "other": 99}, last_batch_at=1009)
    assert world.lag == 6
    assert world.seen()["lake"]["committed_lsn"] == 20
    assert world.seen()["spark"]["last_batch_at"] == 1009
    world.say(committed_lsn={"gw": 50})
    assert world.lag == 0


@pytest.mark.parametrize(
    ("by", "lag"),
    [
        ({"earlier": 9, "own": 50}, 0.0),
        ({"earlier": 50}, 0.0),
        ({"": 50}, 0.0),
        ({"other": 99, "earlier": 9}, 10.0),
        ({"other": 99}, 10.0),
    ],
)
def test_lsns_of_another_life_of_the_node_are_not_ours(world, by, lag):
    """A machine came back without its disk: the tables have what it gave before, under the
    same lsns."""
    world.durable(1, 50, at=990.0)
    world.say(committed_lsn={"gw": 99}, committed_by={"gw": by})
    assert world.lag == lag


def test_the_age_of_each_listener(world):
    """0 where nothing waits; not known while events of the last run are in no table."""
    world.watch.begin(10)
    world.durable(11, 5, 1000)
    world.durable(16, 5, 1004, listener="games")
    world.now = 1010
    names = ("p", "games", "idle")
    ages = world.watch.listener_ages
    assert ages(9, names) == {"p": None, "games": None, "idle": None}
    assert ages(10, names) == {"p": 10, "games": 6, "idle": 0}
    assert ages(15, names) == {"p": 0, "games": 6, "idle": 0}
    assert ages(20, names) == {"p": 0, "games": 0, "idle": 0}
    assert world.watch.newest_age(15) == 10
    assert world.watch.newest_age(20) == 6
    assert world.watch.age_behind(20) is None


def test_a_clock_that_was_set_back(world):
    """A job that reported before, and not since, is not taken for one that runs; how
    long it is silent counts from when that was seen.
    """
    world.say()
    world.now -= 86400
    assert not world.job.up
    world.ticks += 60
    assert world.job.silent_seconds == SILENT + 60
    world.say()
    assert world.job.up
    assert world.job.silent_seconds == 0


def test_what_the_job_says(world):
    """As far as it makes sense."""
    assert world.job == Job(silent_seconds=1000)
    world.say(
        last_batch_seconds=1.5, busy=True, holes=[{}], last_error="no",
        failures=3, last_failure="no Java", oldest_file={"name": "x", "at": world.now - 60},
    )  # fmt: skip
    world.now += 7
    assert world.job == Job(
        up=True,
        state="running",
        silent_seconds=7,
        batch_seconds=1.5,
        busy=True,
        waiting_seconds=67,
        holes=1,
        last_error="no",
        failures=3,
        last_failure="no Java",
    )
    assert world.seen()["spark"]["waiting_seconds"] == 67
    world.say(recent=[{"at": 1, "seconds": 2, "rows": 3, "files": 4}, {"at": 5}, 6])
    assert world.job.up
    assert world.watch.told.batches == [{"at": 1, "seconds": 2, "rows": 3, "files": 4}]
    world.say(paths=["status", "x" * 99, 3], more_paths=2)
    assert world.job.up
    assert world.watch.told.paths == ["status", f"{'x' * 60}…", "3", "2 more"]
    world.say(at="x", paths=4, recent=3, last_batch_seconds=[], state=3, oldest_file=7)
    assert world.job == Job(state="3", silent_seconds=world.now)


def test_a_job_that_starts(world):
    """It is up, and the page says that it starts; one that was killed in it does not."""
    world.say(state="starting")
    assert (world.seen()["spark"]["up"], world.seen()["spark"]["starting"]) == (1, 1)
    world.now += SILENT
    assert (world.seen()["spark"]["up"], world.seen()["spark"]["starting"]) == (0, 0)
    world.say(state="running")
    assert world.seen()["spark"]["starting"] == 0


def test_a_silent_job_is_down(world):
    """Well within a minute, and also if it said goodbye."""
    world.say()
    assert world.seen()["spark"]["up"]
    world.now += SILENT
    assert not world.seen()["spark"]["up"]
    world.say(state="stopped")
    assert not world.seen()["spark"]["up"]
    assert SILENT <= 45


def test_what_waited_before_our_start(world):
    """Its age is in the oldest file that is in no table."""
    world.publish(1, 500)
    world.publish(11, 700)
    world.say(committed_lsn={"gw": 10})
    world.watch.begin(20)
    assert world.lag == 300
    world.say(committed_lsn={"gw": 20})
    assert world.lag == 0


@pytest.mark.parametrize(
    ("asked", "ages"), [(99, (500, 400, 300)), (1, (500, 500, 500))]
)
def test_a_job_that_catches_up_after_our_start(world, monkeypatch, asked, ages):
    """Ages fall with what it takes; of very many files not all are asked, and then they
    are greater.  One that can not be read, or is damaged in whatever way, is as old as the one
    before it."""
    monkeypatch.setattr("gateway.daemon.lake._FILES_AT_START", asked)
    for number, at in enumerate((500, 600, 700, 800)):
        world.publish(10 * number + 1, at)
    world.file(31).write_bytes(b"")
    other = pa.table({"received\u00e9": [1]})
    pq.write_table(other, world.file(41), store_schema=False)
    whole = world.file(41).read_bytes()
    world.file(41).write_bytes(whole.replace("\u00e9".encode(), b"\xc3\xff"))
    world.watch.begin(55)  # five more are in the journal
    for committed, age in zip((0, 10, 20), ages, strict=True):
        world.say(committed_lsn={"gw": committed})
        assert world.lag == age
    world.say(committed_lsn={"gw": 50})
    assert 0 < world.lag <= 500
    world.say(committed_lsn={"gw": 55})
    assert world.lag == 0


def test_marks_are_bounded(world):
    """A job that is down for days costs no memory; ages stay right, or a little greater."""
    for second in range(20_000):
        world.durable(second + 1, 1, 1000 + 2 * second)
    assert len(world.watch._marks) <= 4096
    world.now = 1000 + 2 * 20_000
    assert world.lag == 40_000
    world.say(committed_lsn={"gw": 10_000})
    assert 20_000 <= world.lag <= 20_100
    world.say(committed_lsn={"gw": 19_999})
    assert 0 < world.lag < 100


NAMES = (
    *("at", "committed_by", "ended", "expired_days", "failures", "held_by", "holes"),
    *("last_batch_at", "more_paths", "oldest_file", "paths", "recent", "rows"),
)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{"),
        *(
            json.dumps(dict.fromkeys(NAMES, value))
            for value in (
                3,
                "x",
                [3],
                {"gw": {"own": "x"}},
                [{"at": 10**400}],
                math.inf,
            )
        ),
    ],
)
def test_whatever_the_file_holds(world, text, tmp_path):
    """It does not stop the status page."""
    health_path(tmp_path / "lake").parent.mkdir(parents=True)
    health_path(tmp_path / "lake").write_text(text)
    assert not world.seen()["spark"]["up"]
    assert not world.job.up
    assert not [*world.watch.told.batches, *world.watch.told.newest().values()]


def watched(place: Path, **more: Any) -> LakeWatch:
    return LakeWatch(
        "gw", place / "lake", place / "spool", is_ours=lambda _: True, **more
    )


def test_where_no_job_is_to_come_its_silence_is_no_news(tmp_path):
    """`gateway_spark_up 0` would wake somebody up for ever."""
    assert not list(watched(tmp_path, has_job=False).statistics())
    one = watched(tmp_path)
    assert [section.name for section in one.statistics()] == ["lake", "spark"]


def test_a_job_that_runs_elsewhere_is_no_news_before_it_reports_here(tmp_path):
    """On each gateway of a bucket `gateway_spark_up 0` would page for ever."""
    watch = watched(tmp_path, elsewhere=True)
    assert not list(watch.statistics())
    assert not watch.has_job
    health_path(tmp_path / "lake").parent.mkdir(parents=True)
    health_path(tmp_path / "lake").write_text('{"state": "running"}')
    assert [section.name for section in watch.statistics()] == ["lake", "spark"]
    none = watched(tmp_path, has_job=False)
    assert not list(none.statistics()), "what a job left before spool.after was keep"
