"""Days that are said to be complete, in the ledger and by marks at the tables' roots."""

import dataclasses
import json
import math
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from gateway.sdk import summed
from gateway.spark.commit import partition
from gateway.spark.commit.handover import HandOver
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Hole, Ledger
from gateway.spark.commit.marks import Folder, Marks, Said
from gateway.spark.commit.parquet import ParquetSink
from gateway.spark.commit.sink import Plan, Sink
from gateway.spark.later import requeue
from gateway.spark.run.checkpoint import Checkpoint
from gateway.spark.run.completing import Completing
from gateway.store.directories import Directories
from gateway.store.lsns import Lsns
from gateway.store.names import Life, SpoolFile
from gateway.store.node.catalog import Catalog
from gateway.store.node.holes import Holes
from gateway.store.node.incarnation import Incarnation
from gateway.store.node.mark import Mark, Marker
from gateway.store.node.through import EVERY_SECONDS, Through
from gateway.store.objects import node_record
from gateway.store.objects.node_record import NodeRecord
from gateway.store.readers import complete
from gateway.store.readers.complete import Completeness
from gateway.store.readers.lake import Accepted
from gateway.store.system.disk import RealDisk
from incarnations import A, B, rows_of
from played_spark import PowerCut, SparkLogs
from spools import envelope

S = 10**6
C = "c" * 10
MIDNIGHT = 1_795_910_400
"""The first second of 2026-11-29."""
YESTERDAY = date(2026, 11, 28)
HOUR = 3600


@dataclass
class Playing:
    """A job of one bucket's words, whose Spark is this."""

    data: Path
    now: float = MIDNIGHT - HOUR
    cut: str = ""
    own: bool = False
    """Whether a function gets the batches."""
    batch: int = -1

    def __post_init__(self) -> None:
        self.spool, self.lake = self.data / "spool", self.data / "lake"
        self.spool.mkdir()
        self.words: dict[tuple[str, str], tuple[NodeRecord, float]] = {}
        self.unread: list[node_record.Heard] = []
        self.waiting: list[SpoolFile] = []
        self.logs = SparkLogs(self.data / "checkpoint")
        self.logs.begin()
        self.start()

    def start(self) -> None:
        """As after a kill."""
        self.cut = ""
        checkpoint = Checkpoint(self.logs.path, Lake())
        places = self.lake, self.spool, checkpoint, Lake()
        self.sink: Sink = (
            HandOver(
                *places,
                read=lambda plan: plan,
                function=lambda rows, context: self._at("called"),
                point=self._at,
            )
            if self.own
            else ParquetSink(*places, write=self._write, point=self._at)
        )
        self.sink.recover()
        self.completing = Completing(
            Directories.under(self.data),
            self.sink,
            self._heard,
            lambda: self.waiting,
            300.0,
            lambda: self.now,
            lambda: self.now,
        )

    def _at(self, point: str) -> None:
        if point == self.cut:
            raise PowerCut

    def _heard(self) -> tuple[float, list[node_record.Heard]]:
        words = [
            node_record.Heard(node, record, "", at)
            for (node, _), (record, at) in self.words.items()
        ]
        return self.now, words + self.unread

    def _write(self, rows: Any, folder: Path, plan: Plan) -> None:
        for file in plan.files:
            table = rows_of(pq.read_table(self.spool / file.name), file.name)
            days = table["received_at"].cast("date32").to_pylist()
            for day in set(days):
                place = folder / f"table=events/protocol=lumberjack/date={day}"
                place.mkdir(parents=True, exist_ok=True)
                mine = table.filter([one == day for one in days])
                pq.write_table(mine, place / f"part-{file.first}.parquet")

    def take(self, node: str, first: int, count: int, at: float, by: str = A) -> None:
        """A file with events that came then."""
        name = f"events-{node}_{by}-{first:020}-{first + count - 1:020}.parquet"
        table = envelope(node, first, [b"x"] * count, received_at=int(at * S))
        pq.write_table(table, self.spool / name)
        self.batch += 1
        self.logs.source(self.batch, [name])
        self.logs.offset(self.batch, self.batch)
        self.again()

    def again(self) -> None:
        """Spark repeats the batch."""
        self.sink(None, self.batch)
        self.logs.commit(self.batch)

    def says(self, node: str, lsn: int, by: str = A, **more: Any) -> None:
        """Its word: all that came until now has lsns up to that one."""
        through = Through(int(self.now * S) - 1, lsn)
        record = NodeRecord(by, 1, lsn, self.now, "journal", through=through)
        record = replace(record, **more)
        self.words[node, by] = record, self.now

    def day_is_over(self) -> None:
        """Two events came a minute before midnight, and the gateway says so behind it."""
        self.says("gw", 0)
        self.take("gw", 1, 2, MIDNIGHT - 60)
        self.now = MIDNIGHT + 20
        self.says("gw", 2)

    def look(self) -> dict[str, Any]:
        found = self.completing.look(now=True)
        assert found is not None
        return found

    @property
    def kept(self) -> Ledger:
        """The ledger as it is on the disk."""
        return Ledger.load(Lake(), self.lake / ".gateway" / "events.json")

    def logs_files(self) -> list[SpoolFile]:
        """All that Spark took."""
        return Checkpoint(self.logs.path, Lake()).batch_files(self.batch)

    @property
    def marks(self) -> list[str]:
        return sorted(one.name for one in (self.lake / "events").glob("_*"))

    def mark(self, day: date = YESTERDAY) -> dict[str, Any]:
        text = (self.lake / "events" / f"_COMPLETE-{day}").read_text()
        found: dict[str, Any] = json.loads(text)
        return found


@pytest.fixture
def playing(tmp_path) -> Playing:
    return Playing(tmp_path)


def test_a_day_gets_its_mark_once(playing):
    """When all that came on it is there, and nothing else may come."""
    playing.says("gw", 0)
    playing.take("gw", 1, 5, MIDNIGHT - 60)
    playing.now = MIDNIGHT - 1
    playing.says("gw", 5)
    assert playing.look()["complete_day"] == "2026-11-27"
    assert playing.marks == ["_COMPLETE-2026-11-27"]
    playing.now = MIDNIGHT + 20
    playing.says("gw", 9)
    found = playing.look()
    assert found["complete_day"] == "2026-11-27"
    playing.take("gw", 6, 4, MIDNIGHT + 1)
    found = playing.look()
    assert found["complete_day"] == "2026-11-28"
    assert found["complete_through"] == pytest.approx(MIDNIGHT + 20, abs=1e-5)
    assert playing.mark() == {
        "day": "2026-11-28",
        "through": "2026-11-29 00:00:19 UTC",
        "rows": {"lumberjack": 5},
        "incarnations": {"gw": {A: {"last": 9, "through": "2026-11-29 00:00:19 UTC"}}},
        "taken_back": 0,
    }
    ledger = playing.kept
    assert ledger.complete.has(YESTERDAY)
    playing.now += 60
    playing.says("gw", 9)
    playing.look()
    assert playing.kept == ledger


def test_a_first_start_says_nothing_of_a_day_of_which_there_is_nothing(playing, caplog):
    """The log does not, but of the next one."""
    caplog.set_level("INFO", "gateway.spark")
    playing.says("gw", 0)
    playing.look()
    assert playing.kept.complete.has(YESTERDAY - timedelta(1))
    assert "is complete" not in caplog.text
    playing.now = MIDNIGHT + 20
    playing.says("gw", 0)
    playing.look()
    assert "2026-11-28 is complete" in caplog.text


def test_a_first_start_tells_of_a_day_that_has_rows(playing, caplog):
    """They waited in the spool."""
    caplog.set_level("INFO", "gateway.spark")
    playing.day_is_over()
    playing.look()
    assert "2026-11-28 is complete" in caplog.text


def test_a_gateway_that_was_cut_off_over_midnight_holds_it(playing):
    """For an hour, and an edge for two days: each is named, and the mark comes once."""
    for node in ("gw", "shop"):
        playing.says(node, 0)
    playing.look()
    playing.now = MIDNIGHT + HOUR / 2
    playing.says("gw", 0)
    found = playing.look()
    assert found["complete_through"] == pytest.approx(MIDNIGHT - HOUR, abs=1e-5)
    [held] = found["held_by"]
    assert held["node"] == "shop"
    assert held["why"] == "is silent since 2026-11-28 23:00:00 UTC"
    assert playing.marks == []
    playing.now = MIDNIGHT + 48 * HOUR
    for node, lsn in (("gw", 0), ("shop", 4)):
        playing.says(node, lsn)
    assert playing.look()["complete_through"] == pytest.approx(
        MIDNIGHT - HOUR, abs=1e-5
    )
    playing.take("shop", 1, 4, MIDNIGHT - 9)
    playing.look()
    days = [YESTERDAY + timedelta(days) for days in (-1, 0, 1, 2)]
    assert playing.marks == [f"_COMPLETE-{day}" for day in days]
    assert playing.mark()["rows"] == {"lumberjack": 4}
    assert playing.mark(days[-1])["taken_back"] == 0


def test_what_comes_late_takes_the_mark_back(playing, caplog):
    """Before its rows are there; it is told, and the mark comes again when nothing else is to."""
    playing.day_is_over()
    playing.look()
    assert playing.marks == ["_COMPLETE-2026-11-28"]
    playing.cut = "named"
    with pytest.raises(PowerCut):
        playing.take("edge", 1, 3, MIDNIGHT - 5, B)
    assert playing.marks == []
    assert not playing.kept.complete.has(YESTERDAY)
    playing.start()
    playing.again()
    assert "events have come late, of 2026-11-28" in caplog.text
    assert not playing.sink.ledger.complete.has(YESTERDAY)
    found = playing.look()
    assert found["complete_through"] is None
    assert [one["node"] for one in found["held_by"]] == ["edge"]
    playing.says("edge", 3, B)
    assert playing.look()["days_taken_back"] == 1
    assert playing.mark()["rows"] == {"lumberjack": 5}
    assert playing.mark()["taken_back"] == 1


def test_a_day_that_is_said_while_a_batch_is_broken_off_is_taken_back(playing):
    """It was decided on before, and its rows come behind it."""
    playing.day_is_over()
    playing.cut = "decided"
    with pytest.raises(PowerCut):
        playing.take("edge", 1, 3, MIDNIGHT - 5, B)
    playing.look()
    assert playing.marks == ["_COMPLETE-2026-11-28"]
    playing.start()
    assert playing.marks == []
    assert not playing.kept.complete.has(YESTERDAY)
    assert playing.kept.complete.taken_back == {YESTERDAY.toordinal(): 1}


def test_late_events_for_a_function_of_ones_own_are_told_too(tmp_path):
    """Before it gets them, and once, also where it gets them twice."""
    playing = Playing(tmp_path, own=True)
    playing.day_is_over()
    playing.look()
    assert playing.kept.complete.has(YESTERDAY)
    playing.cut = "called"
    with pytest.raises(PowerCut):
        playing.take("edge", 1, 3, MIDNIGHT - 5, B)
    assert not playing.kept.complete.has(YESTERDAY)
    playing.start()
    assert playing.kept.complete.taken_back == {YESTERDAY.toordinal(): 1}
    assert playing.kept.committed.last() == {"gw": 2, "edge": 3}


def test_a_word_that_can_not_be_read_holds_it(playing):
    """It may be of a gateway that nobody knows; that node is named, and no other one."""
    playing.says("gw", 0)
    playing.look()
    playing.unread = [node_record.Heard("new", None, "b/x: 503 Slow Down", playing.now)]
    playing.now = MIDNIGHT + 20
    playing.says("gw", 0)
    found = playing.look()
    assert found["complete_day"] == "2026-11-27"
    assert [(one["node"], one["why"]) for one in found["held_by"]] == [
        ("new", "has said something that can not be read: b/x: 503 Slow Down")
    ]
    playing.unread = []
    assert playing.look()["complete_day"] == "2026-11-28"


def test_one_whose_word_is_gone_from_the_bucket_holds_it(playing):
    """It has brought nothing yet: a bucket that forgets does not say that it has ended."""
    for node in ("gw", "shop"):
        playing.says(node, 0)
    playing.look()
    del playing.words["shop", A]
    playing.now = MIDNIGHT + 20
    playing.says("gw", 0)
    [held] = playing.look()["held_by"]
    assert (held["node"], held["why"]) == ("shop", "says nothing of itself")
    assert playing.marks == []


def test_a_file_that_waits_holds_it(playing):
    """Of a gateway that nobody has heard of; not one that the tables have."""
    playing.says("gw", 0)
    playing.take("gw", 1, 2, MIDNIGHT - 60)
    playing.says("gw", 2)
    playing.look()
    playing.now = MIDNIGHT + 20
    playing.says("gw", 2)
    playing.waiting = [SpoolFile("gw", A, 1, 2), SpoolFile("old", B, 1, 9)]
    assert playing.look()["complete_day"] == "2026-11-27"
    playing.waiting.pop()
    assert playing.look()["complete_day"] == "2026-11-28"


def test_a_crash_keeps_no_mark_back(playing):
    """The ledger has said it."""
    playing.day_is_over()
    playing.cut = "said complete"
    with pytest.raises(PowerCut):
        playing.look()
    assert playing.marks == []
    playing.start()
    assert playing.sink.ledger.complete.has(YESTERDAY)
    playing.look()
    assert playing.marks == ["_COMPLETE-2026-11-28"]


def test_a_job_that_was_down_at_midnight_says_it_later(playing):
    """For what waits it is not complete; and what it had found is not forgotten."""
    playing.says("gw", 0)
    playing.take("gw", 1, 2, MIDNIGHT - 60)
    playing.says("gw", 2)
    playing.look()
    playing.take("gw", 3, 2, MIDNIGHT - 50)
    playing.now = MIDNIGHT + HOUR
    playing.says("gw", 9)
    playing.start()
    found = playing.look()
    assert found["complete_through"] == pytest.approx(MIDNIGHT - HOUR, abs=1e-5)
    playing.take("gw", 5, 5, MIDNIGHT - 40)
    playing.look()
    assert "_COMPLETE-2026-11-28" in playing.marks


def test_retention_takes_none_back(playing):
    """A file of that day that is fetched again brings nothing."""
    playing.day_is_over()
    playing.look()
    for path in (playing.lake / "events").rglob("*.parquet"):
        path.unlink()
    playing.sink.looked_at(playing.logs_files())
    took = playing.sink.ledger.committed
    assert playing.sink.arrived(playing.logs_files(), took) == set()
    assert playing.sink.ledger.complete.has(YESTERDAY)


def test_poison_and_a_lost_disk_hold_it(playing):
    """Until it is accepted."""
    playing.says("gw", 0)
    playing.look()
    playing.take("gw", 1, 2, MIDNIGHT - 60)
    playing.sink.note(Hole("gw", 3, 4, "events-…", "damaged", 1.0, A))
    playing.now = MIDNIGHT + 600
    playing.take("gw", 5, 2, MIDNIGHT - 60)
    playing.says("gw", 6)
    [held] = playing.look()["held_by"]
    assert held["why"] == "has lsn 3 to 4 in a file that could not be read (poison)"
    accepted = Accepted("gw", A, 3, 4, "damaged", "ann", 1.0)
    assert playing.sink.learn([accepted], {})
    playing.look()
    assert "_COMPLETE-2026-11-28" in playing.marks
    playing.now += 24 * HOUR
    playing.says("gw", 0, B, began=playing.now)
    [held] = playing.look()["held_by"]
    assert "acknowledged what nobody knows, behind lsn 6" in held["why"]
    end = Accepted("gw", A, 7, None, "the disk", "ann", 1.0)
    assert playing.sink.learn([end], {})
    assert playing.look()["complete_day"] == "2026-11-29"


def test_a_mended_file_takes_an_accepted_day_back(playing):
    """Its events were accepted as lost, and the day was said to be complete without them."""
    playing.says("gw", 0)
    playing.look()
    playing.sink.note(Hole("gw", 1, 2, "events-…", "damaged", 1.0, A))
    playing.sink.learn([Accepted("gw", A, 1, 2, "damaged", "ann", 1.0)], {})
    playing.now = MIDNIGHT + 600
    playing.says("gw", 2)
    playing.look()
    assert playing.kept.complete.has(YESTERDAY)
    playing.take("gw", 1, 2, MIDNIGHT - 60)
    assert not playing.kept.complete.has(YESTERDAY)
    assert playing.look()["days_taken_back"] == 1


def test_rows_that_leave_quarantine_take_their_day_back(playing, caplog):
    """From before they go until the job has seen it; a kill in between keeps nothing back."""
    playing.day_is_over()
    playing.look()
    with partition.alone(playing.lake):
        went = [*requeue.take_back(playing.lake, Lake(), YESTERDAY)]
        assert went == ["2026-11-28"]
        assert playing.marks == []
        assert not complete.of_lake(playing.lake).has(YESTERDAY)
        playing.look()
        assert playing.marks == []
    assert not complete.of_lake(playing.lake).has(YESTERDAY)
    playing.cut = "said complete"
    with pytest.raises(PowerCut):
        playing.look()
    playing.start()
    assert playing.look()["days_taken_back"] == 2
    assert "rows of quarantine were put through again, of 2026-11-28" in caplog.text
    assert complete.of_lake(playing.lake).has(YESTERDAY)
    assert playing.mark()["taken_back"] == 2
    assert not complete.requeued_days(playing.lake)


def test_rows_that_begin_to_leave_quarantine_while_their_day_is_said(playing):
    """The job has looked for such a day, and not written the mark yet: it writes none."""
    playing.day_is_over()

    def go(point: str) -> None:
        if point == "said complete":
            [*requeue.take_back(playing.lake, Lake(), YESTERDAY)]

    with partition.alone(playing.lake):
        playing.sink._point = go
        playing.look()
        assert playing.kept.complete.has(YESTERDAY)
        assert playing.marks == []
        playing.look()
        assert playing.marks == []
    playing.sink._point = lambda _: None
    assert playing.look()["days_taken_back"] == 1
    assert playing.mark()["taken_back"] == 1


def test_no_mark_of_half_a_year_stays_where_its_removal_failed_at_first(
    playing, monkeypatch
):
    """The ledger names the days that it took back, but only so many of them."""
    playing.day_is_over()
    playing.look()
    sink, last = playing.sink, YESTERDAY.toordinal()
    known = sink.ledger.complete
    said = dataclasses.replace(known, since=last - 150)
    sink._write_down(dataclasses.replace(sink.ledger, complete=said))
    for day in range(last - 150, last + 1):
        mark = f"_COMPLETE-{date.fromordinal(day)}"
        (playing.lake / "events" / mark).write_bytes(b"{}")
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "remove", _denied)
        with pytest.raises(OSError, match="no"):
            sink.take_back([math.inf])
    playing.start()
    playing.sink.take_back([math.inf])
    assert not playing.marks


def test_a_batch_that_comes_again_takes_marks_away_again(playing, monkeypatch):
    """The ledger had taken the day back, its mark was still there: a start goes on from there."""
    playing.day_is_over()
    playing.look()
    removed, remove = [], Folder.remove

    def once(root: Folder, mark: str) -> None:
        removed.append(mark)
        (_denied if len(removed) == 2 else remove)(root, mark)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "remove", once)
        with pytest.raises(OSError, match="no"):
            playing.take("edge", 1, 3, MIDNIGHT - 5, B)
    assert not playing.kept.complete.has(YESTERDAY)
    (playing.lake / "events" / f"_COMPLETE-{YESTERDAY}").write_bytes(b"another job's")
    playing.start()
    assert playing.marks == []
    assert playing.kept.complete.taken_back == {YESTERDAY.toordinal(): 1}


def test_since_when_it_is_not_known(playing):
    """As long as somebody says nothing, also over a start of the job."""
    began = playing.now
    assert playing.look()["complete_unknown_since"] == began
    playing.says("gw", 0)
    playing.says("old", 0, through=None)
    playing.now += 60
    found = playing.look()
    assert (found["complete_through"], found["complete_unknown_since"]) == (None, began)
    playing.says("old", 0)
    assert playing.look()["complete_unknown_since"] is None
    assert playing.look()["complete_through"] is not None


def test_a_mark_that_can_not_be_written_is_told_once(playing, caplog, monkeypatch):
    """And written later; the ledger says it, and batches go on."""
    playing.day_is_over()
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "put", _denied)
        for _ in range(2):
            playing.look()
    assert caplog.text.count("can not be written: no") == 1
    assert playing.kept.complete.has(YESTERDAY)
    playing.look()
    assert playing.marks == ["_COMPLETE-2026-11-28"]


def _denied(_root: Folder, _mark: str, _content: bytes = b"") -> None:
    raise OSError("no")


def test_a_day_of_several_jobs_has_a_mark_once_all_have_said_it(tmp_path):
    """Whoever sees that writes it; and who sees that one has taken it back removes it."""
    root = Folder(tmp_path, Lake(), lambda days: {one: {"rsio": 3} for one in days})
    day = YESTERDAY.toordinal()
    silent, saying = Completeness(), Completeness((MIDNIGHT + 5) * S).saying([day])
    one, other = Marks(), Marks()
    mine = Said(
        {Life("gw", A): 7}, dataclasses.replace(saying, through=(MIDNIGHT + 9) * S)
    )
    one.settle([root], [mine, Said({}, silent, "job b")])
    assert not root.has("_COMPLETE-2026-11-28")
    theirs = Said({Life("far", B): 9}, saying)
    other.settle([root], [theirs, mine])
    assert json.loads((tmp_path / "_COMPLETE-2026-11-28").read_bytes()) == {
        "day": "2026-11-28",
        "through": "2026-11-29 00:00:05 UTC",
        "rows": {"rsio": 3},
        "incarnations": {"far": {B: {"last": 9}}, "gw": {A: {"last": 7}}},
        "taken_back": 0,
    }
    back = mine._replace(complete=mine.complete.without([day]))
    other.settle([root], [theirs, back])
    assert not root.has("_COMPLETE-2026-11-28")
    assert other.lack([root], [theirs, mine])
    Marks().settle([root], [theirs, mine])
    Marks().settle([root], [theirs, back])
    assert not root.has("_COMPLETE-2026-11-28")


def test_who_holds_a_day_back_takes_its_mark_away_whenever_it_comes(tmp_path):
    """Another job wrote it by what it knew before, and was killed behind that."""
    root, day = Folder(tmp_path, Lake(), lambda days: {}), YESTERDAY.toordinal()
    said = Completeness().saying([day])
    mine, theirs = Said({}, said.without([day])), Said({}, said, "job b")
    marks = Marks()
    for _ in range(2):
        marks.settle([root], [mine, theirs])
        assert not root.has("_COMPLETE-2026-11-28")
        Marks().settle([root], [theirs])
        assert root.has("_COMPLETE-2026-11-28")
    marks.settle([root], [mine, theirs])
    assert not root.has("_COMPLETE-2026-11-28")


def test_a_mark_of_what_the_ledger_has_not_said_goes(tmp_path):
    """As that of a table which somebody has set back."""
    root, day = Folder(tmp_path, Lake(), lambda days: {}), YESTERDAY.toordinal()
    root.put("_COMPLETE-2026-11-30", b"{}")
    Marks().settle([root], [Said({}, Completeness().saying([day]))])
    assert [one.name for one in tmp_path.glob("_*")] == ["_COMPLETE-2026-11-28"]


def test_a_clock_that_is_wrong_is_told(playing):
    """Two minutes ahead: by the clock of the bucket it says so now."""
    playing.says("gw", 0, at=playing.now + 120)
    assert playing.look()["clocks_off"] == {"gw": 120.0}


def test_a_clock_two_minutes_off_says_nothing_too_early(playing):
    """One that is ahead holds by the bucket's clock; set back behind midnight, it is late, told,
    and holds until it has told all again."""
    playing.now = MIDNIGHT - 60
    ahead = Through((MIDNIGHT + 60) * S, 0)
    playing.says("gw", 0, at=playing.now + 120, through=ahead)
    found = playing.look()
    assert found["complete_through"] == MIDNIGHT - 60
    assert (found["clocks_off"], playing.marks) == ({"gw": 120.0}, [])
    playing.take("gw", 1, 2, MIDNIGHT - 61)
    playing.now = MIDNIGHT + 20
    playing.says("gw", 2)
    playing.look()
    assert "_COMPLETE-2026-11-28" in playing.marks
    back = MIDNIGHT - 100
    playing.take("gw", 3, 1, back + 1, B)
    assert playing.marks == ["_COMPLETE-2026-11-27"]
    word = {"earlier": (A,), "begins": (1,), "since": 3, "began": float(back)}
    playing.now += 5
    behind = Through((back + 5) * S, 3)
    playing.says("gw", 3, B, at=playing.now - 120, through=behind, **word)
    found = playing.look()
    assert found["complete_through"] == back + 5
    assert (found["clocks_off"], found["days_taken_back"]) == ({"gw": -120.0}, 1)
    playing.now += 200
    playing.says("gw", 3, B, **word)
    assert playing.look()["complete_day"] == "2026-11-28"
    assert playing.mark()["taken_back"] == 1


@pytest.fixture
def here(tmp_path) -> tuple[Playing, Incarnation]:
    """A gateway's directory, whose job reads its spool."""
    playing = Playing(tmp_path)
    journal = tmp_path / "journal" / "gw"
    journal.mkdir(parents=True)
    this = Incarnation(A, 1, 0)
    catalog = Catalog(journal, RealDisk())
    catalog.settle(this)
    catalog.close()
    playing.completing._heard = None
    return playing, this


def test_a_spool_that_is_a_directory(here):
    """By the mark of a gateway beside it, and the words that edges have brought."""
    playing, this = here
    state = playing.data / "state" / "gw"
    state.mkdir(parents=True)
    marker = Marker(state, RealDisk())
    assert playing.look()["complete_through"] is None
    playing.take("gw", 1, 2, MIDNIGHT - 60)
    through = Through((MIDNIGHT - 10) * S, 2)
    mark = Mark(2, 2, 2, incarnation=this.id, through=through)
    marker.write(mark, now=True)
    playing.now = marker.path.stat().st_mtime
    assert playing.look()["complete_through"] == MIDNIGHT - 10
    word = NodeRecord(
        B, 1, 0, MIDNIGHT - 20, "journal", through=Through((MIDNIGHT - 20) * S, 0)
    )
    node_record.hear(playing.data / "arrivals", "shop", word, MIDNIGHT - 20, RealDisk())
    found = playing.look()
    assert found["complete_through"] == MIDNIGHT - 20
    assert found["held_by"][0]["node"] == "shop"
    arrivals = playing.data / "arrivals"
    (arrivals / f"new_{C}").write_bytes(b"{")
    word = replace(word, through=Through((MIDNIGHT - 15) * S, 0))
    node_record.hear(arrivals, "shop", word, MIDNIGHT - 15, RealDisk())
    assert playing.look()["complete_through"] == MIDNIGHT - 20
    (arrivals / f"new_{C}").unlink()
    assert playing.look()["complete_through"] == MIDNIGHT - 15
    newer = summed.encode(mark).replace(b"1 ", b"9 ", 1)
    crc = google_crc32c.value(newer[:2] + newer[11:-1])
    marker.path.write_bytes(b"9 %08x %b" % (crc, newer[11:]))
    held = playing.look()["held_by"][0]
    assert held["node"] == "gw"
    assert "a newer version of gateway wrote it" in held["why"]


def test_what_the_disk_here_did_not_give_back_is_the_reason(here):
    """The catalog beside the mark has it."""
    playing, this = here
    catalog = Catalog(playing.data / "journal" / "gw", RealDisk())
    catalog.put(Holes(this.id, Lsns([(2, 3)])))
    state = playing.data / "state" / "gw"
    state.mkdir(parents=True)
    through = Through((MIDNIGHT - 10) * S, 3)
    mark = Mark(3, 3, 3, incarnation=this.id, through=through)
    Marker(state, RealDisk()).write(mark, now=True)
    playing.take("gw", 1, 1, MIDNIGHT - 60)
    [held] = playing.look()["held_by"]
    assert held["why"] == "had lsn 2 to 3, which its disk did not give back"


def test_it_looks_every_ten_seconds(playing):
    """And not each second."""
    playing.says("gw", 0)
    assert playing.completing.look() is not None
    playing.now += EVERY_SECONDS - 1
    assert playing.completing.look() is None
    playing.now += 1
    assert playing.completing.look() is not None
