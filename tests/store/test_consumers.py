"""What consumers have read: their marks, and what stays in archive and bucket for them."""

import re
import threading
from collections.abc import Callable

import pytest

from gateway.sdk import summed
from gateway.store.lsns import Lsns
from gateway.store.names import FoundFile, file_name, found_file, parse_file_name
from gateway.store.readers.consumers import (
    Behind,
    Consumers,
    FileMarks,
    Mark,
    Marks,
    ObjectMarks,
    Unreadable,
)
from gateway.store.spool.consumed import BucketExpiry
from gateway.store.system.disk import RealDisk
from gateway_testkit.bucket import MemoryBucket
from incarnations import A, B

HOUR = 3600.0


def name(first: int, last: int | None = None, node: str = "gw") -> str:
    return file_name(node, A, first, last or first)


def covers(mark: Mark, first: int, last: int | None = None, by: str = A) -> bool:
    file = parse_file_name(file_name("gw", by, first, last or first))
    assert file is not None
    return mark.covers(file)


def there(name: str, size: int = 1, age: float = 0.0) -> FoundFile:
    """A file, at the time 0."""
    found = found_file(name, size, -age)
    assert found is not None
    return found


@pytest.fixture(params=["file", "object"])
def marks(request, tmp_path) -> Marks:
    """Of consumer `mine`, which has said nothing yet."""
    if request.param == "file":
        return FileMarks(tmp_path / "consumers", "mine", RealDisk())
    return ObjectMarks(MemoryBucket(), "mine")


def test_files_in_any_order_become_few_intervals():
    """A mark does not grow with what was read; it covers whole files, and no others."""
    mark = Mark()
    for first in (5, 1, 9, 3, 7):
        mark = mark.with_done([name(first, first + 1)])
    assert mark.done == {f"gw_{A}": Lsns([(1, 10)])}
    mark = mark.with_done([name(21, 30), name(1, 5, node="other")])
    assert mark.done == {
        f"gw_{A}": Lsns([(1, 10), (21, 30)]),
        f"other_{A}": Lsns([(1, 5)]),
    }
    assert covers(mark, 3, 8)
    assert not covers(mark, 10, 11)
    assert not covers(mark, 15)
    assert covers(mark, 21, 30)


def test_a_batch_is_done_when_the_next_one_begins():
    """Spark brings a batch again that it has not committed: until then its files stay,
    and count as read.
    """
    mark = Mark().with_begun(0).with_worked(0, [name(1, 5)])
    file = parse_file_name(name(1, 5))
    assert file is not None
    assert mark.has_seen(file)
    assert not mark.covers(file)
    assert mark.with_begun(1).covers(file)
    again = mark.with_done([]).with_begun(0)
    assert not again.has_seen(file)


def test_a_batch_that_comes_again_is_not_taken_for_done():
    """One that was worked for, and not committed, before the query was killed."""
    mark = Mark().with_worked(0, [name(1)]).with_begun(1).with_worked(1, [name(2)])
    again = mark.with_begun(1)
    assert covers(again, 1)
    assert not covers(again, 2)
    assert covers(again.with_worked(1, [name(2)]).with_begun(2), 2)


def test_a_query_that_begins_anew_needs_all_of_it_again():
    """Without its checkpoint it reads what is there from the first file on."""
    mark = Mark().with_worked(7, [name(1)]).with_begun(8)
    assert covers(mark, 1)
    assert mark.with_begun(0) == Mark(begun=0)


def test_each_incarnation_of_a_node_is_read_by_itself():
    """A rebuilt one gives its lsns again: these are other events."""
    mark = Mark().with_done([name(1, 9)])
    assert covers(mark, 3, 5)
    assert not covers(mark, 3, 5, by=B)
    again = file_name("gw", B, 3, 5)
    mark = mark.with_worked(0, [again]).with_begun(1)
    assert covers(mark, 3, 5, by=B)
    assert not covers(mark, 3, 6, by=B)


def test_a_mark_is_there_as_it_was_written(marks):
    """And nothing is before; what is no name of a file changes nothing."""
    assert marks.read() is None
    marks.change(lambda mark: mark.with_done([name(1, 5)]))
    marks.change(lambda mark: mark.with_worked(3, [name(6, 7)]))
    with pytest.raises(ValueError, match="is no name of a spool file"):
        marks.change(lambda mark: mark.with_done(["a.parquet"]))
    mark = Mark({f"gw_{A}": Lsns([(1, 5)])}, 3, {f"gw_{A}": Lsns([(6, 7)])})
    assert marks.read() == mark
    form = b'{"done":{"gw_aaaaaaaaaa":[[1,5]]},"batch":3,"in_hand":{"gw_aaaaaaaaaa":[[6,7]]}}'
    assert summed.encode(mark)[11:] == form + b"\n"


def test_of_several_who_change_it_at_once_each_is_heard(marks):
    """A command beside a query, as a cron job may start it."""

    def say(first: int) -> Callable[[], None]:
        return lambda: (
            [
                marks.change(lambda mark, lsn=lsn: mark.with_done([name(lsn)]))
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
    assert found.done == {f"gw_{A}": Lsns([(1, 39)])}


def test_a_damaged_mark_keeps_everything(tmp_path):
    """Nobody knows what was read, nor that nothing was; it is said which file, and what to
    do: without its mark a query says nothing of what its checkpoint has.
    """
    places = FileMarks(tmp_path, "mine", RealDisk())
    places.change(lambda mark: mark.with_done([name(1)]))
    consumers = Consumers(lambda _: places, ["mine"])
    consumers.look()
    assert consumers.all_have(there(name(1)).file)
    (tmp_path / "mine").write_bytes(b"00000000 {}\n")
    consumers.look()
    assert not consumers.all_have(there(name(1)).file)
    assert "mine is damaged" in (consumers.behind["mine"].problem or "")
    assert "spool done mine --checkpoint" in (consumers.behind["mine"].problem or "")
    assert consumers.behind["mine"].has_come
    with pytest.raises(Unreadable, match="remove it"):
        places.change(lambda mark: mark)


def test_a_mark_of_a_newer_version_keeps_everything(marks, monkeypatch):
    """The version before runs again, and goes on: it says whose mark it can not read."""
    with monkeypatch.context() as newer:
        newer.setattr(summed, "FORM", 2)
        marks.change(lambda mark: mark.with_done([name(1)]))
    consumers = Consumers(lambda _: marks, ["mine"])
    consumers.look()
    assert not consumers.all_have(there(name(1)).file)
    said = consumers.behind["mine"].problem or ""
    assert re.search("mine: it has form 2, and this version reads form 1", said)


def test_how_far_each_is_behind(tmp_path):
    """Files, bytes, age, and what stays for it beyond its time; what one has read does not
    count, nor who has never come for less than all; the first file that one misses is told.
    """
    places = {one: FileMarks(tmp_path, one, RealDisk()) for one in ("fast", "never")}
    places["fast"].change(lambda mark: mark.with_done([name(1), name(2)]))
    consumers = Consumers(places.__getitem__, ["fast", "never"])
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
    assert not consumers.all_have(there(name(1)).file)
    assert consumers.who_misses(there(name(1)).file) == ["never"]
    assert consumers.missed(["never"]) == ["never"]
    assert consumers.missed(consumers.who_misses(there(name(2)).file)) == []
    assert consumers.behind["fast"].missed_files == 0
    assert consumers.behind["never"].missed_files == 2


def test_objects_go_once_all_have_read_them_and_their_time_is_over():
    """All of the nodes that are looked after, and nothing of others."""
    bucket = MemoryBucket()
    for lsn in (1, 2, 3, 4):
        bucket.create(name(lsn), b"x")
    bucket.create(name(1, node="gw-2"), b"x")
    for lsn in (1, 2):
        bucket.create(name(lsn, node="edge"), b"x")
    now = next(bucket.list(name(1))).modified
    mine = ObjectMarks(bucket, "mine")
    consumers = Consumers(lambda _: mine, ["mine"])
    expiry = BucketExpiry(bucket, lambda: ["gw", "edge"], consumers, HOUR, lambda: now)
    mine.change(lambda mark: mark.with_done([name(1), name(3), name(4)]))
    mine.change(
        lambda mark: mark.with_done([name(1, node="edge"), name(2, node="edge")])
    )
    assert expiry.look() == 0
    now += 2 * HOUR
    assert expiry.look() == 5
    left = sorted(one for one in bucket.objects if one.startswith("events"))
    assert left == [name(1, node="gw-2"), name(2)]
    assert consumers.behind["mine"] == Behind(1, 1, 2 * HOUR, 1, 1, has_come=True)
    consumers.names = []
    assert expiry.look() == 0


def test_an_old_listing_removes_nothing_of_a_later_incarnation():
    """Two hubs look after a bucket; an edge that lost its disk brings the same lsns, as another
    incarnation, when one of them has listed: its object stays, as no name of the listing is its.
    """
    bucket, before, later = MemoryBucket(), name(1), file_name("gw", B, 1, 1)
    bucket.create(before, b"x")
    now = next(bucket.list(before)).modified
    mine = ObjectMarks(bucket, "mine")
    mine.change(lambda mark: mark.with_done([before]))
    hubs = [
        BucketExpiry(
            bucket,
            lambda: ["gw"],
            Consumers(lambda _: mine, ["mine"]),
            HOUR,
            lambda: now,
        )
        for _ in range(2)
    ]
    now += 2 * HOUR

    def meanwhile(request: str, _: str) -> None:
        if request == "remove" and later not in bucket.objects:
            bucket.create(later, b"y")
            assert hubs[1].look() == 1

    bucket.fault = meanwhile
    assert [hub.look() for hub in hubs] == [1, 0]
    assert [one for one in bucket.objects if one.startswith("events")] == [later]


def test_a_node_that_has_gone_costs_next_to_nothing():
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
    consumers = Consumers(lambda _: mine, ["mine"])
    expiry = BucketExpiry(
        bucket, lambda: ["gw", "edge"], consumers, HOUR,
        lambda: now, coming.__contains__,
    )  # fmt: skip

    def listed() -> list[str]:
        asked.clear()
        expiry.look()
        return [what.split("-")[1].rstrip("_") for what in asked]

    assert listed() == listed() == ["gw", "edge"]
    mine.change(
        lambda mark: mark.with_done([name(1, node="edge"), name(2, node="edge")])
    )
    now += 2 * HOUR
    assert listed() == listed() == ["gw", "edge"]
    assert listed() == listed() == ["gw"]
    assert consumers.behind["mine"].files == 1
    now += HOUR
    assert listed() == ["gw", "edge"]
    assert listed() == ["gw"]
    coming.add("edge")
    bucket.create(name(3, node="edge"), b"x")
    assert listed() == listed() == ["gw", "edge"]
    assert consumers.behind["mine"].files == 2
    coming.remove("edge")
    assert listed() == ["gw", "edge"]
