"""What consumers have read: their marks, and what stays in archive and bucket for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.sdk import summed
from gateway.store import consumers
from gateway.store.consumers import (
    Behind,
    Consumers,
    FileMarks,
    Mark,
    Marks,
    ObjectMarks,
    There,
    Unreadable,
)
from gateway.store.disk import RealDisk
from gateway.store.lsns import Lsns
from gateway.store.names import file_name, parse_file_name
from gateway.store.spool.consumed import BucketExpiry
from gateway_testkit.bucket import MemoryBucket

HOUR = 3600.0


def name(first: int, last: int | None = None, node: str = "gw") -> str:
    return file_name(node, first, last or first)


def files(*names: str, life: str = "a1") -> dict[str, str]:
    """Of which that incarnation gave the lsns."""
    return dict.fromkeys(names, life)


def covers(mark: Mark, first: int, last: int | None = None, life: str = "a1") -> bool:
    file = parse_file_name(name(first, last))
    assert file is not None
    return mark.covers(file, life)


def there(name: str, size: int = 1, age: float = 0.0) -> There:
    """A file, at the time 0."""
    return There(name, size, -age)


def of_one_life(marks: Callable[[str], Marks], names: list[str]) -> Consumers:
    """Where no node was ever rebuilt, so no footer is looked at."""

    def unasked(*_: object) -> str:
        raise AssertionError("its life is known")

    return Consumers(marks, lambda *_: ("a1",), unasked, names)


@pytest.fixture(params=["file", "object"])
def marks(request: pytest.FixtureRequest, tmp_path: Path) -> Marks:
    """Of consumer `mine`, which has said nothing yet."""
    if request.param == "file":
        return FileMarks(tmp_path / "consumers", "mine", RealDisk())
    return ObjectMarks(MemoryBucket(), "mine")


def test_files_in_any_order_become_few_intervals() -> None:
    """A mark does not grow with what was read; it covers whole files, and no others."""
    mark = Mark()
    for first in (5, 1, 9, 3, 7):
        mark = mark.with_done(files(name(first, first + 1)))
    assert mark.done == {"gw/a1": Lsns([(1, 10)])}
    mark = mark.with_done(files(name(21, 30), name(1, 5, node="other")))
    assert mark.done == {"gw/a1": Lsns([(1, 10), (21, 30)]), "other/a1": Lsns([(1, 5)])}
    assert covers(mark, 3, 8)
    assert not covers(mark, 10, 11)
    assert not covers(mark, 15)
    assert covers(mark, 21, 30)


def test_a_batch_is_done_when_the_next_one_begins() -> None:
    """Spark brings a batch again that it has not committed: until then its files stay,
    and count as read.
    """
    mark = Mark().with_begun(0).with_worked(0, files(name(1, 5)))
    file = parse_file_name(name(1, 5))
    assert file is not None
    assert mark.has_seen(file, "a1")
    assert not mark.covers(file, "a1")
    assert mark.with_begun(1).covers(file, "a1")
    again = mark.with_done(files()).with_begun(0)
    assert not again.has_seen(file, "a1")


def test_a_batch_that_comes_again_is_not_taken_for_done() -> None:
    """One that was worked for, and not committed, before the query was killed."""
    mark = (
        Mark()
        .with_worked(0, files(name(1)))
        .with_begun(1)
        .with_worked(1, files(name(2)))
    )
    again = mark.with_begun(1)
    assert covers(again, 1)
    assert not covers(again, 2)
    assert covers(again.with_worked(1, files(name(2))).with_begun(2), 2)


def test_a_query_that_begins_anew_needs_all_of_it_again() -> None:
    """Without its checkpoint it reads what is there from the first file on."""
    mark = Mark().with_worked(7, files(name(1))).with_begun(8)
    assert covers(mark, 1)
    assert mark.with_begun(0) == Mark()


def test_each_life_of_a_node_is_read_by_itself() -> None:
    """A rebuilt one gives its lsns again: these are other events.  What an earlier version
    wrote names no life, and counts for each, as it did then.
    """
    mark = Mark().with_done(files(name(1, 9), life="a1"))
    assert covers(mark, 3, 5, life="a1")
    assert not covers(mark, 3, 5, life="b2")
    mark = mark.with_worked(0, files(name(3, 5), life="b2")).with_begun(1)
    assert mark.done == {"gw/a1": Lsns([(1, 9)]), "gw/b2": Lsns([(3, 5)])}
    before = Mark({"gw": Lsns([(1, 9)])})
    assert covers(before, 3, 5, life="a1")
    assert covers(before, 3, 5, life="b2")
    assert before.with_done(files(name(10), life="b2")).done == {
        "gw": Lsns([(1, 9)]),
        "gw/b2": Lsns([(10, 10)]),
    }


def test_a_node_that_is_rebuilt_each_hour_does_not_fill_the_mark() -> None:
    """As with containers that have no disk: the oldest of its lives go, of no other node."""
    mark = Mark().with_done(files(name(1, node="other")))
    for at in range(100):
        mark = mark.with_done(files(name(1, 5), life=f"{at:x}"))
    assert len(mark.done) == 65
    assert covers(mark, 1, 5, life=f"{99:x}")
    assert not covers(mark, 1, 5, life="0")
    assert "other/a1" in mark.done


def test_a_mark_is_there_as_it_was_written(marks: Marks) -> None:
    """And nothing is before; what is no name of a file changes nothing."""
    assert marks.read() is None
    marks.change(lambda mark: mark.with_done(files(name(1, 5))))
    marks.change(lambda mark: mark.with_worked(3, files(name(6, 7))))
    with pytest.raises(ValueError, match="is no name of a spool file"):
        marks.change(lambda mark: mark.with_done(files("a.parquet")))
    mark = Mark({"gw/a1": Lsns([(1, 5)])}, 3, {"gw/a1": Lsns([(6, 7)])})
    assert marks.read() == mark
    form = b'{"done":{"gw/a1":[[1,5]]},"batch":3,"in_hand":{"gw/a1":[[6,7]]}}'
    assert summed.encode(mark)[9:] == form + b"\n"


def test_of_several_who_change_it_at_once_each_is_heard(marks: Marks) -> None:
    """A command beside a query, as a cron job may start it."""

    def say(first: int) -> Callable[[], None]:
        return lambda: (
            [
                marks.change(lambda mark, lsn=lsn: mark.with_done(files(name(lsn))))
                for lsn in range(first, 40, 4)
            ]
            and None
        )

    threads = [threading.Thread(target=say(first)) for first in (1, 2, 3, 4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    found = marks.read()
    assert found is not None
    assert found.done == {"gw/a1": Lsns([(1, 39)])}


def test_a_damaged_mark_keeps_everything(tmp_path: Path) -> None:
    """Nobody knows what was read, nor that nothing was; it is said which file, and what to
    do: without its mark a query says nothing of what its checkpoint has.
    """
    places = FileMarks(tmp_path, "mine", RealDisk())
    places.change(lambda mark: mark.with_done(files(name(1))))
    consumers = of_one_life(lambda _: places, ["mine"])
    consumers.look()
    assert consumers.all_have(there(name(1)))
    (tmp_path / "mine").write_bytes(b"00000000 {}\n")
    consumers.look()
    assert not consumers.all_have(there(name(1)))
    assert "mine is damaged" in (consumers.behind["mine"].problem or "")
    assert "spool done mine --checkpoint" in (consumers.behind["mine"].problem or "")
    assert consumers.behind["mine"].has_come
    with pytest.raises(Unreadable, match="remove it"):
        places.change(lambda mark: mark)


def test_how_far_each_is_behind(tmp_path: Path) -> None:
    """Files, bytes, age, and what stays for it beyond its time; what one has read does not
    count, nor who has never come for less than all; the first file that one misses is told.
    """
    places = {one: FileMarks(tmp_path, one, RealDisk()) for one in ("fast", "never")}
    places["fast"].change(lambda mark: mark.with_done(files(name(1), name(2))))
    consumers = of_one_life(places.__getitem__, ["fast", "never"])
    consumers.look()
    consumers.count(
        [
            there(name(1), 10, 2 * HOUR),
            there(name(2), 10, 60.0),
            there(name(3), 5, 30.0),
        ],
        now=0.0,
        retention=HOUR,
    )
    assert consumers.behind == {
        "fast": Behind(1, 5, 30.0, has_come=True),
        "never": Behind(3, 25, 2 * HOUR, 1, 10),
    }
    assert not consumers.all_have(there(name(1)))
    assert consumers.who_misses(there(name(1))) == ["never"]
    assert consumers.missed(["never"]) == ["never"]
    assert consumers.missed(consumers.who_misses(there(name(2)))) == []
    assert consumers.behind["fast"].missed_files == 0
    assert consumers.behind["never"].missed_files == 2


class Rebuilt:
    """A node of two lives, and which of its files the footers say is whose."""

    def __init__(self, marks: Marks) -> None:
        self.footers = {name(1, 5): "a1", name(1, 3): "b2"}
        self.looked_at: list[str] = []
        self.consumers = Consumers(
            lambda _: marks, lambda *_: ("a1", "b2"), self._life_of, ["mine"]
        )

    def _life_of(self, name: str, _: int) -> str:
        self.looked_at.append(name)
        if name not in self.footers:
            raise OSError(name)
        return self.footers[name]

    def read(self) -> list[str]:
        """Which of its files the consumer has, and what is counted as behind agrees."""
        self.consumers.look()
        found = [there(one) for one in self.footers]
        read = [one.name for one in found if self.consumers.all_have(one)]
        self.consumers.count(found, 0.0, HOUR)
        assert self.consumers.behind["mine"].files == len(found) - len(read)
        return read


def test_a_rebuilt_nodes_file_waits_for_a_consumer_that_is_late(marks: Marks) -> None:
    """Its lsns are some that the consumer had of the earlier life.  Footers are looked at
    where that matters, each once.
    """
    rebuilt = Rebuilt(marks)
    assert rebuilt.read() == rebuilt.looked_at == []
    marks.change(lambda mark: mark.with_done(files(name(1, 5), life="a1")))
    assert rebuilt.read() == rebuilt.read() == [name(1, 5)]
    assert rebuilt.looked_at == [name(1, 5), name(1, 3)]
    marks.change(lambda mark: mark.with_done(files(name(1, 3), life="b2")))
    assert rebuilt.read() == [name(1, 5), name(1, 3)]


def test_what_is_not_known_of_a_file_keeps_it(
    marks: Marks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one has its name since, its footer is not read yet, or can not be."""
    monkeypatch.setattr(consumers, "_FOOTERS_AT_ONCE", 1)
    rebuilt = Rebuilt(marks)
    rebuilt.footers[name(1, 3)] = "a1"
    marks.change(lambda mark: mark.with_done(files(name(1, 5), life="a1")))
    assert rebuilt.read() == [name(1, 5)]
    assert rebuilt.read() == [name(1, 5), name(1, 3)]
    rebuilt.footers[name(1, 5)] = "b2"
    rebuilt.consumers.look()
    assert not rebuilt.consumers.all_have(there(name(1, 5), age=-60.0))
    assert rebuilt.consumers.who_misses(there(name(1, 4), age=-60.0)) == ["mine"]


def test_objects_go_once_all_have_read_them_and_their_time_is_over() -> None:
    """All of the nodes that are looked after but the newest of each, behind which a new disk
    goes on; nothing of others.
    """
    bucket = MemoryBucket()
    for lsn in (1, 2, 3, 4):
        bucket.create(name(lsn), b"x")
    bucket.create(name(1, node="gw-2"), b"x")
    for lsn in (1, 2):
        bucket.create(name(lsn, node="edge"), b"x")
    now = next(bucket.list(name(1))).modified
    mine = ObjectMarks(bucket, "mine")
    consumers = of_one_life(lambda _: mine, ["mine"])
    expiry = BucketExpiry(bucket, lambda: ["gw", "edge"], consumers, HOUR, lambda: now)
    mine.change(lambda mark: mark.with_done(files(name(1), name(3), name(4))))
    mine.change(
        lambda mark: mark.with_done(files(name(1, node="edge"), name(2, node="edge")))
    )
    assert expiry.look() == 0
    now += 2 * HOUR
    assert expiry.look() == 3
    left = sorted(one for one in bucket.objects if one.startswith("events"))
    assert left == [name(2, node="edge"), name(2), name(4), name(1, node="gw-2")]
    assert consumers.behind["mine"] == Behind(1, 1, 2 * HOUR, 1, 1, has_come=True)
    consumers.names = []
    assert expiry.look() == 0


def test_the_newest_object_makes_room_for_a_later_lifes_file() -> None:
    """Which has its name, and would wait for ever: once all have read what is there, and its
    time is over, as with any other object.
    """
    bucket = MemoryBucket()
    for lsn in (1, 2):
        bucket.create(name(lsn, node="edge"), b"x")
    now, waiting = 0.0, {name(2, node="edge")}
    mine = ObjectMarks(bucket, "mine")
    expiry = BucketExpiry(
        bucket, lambda: ["edge"], of_one_life(lambda _: mine, ["mine"]), HOUR,
        lambda: now, waits=waiting.__contains__,
    )  # fmt: skip
    mine.change(lambda mark: mark.with_done(files(name(1, node="edge"))))
    assert expiry.look() == 0
    now += 2 * HOUR
    assert expiry.look() == 1
    assert [one.name for one in bucket.list("events-")] == [name(2, node="edge")]
    mine.change(lambda mark: mark.with_done(files(name(2, node="edge"))))
    assert expiry.look() == 1
    assert [*bucket.list("events-")] == []


def test_a_node_that_has_gone_costs_next_to_nothing() -> None:
    """What is left of it is counted as ever, and listed once an hour; it is listed at each
    look as long as something may go, and as soon as files of it may come.
    """
    bucket = MemoryBucket()
    asked: list[str] = []
    for node in ("gw", "edge"):
        bucket.create(name(1, node=node), b"x")
    bucket.create(name(2, node="edge"), b"x")
    bucket.fault = lambda request, what: (
        asked.append(what) if request == "list" else None
    )
    now, coming = 0.0, {"gw"}
    mine = ObjectMarks(bucket, "mine")
    consumers = Consumers(lambda _: mine, lambda *_: ("a1",), lambda *_: "a1", ["mine"])
    expiry = BucketExpiry(
        bucket, lambda: ["gw", "edge"], consumers, HOUR,
        lambda: now, coming.__contains__,
    )  # fmt: skip

    def listed() -> list[str]:
        asked.clear()
        expiry.look()
        return [what.split("-")[1] for what in asked]

    assert listed() == listed() == ["gw", "edge"]
    mine.change(lambda mark: mark.with_done(files(name(1, node="edge"))))
    now += 2 * HOUR
    assert listed() == listed() == ["gw", "edge"]
    assert listed() == listed() == ["gw"]
    assert consumers.behind["mine"].files == 2
    now += HOUR
    assert listed() == ["gw", "edge"]
    assert listed() == ["gw"]
    coming.add("edge")
    bucket.create(name(3, node="edge"), b"x")
    assert listed() == listed() == ["gw", "edge"]
    assert consumers.behind["mine"].files == 3
    coming.remove("edge")
    assert listed() == ["gw", "edge"]
