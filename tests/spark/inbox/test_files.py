"""Files of a bucket come to the job, once, and go when they are in the tables."""

import contextlib
import threading
from collections import Counter
from typing import Any

import pytest

from gateway.spark.bucket import inbox as inbox_module
from gateway.spark.bucket.listing import ANEW_SECONDS
from gateway.spark.bucket.missing import LACKING_SECONDS
from gateway.spark.bucket.requests import REQUESTS
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Hole
from gateway.spark.later.deleted_ranges import DeletedRanges
from gateway.store.names import FoundFile, Life, file_name
from gateway.store.objects.bucket import BucketError
from gateway.store.readers import deleted
from gateway.store.readers.deleted import Deletion
from gateway.store.readers.job_word import JobBacklog, JobWriter, owner_of
from incarnations import A, B
from played_spark import PowerCut


def test_a_file_comes_once_and_goes_when_it_is_committed(world):
    names = [world.put(1, 5), world.put(6, 9), world.put(1, 3, "gw-1")]
    inbox = world.inbox()
    assert inbox.look() == 3
    assert inbox.look() == 0
    assert world.here() == sorted(names)
    world.commit(*names)
    assert inbox.look() == 0
    assert set(world.bucket.objects) == {f"_archive/{name}" for name in names}
    assert world.here() == []


def test_a_prefix_is_one_jobs(world):
    """That of the first with a name, for good; others hear whose it is, and change nothing."""
    assert owner_of(world.bucket, "") == ""
    for name in ("north", "south", "", "north"):
        assert owner_of(world.bucket, name) == "north"


def test_gateways_hear_how_far_the_job_is_behind(world):
    """Files of each node that are in no table, in one object, every ten seconds."""
    now = 0.0
    told = JobBacklog(world.bucket, "gw", lambda: 0, lambda: now)
    told.look()
    assert told.files == 0
    names = [world.put(1, 5), world.put(6, 9), world.put(1, 3, "gw-1")]
    inbox = world.inbox(tell_behind=JobWriter(world.bucket, lambda: now))
    inbox.look()
    told.look()
    assert told.files == 2
    world.commit(names[0])
    inbox.look()
    told.look()
    assert told.files == 2
    now += 10
    inbox.look()
    told.look()
    assert told.files == 1


def test_an_object_stays_while_the_job_has_its_copy(world):
    """The tasks of a cluster read it there, also after its events were committed."""
    names = [world.put(1, 5), world.put(6, 9)]
    inbox = world.looked()
    world.committed.add(Life("gw", A), 1, 9)
    inbox.look()
    assert sorted(world.bucket.objects) == names
    world.commit(names[0])
    inbox.look()
    assert sorted(world.bucket.objects) == [f"_archive/{names[0]}", names[1]]


def test_what_somebody_had_deleted_comes_again(world, tmp_path):
    """It is in clear in the bucket's archive then, so that deletion goes on; one that has
    other events does not.
    """
    for name, by, lsn in (("one", A, 2), ("two", A, 7), ("three", B, 2)):
        events = {"gw": {by: [(lsn, lsn)]}}
        deleted.save(
            Lake(), tmp_path, Deletion(name, "asked", "me", 0.0, "why", events=events)
        )
    inbox = world.inbox(deleted=DeletedRanges(tmp_path))
    again, _ = world.put(1, 5), world.put(6, 9)
    inbox.look()
    world.commit(again)
    inbox.look()
    assert f"_archive/{again}" in world.bucket.objects
    assert [one.id for one in deleted.unfinished(tmp_path)] == ["one"]


def test_what_has_expired_comes_again(world, tmp_path):
    """Days after `spark.retention` has removed it from the tables: nobody has asked to have
    that deleted.
    """
    events = {"gw": {A: [(1, 100)]}}
    gone = Deletion(
        "expired", "expired", "gateway", 0.0, "spark.retention", events=events
    )
    deleted.save(Lake(), tmp_path, gone)
    inbox = world.inbox(deleted=DeletedRanges(tmp_path))
    name, _ = world.put(1, 5), world.put(6, 9)
    inbox.look()
    world.commit(name)
    inbox.look()
    assert f"_archive/{name}" in world.bucket.objects
    assert deleted.deletions(tmp_path) == [gone]


def test_with_delete_nothing_is_kept(world):
    """`spool.after: delete`."""
    names = [world.put(1, 5), world.put(6, 9)]
    inbox = world.inbox(archived=False)
    inbox.look()
    world.commit(names[0])
    inbox.look()
    assert list(world.bucket.objects) == [names[1]]


def test_an_object_that_is_uploaded_again_is_looked_at_and_goes_again(world):
    """Its gateway was killed before it knew; or another copy of it has put other events there,
    which the job finds out."""
    names = [world.put(1, 5), world.put(6, 9)]
    inbox = world.looked()
    world.commit(names[0])
    inbox.look()
    world.put(1, 5)
    assert inbox.look() == 1
    assert inbox.copies.again == {names[0]}
    assert inbox.look() == 0
    assert names[0] in world.bucket.objects
    world.commit(names[0])
    inbox.look()
    assert names[0] not in world.bucket.objects
    assert not inbox.copies.again


def test_a_copy_that_somebody_removed_is_fetched_again(world):
    """Beside a job that runs, too: what is in no table does not leave the bucket."""
    names = [world.put(1, 5), world.put(6, 9)]
    inbox = world.looked()
    for name in names:
        (world.folder / name).unlink()
    assert inbox.look() == 2
    assert world.here() == names
    assert sorted(world.bucket.objects) == names


def test_no_more_comes_than_the_job_needs(world):
    """The oldest first; a backlog may be larger than the disk."""
    names = [world.put(n, n, by=B if n < 3 else A) for n in range(1, 9)]
    inbox = world.inbox(most_bytes=250)
    assert inbox.look() == 3
    assert world.here() == sorted(names[:3])
    world.commit(names[0])
    assert inbox.look() == 1
    assert inbox.look(most_bytes=0) == 0


def test_each_node_has_its_turn(world):
    """A backlog of one holds no other one's files up; of each the oldest come first."""
    names = [world.put(n, n) for n in range(1, 9)]
    others = [world.put(n, n, "gw-9") for n in range(1, 4)]
    inbox = world.inbox(most_bytes=350)
    assert inbox.look() == 4
    assert world.here() == sorted([*names[:2], *others[:2]])


def test_what_came_is_there_though_other_requests_failed(world):
    """A server that refuses some requests slows the job down, and stops nothing: what it
    does not give comes the next time, and what can go goes."""
    names = [world.put(n, n) for n in range(1, 9)]
    refused = {names[1], names[4]}

    def fault(request: str, name: str) -> None:
        if name in refused and request in ("read", "remove"):
            raise BucketError("503 SlowDown")

    world.bucket.fault = fault
    inbox = world.inbox(most_bytes=10_000)
    with pytest.raises(BucketError, match="SlowDown"):
        inbox.look()
    assert world.here() == sorted({*names} - refused)
    world.bucket.back()
    assert inbox.look() == 2
    world.commit(*names)
    world.bucket.fault = fault
    with pytest.raises(BucketError, match="SlowDown"):
        inbox.look()
    left = {name for name in world.bucket.objects if "/" not in name}
    assert left == refused
    world.bucket.back()
    inbox.look()
    assert not [name for name in world.bucket.objects if "/" not in name]


def test_what_is_done_goes_though_a_file_can_not_be_read(world):
    """One object that the server never gives (as one that was moved to cold storage) does
    not let the bucket fill up with what is in the tables."""
    names = [world.put(n, n) for n in range(1, 4)]
    inbox = world.looked()
    world.commit(*names)
    cold = world.put(1, 1, "gw-2")

    def fault(request: str, name: str) -> None:
        if request == "read" and name == cold:
            raise BucketError("403 InvalidObjectState")

    world.bucket.fault = fault
    with pytest.raises(BucketError, match="InvalidObjectState"):
        inbox.look()
    left = {name for name in world.bucket.objects if "/" not in name}
    assert left == {cold}


def test_many_are_asked_for_at_once(world):
    """A server that takes its time over each request is asked for many files at the same
    time, and to move many; and it is asked for what is new while it moves what is done."""
    at_once = threading.Barrier(REQUESTS)

    def fault(request: str, name: str) -> None:
        if name in names and request in ("read", "copy"):
            at_once.wait(60)  # breaks where there are fewer

    names = [world.put(n, n) for n in range(1, REQUESTS + 1)]
    inbox = world.inbox(most_bytes=100_000, threads=True)
    world.bucket.fault = fault
    assert inbox.look() == REQUESTS
    world.bucket.back()
    world.commit(*names)
    world.bucket.fault = fault
    inbox.look()
    assert not [name for name in world.bucket.objects if "/" not in name]
    world.bucket.back()
    moved = world.put(100, 100)
    both = threading.Barrier(2)
    inbox.look()
    world.commit(moved)
    new = world.put(101, 101)

    def together(request: str, name: str) -> None:
        if (request, name) in (("copy", moved), ("read", new)):
            both.wait(60)

    world.bucket.fault = together
    assert inbox.look() == 1
    assert moved not in world.bucket.objects


def test_no_more_is_in_memory_than_one_round(world, monkeypatch):
    """Files are whole in memory while they are fetched: few large ones come at once."""
    monkeypatch.setattr(inbox_module, "_ROUND_BYTES", 250)
    names = [world.put(n, n) for n in range(1, 9)]
    fetched: list[int] = []

    def at_once(work: Any, many: Any) -> list[Any]:
        some = [*many]
        if some and isinstance(some[0], FoundFile):
            fetched.append(len(some))
        return [work(one) for one in some]

    inbox = world.inbox(most_bytes=10_000)
    inbox._at_once = at_once
    assert inbox.look() == len(names)
    assert fetched == [3, 3, 2]


def test_a_backlog_is_not_listed_at_each_look(world):
    """One node has pages of files that wait: a look lists what is new, leaps over those, and
    finds another node's file at once; now and then all is listed, so what somebody has
    removed is not taken to be there for ever."""
    backlog = [world.put(n, n, "gw-1") for n in range(1, 5001)]
    inbox = world.inbox(most_bytes=600)
    now = [0.0]
    inbox.listing._clock = inbox._missing._clock = lambda: now[0]

    def pages() -> int:
        asked = [one for one, _ in world.bucket.requests].count("list")
        world.bucket.requests.clear()
        return asked

    assert inbox.look() == 6
    assert pages() == 6  # with what incarnations say of themselves
    here = iter(world.here())
    for node in ("gw-0", "gw-2"):
        late = world.put(5001, 5001, node)
        for name in (next(here), next(here)):
            world.commit(name)
        inbox.look()
        assert pages() == 2
        assert late in world.here()
    for name in backlog[10:4000]:
        del world.bucket.objects[name]
    now[0] = ANEW_SECONDS
    inbox._most_bytes = 1_000_000
    assert inbox.look() == len(backlog) - 3990 - 8
    asked = {name for one, name in world.bucket.requests if one == "read"}
    assert asked.isdisjoint(backlog[10:4000])


def test_what_was_leapt_over_and_is_gone_is_not_asked_for_twice(world):
    """Somebody has removed it since it was listed."""
    names = [world.put(n, n) for n in range(1, 1502)]
    inbox = world.inbox(most_bytes=100)
    inbox.look()
    for name in names[1:1000]:
        del world.bucket.objects[name]
    inbox._most_bytes = 10_000_000
    inbox.look()
    assert {*world.here()} == {names[0], *names[1000:]}
    world.bucket.requests.clear()
    inbox.look()
    assert "read" not in {one for one, _ in world.bucket.requests}


def test_a_server_that_removes_one_at_a_time(world):
    """Not every server knows a request for many: then they go by as many requests at once."""
    names = [world.put(n, n) for n in range(1, 9)]
    inbox = world.looked()
    world.commit(*names)

    def fault(request: str, name: str) -> None:
        if request == "remove_all":
            raise BucketError("501 NotImplemented")

    world.bucket.fault = fault
    inbox.look()
    assert not [name for name in world.bucket.objects if "/" not in name]


def test_what_is_not_leapt_over_is_as_it_was_listed(world):
    """The first one of a long backlog is another one now, and the second is gone."""
    names = [world.put(n, n) for n in range(1, 1502)]
    inbox = world.inbox(most_bytes=0)
    inbox.look()
    world.bucket.objects[names[0]] = b"x" * 90
    del world.bucket.objects[names[1]]
    found = [one.file.name for one in inbox.listing.files()]
    assert found == [names[0], *names[2:]]


@pytest.mark.parametrize("gateways", [1, 200])
def test_a_look_waits_for_few_answers(world, gateways):
    """Seconds of a look are rounds of requests: a server answers after tens of milliseconds,
    whatever it is asked.  Of a thousand files those to fetch and to move are each made by as
    many at once as there may be."""
    rounds: list[int] = []

    def at_once(work: Any, many: Any) -> list[Any]:
        if many and not callable(many[0]):  # those are the look's two parts
            rounds.append(-(-len(many) // REQUESTS))
        return [work(one) for one in many]

    files = 1024
    names = [
        world.put(1 + n // gateways, 1 + n // gateways, f"gw-{n % gateways}")
        for n in range(files)
    ]
    inbox = world.inbox(most_bytes=100 * files)
    inbox._at_once = at_once
    assert inbox.look() == files
    assert sum(rounds) == files // REQUESTS
    world.commit(*names)
    rounds.clear()
    inbox.look()
    assert sum(rounds) == files // REQUESTS
    asked = Counter(one for one, _ in world.bucket.requests)
    # The last list is of what incarnations say of themselves.
    assert (asked["list"], asked["remove_all"], asked["remove"]) == (5, 1, 0)


def test_what_can_not_be_read_does_not_come_again(world):
    """The job has moved it to poison/; the object stays as it is."""
    name = world.put(1, 5)
    inbox = world.looked()
    (world.folder / name).unlink()
    world.holes = (Hole("gw", 1, 5, name, "damaged", 0.0),)
    assert inbox.look() == 0
    assert list(world.bucket.objects) == [name]


@pytest.mark.parametrize("point", range(6))
def test_a_kill_between_any_two_requests_loses_nothing(world, point):
    """Each is done again, or was done."""

    names = [world.put(1, 5), world.put(6, 9)]
    count = [0]

    def fault(request: str, name: str) -> None:
        count[0] += 1
        if count[0] > point:
            raise PowerCut

    inbox = world.looked()
    world.commit(names[0])
    inbox.look()
    world.put(1, 5)
    (world.folder / names[1]).unlink()
    world.bucket.fault = fault
    with contextlib.suppress(PowerCut):
        for _ in range(point + 1):
            inbox = world.looked()
            inbox.look()
    assert count[0] == point + 1
    world.bucket.back()
    inbox = world.looked()
    if names[0] in world.here():  # looked at again, and it is the same
        world.commit(names[0])
    inbox.look()
    assert sorted(world.bucket.objects) == [f"_archive/{names[0]}", names[1]]
    assert world.here() == [names[1]]


def test_a_stop_waits_for_no_download(world, monkeypatch):
    """What is under way ends by itself, and leaves nothing behind; nothing else begins."""
    monkeypatch.setattr(inbox_module, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(inbox_module, "_STOP_SECONDS", 0.001)
    asked, going_on = threading.Event(), threading.Event()
    for n in range(1, 4):
        world.put(n, n)

    def fault(request: str, name: str) -> None:
        if request == "read":
            asked.set()
            assert going_on.wait(60)

    world.bucket.fault = fault
    inbox = world.inbox()
    inbox.start()
    assert asked.wait(60)
    inbox.stop()
    assert inbox._thread.is_alive()
    going_on.set()
    inbox._thread.join(60)
    assert not inbox._thread.is_alive()
    assert world.here() == []
    assert [request for request, _ in world.bucket.requests].count("read") == 1


def test_what_came_later_than_asked_for_stays(world):
    """`--once` reads what was there, and comes to an end while gateways go on."""
    names = [world.put(1, 5), world.put(1, 3, "gw-2")]
    inbox = world.inbox()
    upto = inbox.listing.newest()
    assert upto == {"gw": 5, "gw-2": 3}
    world.put(6, 9)
    world.put(1, 1, "gw-3")
    assert inbox.look(upto=upto) == 2
    assert world.here() == sorted(names)
    assert inbox.look(upto=upto) == 0


def test_an_answer_that_is_cut_short_is_not_a_file(world, monkeypatch, caplog):
    """It is asked for again, and told once."""
    name = world.put(1, 5)
    read = world.bucket.read
    with monkeypatch.context() as patch:
        patch.setattr(
            world.bucket, "read", lambda name, first=0: read(name, first)[:50]
        )
        inbox = world.inbox()
        assert inbox.look() == inbox.look() == 0
    assert world.here() == []
    assert len([one for one in caplog.messages if "says its listing" in one]) == 1
    assert inbox.look() == 1
    assert len((world.folder / name).read_bytes()) == 100


def test_what_somebody_took_out_of_the_bucket_is_missed(world, caplog):
    """A lifecycle rule, or another job: once, when later files have been there for a while,
    and not what is noted to be damaged."""
    first, gone, _ = world.put(1, 5), world.put(6, 9), world.put(10, 12)
    world.holes = (Hole("gw-2", 1, 3, file_name("gw-2", A, 1, 3), "damaged", 1.0),)
    world.put(4, 6, "gw-2")
    world.commit(first)
    inbox = world.inbox()
    now = [0.0]
    inbox.listing._clock = inbox._missing._clock = lambda: now[0]
    inbox.look()
    del world.bucket.objects[gone]
    for now[0] in (1.0, 1.0 + LACKING_SECONDS):
        assert "lifecycle" not in caplog.text
        inbox.look()
    inbox.look()
    assert caplog.text.count("lifecycle") == 1
    assert "4 events of node gw, lsn 6 to 9 first" in caplog.text
    assert "gw-2" not in caplog.text
    world.put(6, 9)
    now[0] += 2 * LACKING_SECONDS
    inbox.look()
    assert caplog.text.count("lifecycle") == 1


def test_a_half_fetched_file_is_fetched_again(world):
    """It has a hidden name until it is whole."""
    name = world.put(1, 5)
    world.folder.mkdir()
    (world.folder / f".{name}").write_bytes(b"x")
    assert world.inbox().look() == 1
    assert world.here() == [name]


def test_a_bucket_that_is_away_is_told_once(world, caplog):
    """The job goes on with what it has."""
    world.bucket.away("503 SlowDown")
    inbox = world.inbox()
    with pytest.raises(BucketError):
        inbox.look()
    with caplog.at_level("INFO", "gateway.spark"):
        inbox.tend()
        inbox.tend()
        world.bucket.back()
        inbox.tend()
        inbox.tend()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
