"""Files of a bucket come to the job, once, and go when they are in the tables."""

from __future__ import annotations

import contextlib
import io
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.audit import audit
from gateway.config import model
from gateway.config.bucket import BucketUrl
from gateway.spark import footers, running
from gateway.spark import inbox as inbox_module
from gateway.spark.inbox import REQUESTS, Inbox, by_threads
from gateway.spark.lakedisk import Lake
from gateway.spark.ledger import Hole, Ledger, Life, Ranges, SpoolFile
from gateway.store.bucket import BucketError
from gateway.store.directories import Directories
from gateway.store.incarnation import KEY
from gateway.store.job_word import JobBacklog, JobWriter, owner_of
from gateway.store.lake import End
from gateway.store.names import file_name
from gateway.store.s3 import S3
from gateway.store.word import UNDECIDED, Reached, Word, name_of
from gateway_testkit.bucket import MemoryBucket
from gateway_testkit.settings import options_of
from played_spark import PowerCut
from small_s3 import SmallS3, small_s3


class World:
    """A bucket, and a job that has committed what the test says."""

    def __init__(self, root: Path) -> None:
        self.bucket = MemoryBucket()
        self.folder = root / "inbox"
        self.committed = Ranges()
        self.holes: tuple[Hole, ...] = ()

    def inbox(
        self,
        *,
        archived: bool = True,
        most_bytes: int = 1000,
        threads: bool = False,
        tell_behind: Callable[[Mapping[str, int]], None] = lambda _: None,
        whole: bool = True,
    ) -> Inbox:
        found = Inbox(
            self.bucket,
            self.folder,
            Lake(),
            lambda: Ledger(committed=self.committed, holes=self.holes),
            archived=archived,
            most_bytes=most_bytes,
            at_once=by_threads if threads else map,
            tell_behind=tell_behind,
            whole=whole,
        )
        found.recover()
        return found

    def put(self, first: int, last: int, node: str = "gw") -> str:
        name = file_name(node, first, last)
        self.bucket.objects[name] = b"x" * 100
        return name

    def commit(self, name: str, incarnation: str = "") -> None:
        """As the job does: into the tables, and out of its directory."""
        file = SpoolFile.parse(name)
        assert file is not None
        self.committed.add(Life(file.node, incarnation), file.first, file.last)
        (self.folder / name).unlink(missing_ok=True)

    def here(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_file_comes_once_and_goes_when_it_is_committed(world: World) -> None:
    """But for the newest of each node, behind which a gateway without a disk goes on."""
    names = [world.put(1, 5), world.put(6, 9), world.put(1, 3, "gw-1")]
    inbox = world.inbox()
    assert inbox.look() == 3
    assert inbox.look() == 0
    assert world.here() == sorted(names)
    for name in names:
        world.commit(name)
    assert inbox.look() == 0
    assert sorted(world.bucket.objects) == [
        f"_archive/{names[0]}", names[1], names[2]
    ]  # fmt: skip
    assert world.here() == []


def test_a_prefix_is_one_jobs(world: World) -> None:
    """That of the first with a name, for good; others hear whose it is, and change nothing."""
    assert owner_of(world.bucket, "") == ""
    for name in ("north", "south", "", "north"):
        assert owner_of(world.bucket, name) == "north"


def test_gateways_hear_how_far_the_job_is_behind(world: World) -> None:
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


def test_an_object_stays_while_the_job_has_its_copy(world: World) -> None:
    """The tasks of a cluster read it there, also after its events were committed."""
    names = [world.put(1, 5), world.put(6, 9)]
    inbox = world.inbox()
    inbox.look()
    world.committed.add(Life("gw"), 1, 9)
    inbox.look()
    assert sorted(world.bucket.objects) == names
    world.commit(names[0])
    inbox.look()
    assert sorted(world.bucket.objects) == [f"_archive/{names[0]}", names[1]]


def test_with_delete_nothing_is_kept(world: World) -> None:
    """`spool.after: delete`."""
    names = [world.put(1, 5), world.put(6, 9)]
    inbox = world.inbox(archived=False)
    inbox.look()
    world.commit(names[0])
    inbox.look()
    assert list(world.bucket.objects) == [names[1]]


def test_an_object_that_is_uploaded_again_only_goes_again(world: World) -> None:
    """Its gateway was killed before it knew."""
    names = [world.put(1, 5), world.put(6, 9)]
    inbox = world.inbox()
    inbox.look()
    world.commit(names[0])
    inbox.look()
    world.put(1, 5)
    assert inbox.look() == inbox.look() == 0
    assert names[0] not in world.bucket.objects


def test_a_copy_that_somebody_removed_is_fetched_again(world: World) -> None:
    """Beside a job that runs, too: what is in no table does not leave the bucket."""
    names = [world.put(1, 5), world.put(6, 9)]
    inbox = world.inbox()
    inbox.look()
    for name in names:
        (world.folder / name).unlink()
    assert inbox.look() == 2
    assert world.here() == names
    assert sorted(world.bucket.objects) == names


def test_no_more_comes_than_the_job_needs(world: World) -> None:
    """The oldest first; a backlog may be larger than the disk."""
    names = [world.put(n, n) for n in range(1, 9)]
    inbox = world.inbox(most_bytes=250)
    assert inbox.look() == 3
    assert world.here() == names[:3]
    world.commit(names[0])
    assert inbox.look() == 1
    assert inbox.look(most_bytes=0) == 0


def test_each_node_has_its_turn(world: World) -> None:
    """A backlog of one holds no other one's files up; of each the oldest come first."""
    names = [world.put(n, n) for n in range(1, 9)]
    others = [world.put(n, n, "gw-9") for n in range(1, 4)]
    inbox = world.inbox(most_bytes=350)
    assert inbox.look() == 4
    assert world.here() == sorted([*names[:2], *others[:2]])


def test_what_came_is_there_though_other_requests_failed(world: World) -> None:
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
    for name in names:
        world.commit(name)
    world.bucket.fault = fault
    with pytest.raises(BucketError, match="SlowDown"):
        inbox.look()
    left = {name for name in world.bucket.objects if "/" not in name}
    assert left == refused | {names[-1]}
    world.bucket.back()
    inbox.look()
    assert [name for name in world.bucket.objects if "/" not in name] == [names[-1]]


def test_what_is_done_goes_though_a_file_can_not_be_read(world: World) -> None:
    """One object that the server never gives (as one that was moved to cold storage) does
    not let the bucket fill up with what is in the tables."""
    names = [world.put(n, n) for n in range(1, 4)]
    inbox = world.inbox()
    inbox.look()
    for name in names:
        world.commit(name)
    cold = world.put(1, 1, "gw-2")

    def fault(request: str, name: str) -> None:
        if request == "read" and name == cold:
            raise BucketError("403 InvalidObjectState")

    world.bucket.fault = fault
    with pytest.raises(BucketError, match="InvalidObjectState"):
        inbox.look()
    left = {name for name in world.bucket.objects if "/" not in name}
    assert left == {names[-1], cold}


def test_a_node_that_was_taken_over_holds_no_other_up(world: World) -> None:
    """Where what came too late from it can not be put aside, the files of others come."""
    said = Word(fenced={"old": 5})
    world.bucket.objects[name_of("gw")] = msgspec.json.encode(said)
    late = world.put(6, 9)
    world.bucket.objects[late] = by("old")
    other = world.put(1, 4, "gw-2")

    def fault(request: str, name: str) -> None:
        if request == "copy":
            raise BucketError("403 AccessDenied")

    world.bucket.fault = fault
    with pytest.raises(BucketError, match="AccessDenied"):
        world.inbox(most_bytes=10_000).look()
    assert other in world.here()
    assert late not in world.here()


def test_many_are_asked_for_at_once(world: World) -> None:
    """A server that takes its time over each request is asked for many files at the same
    time, and to move many; and it is asked for what is new while it moves what is done."""
    at_once = threading.Barrier(REQUESTS)

    def fault(request: str, name: str) -> None:
        if name in names and request in ("read", "copy"):
            at_once.wait(60)  # breaks where there are fewer

    names = [world.put(n, n) for n in range(1, REQUESTS + 1)]
    last = world.put(99, 99)
    inbox = world.inbox(most_bytes=100_000, threads=True)
    world.bucket.fault = fault
    assert inbox.look() == REQUESTS + 1
    world.bucket.back()
    world.commit(last)
    for name in names:
        world.commit(name)
    world.bucket.fault = fault
    inbox.look()
    assert [name for name in world.bucket.objects if "/" not in name] == [
        file_name("gw", 99, 99)
    ]
    world.bucket.back()
    world.put(100, 100)
    moved = file_name("gw", 99, 99)
    both = threading.Barrier(2)
    inbox.look()
    world.commit(world.put(100, 100))
    new = world.put(101, 101)

    def together(request: str, name: str) -> None:
        if (request, name) in (("copy", moved), ("read", new)):
            both.wait(60)

    world.bucket.fault = together
    assert inbox.look() == 1
    assert moved not in world.bucket.objects


def test_no_more_is_in_memory_than_one_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are whole in memory while they are fetched: few large ones come at once."""
    monkeypatch.setattr(inbox_module, "_ROUND_BYTES", 250)
    names = [world.put(n, n) for n in range(1, 9)]
    fetched: list[int] = []

    def at_once(work: Any, many: Any) -> list[Any]:
        some = [*many]
        if some and isinstance(some[0], inbox_module._Object):
            fetched.append(len(some))
        return [work(one) for one in some]

    inbox = world.inbox(most_bytes=10_000)
    inbox._at_once = at_once
    assert inbox.look() == len(names)
    assert fetched == [3, 3, 2]


def test_a_backlog_is_not_listed_at_each_look(world: World) -> None:
    """One node has pages of files that wait: a look lists what is new, leaps over those, and
    finds another node's file at once; now and then all is listed, so what somebody has
    removed is not taken to be there for ever."""
    backlog = [world.put(n, n, "gw-1") for n in range(1, 5001)]
    inbox = world.inbox(most_bytes=600)
    now = [0.0]
    inbox._clock = lambda: now[0]

    def pages() -> int:
        asked = [one for one, _ in world.bucket.requests].count("list")
        world.bucket.requests.clear()
        return asked

    assert inbox.look() == 6
    assert pages() == 5
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
    now[0] = inbox_module._ANEW_SECONDS
    inbox._most_bytes = 1_000_000
    assert inbox.look() == len(backlog) - 3990 - 8
    asked = {name for one, name in world.bucket.requests if one == "read"}
    assert asked.isdisjoint(backlog[10:4000])


def test_what_was_leapt_over_and_is_gone_is_not_asked_for_twice(world: World) -> None:
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


def test_a_server_that_removes_one_at_a_time(world: World) -> None:
    """Not every server knows a request for many: then they go by as many requests at once."""
    names = [world.put(n, n) for n in range(1, 9)]
    inbox = world.inbox()
    inbox.look()
    for name in names:
        world.commit(name)

    def fault(request: str, name: str) -> None:
        if request == "remove_all":
            raise BucketError("501 NotImplemented")

    world.bucket.fault = fault
    inbox.look()
    assert [name for name in world.bucket.objects if "/" not in name] == [names[-1]]


def large(incarnation: str, *, words: int = 0) -> bytes:
    """A file of 100,000 bytes and some, with so many bytes more of words in its footer."""
    payload = [random.Random(n).randbytes(1000) for n in range(100)]
    table = pa.table({"lsn": [*range(1, 101)], "payload": payload})
    out = io.BytesIO()
    said = {KEY: incarnation, b"more": b"x" * words}
    pq.write_table(table.replace_schema_metadata(said), out, compression="none")
    return out.getvalue()


def test_where_tasks_read_the_bucket_only_footers_come(world: World) -> None:
    """A copy has the size of what it is of, and says which events it has; no request is for
    more than that, but the first for a footer that is larger than those before."""
    asked: list[int] = []
    files = {
        world.put(1 + n, 1 + n): large(f"by-{n}", words=9000 if n else 0)
        for n in range(4)
    }
    world.bucket.objects |= files
    small = world.put(1, 5, "gw-2")
    world.bucket.objects[small] = by("other")
    inbox = world.inbox(most_bytes=1 << 30, whole=False)
    read = world.bucket.read

    def reading(name: str, first: int = 0) -> bytes:
        data = read(name, first)
        asked.append(len(data))
        return data

    world.bucket.read = reading  # type: ignore[method-assign]
    assert inbox.look() == len(files) + 1
    for number, (name, data) in enumerate(files.items()):
        path = world.folder / name
        assert path.stat().st_size == len(data)
        assert footers.is_alone(path)
        assert footers.incarnation_of(path) == f"by-{number}"
        assert pq.read_metadata(path).num_rows == 100
    assert (world.folder / small).read_bytes() == by("other")
    assert len(asked) == len(files) + 1 + 1
    assert sum(asked) < 0.2 * sum(map(len, files.values()))
    for name in files:
        world.commit(name, "by")
    inbox.look()
    kept = {name: data for name, data in world.bucket.objects.items() if "/" in name}
    assert kept == {f"_archive/{name}": files[name] for name in [*files][:-1]}


def test_a_damaged_length_has_no_other_file_come_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is that of one footer; of those of others not much more is asked for than before."""
    monkeypatch.setattr(inbox_module, "_MOST_FOOTER_BYTES", 10_000)
    names = [world.put(n, n) for n in (1, 2)]
    damaged = large("one")[:-8] + (1 << 31).to_bytes(4, "little") + b"PAR1"
    world.bucket.objects |= {names[0]: damaged, names[1]: large("one")}
    assert world.inbox(most_bytes=1 << 30, whole=False).look() == 2
    assert (world.folder / names[0]).read_bytes() == damaged
    assert footers.is_alone(world.folder / names[1])


def test_a_footer_that_is_cut_short_is_not_a_file(world: World) -> None:
    """It is asked for again."""
    name = world.put(1, 5)
    world.bucket.objects[name] = large("new")
    read = world.bucket.read
    world.bucket.read = lambda name, first=0: read(name, first)[:-9]  # type: ignore[method-assign]
    inbox = world.inbox(most_bytes=1 << 30, whole=False)
    assert inbox.look() == 0
    assert world.here() == []
    world.bucket.read = read  # type: ignore[method-assign]
    assert inbox.look() == 1


def test_a_file_that_is_compared_with_the_tables_comes_whole(world: World) -> None:
    """They have some of its lsns of an incarnation that nobody knows: its first event says
    whether these are its events."""
    name = world.put(1, 5)
    world.bucket.objects[name] = large("new")
    world.committed.add(Life("gw"), 5, 6)
    assert world.inbox(most_bytes=1 << 30, whole=False).look() == 1
    assert (world.folder / name).read_bytes() == world.bucket.objects[name]


def test_what_a_batch_could_not_read_comes_whole(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """So that it is known which of its files is damaged.  What somebody has removed, or
    changed, after its footer was fetched, is no copy of anything; a small file is, and is
    put back once that is known to be sound."""
    names = [world.put(n, n) for n in range(1, 8)]
    before = {name: large(name) for name in names[:3]}
    before |= {name: world.bucket.objects[name] for name in names[3:]}
    world.bucket.objects |= before
    inbox = world.inbox(most_bytes=1 << 30, whole=False)
    assert inbox.look() == len(names)
    files = [file for name in names if (file := SpoolFile.parse(name))]
    assert inbox.mend(files) == []
    del world.bucket.objects[names[1]]
    world.bucket.objects[names[2]] = by("other")
    del world.bucket.objects[names[4]]
    world.bucket.objects[names[5]] = b"x" * 99
    (world.folder / names[6]).unlink()
    del world.bucket.objects[names[6]]
    there = dict(world.bucket.objects)
    assert inbox.complete(files) == names[:3]
    assert world.bucket.objects == there
    assert inbox.mend(files) == names[4:6]
    assert world.here() == [names[0], *names[3:6]]
    for name in world.here():
        assert (world.folder / name).read_bytes() == before[name]
        assert world.bucket.objects[name] == before[name]
    assert inbox.complete(files) == inbox.mend(files) == []
    assert caplog.text.count("it had is in no table") == 2
    assert inbox.look() == 1
    assert (world.folder / names[2]).read_bytes() == by("other")


def test_of_copies_that_tasks_read_none_is_compared(world: World) -> None:
    """Where they run on this machine; but one that was fetched for a cluster's is completed."""
    names = [world.put(n, n) for n in (1, 2)]
    world.bucket.objects[names[0]] = large("new")
    world.inbox(most_bytes=1 << 30, whole=False).look()
    inbox = world.inbox(most_bytes=1 << 30)
    world.bucket.requests.clear()
    files = [file for name in names if (file := SpoolFile.parse(name))]
    assert inbox.complete(files) == names[:1]
    assert inbox.mend(files) == []
    assert world.bucket.requests == [("read", names[0])]
    assert (world.folder / names[0]).read_bytes() == world.bucket.objects[names[0]]


def test_what_is_not_leapt_over_is_as_it_was_listed(world: World) -> None:
    """The first one of a long backlog is another one now, and the second is gone."""
    names = [world.put(n, n) for n in range(1, 1502)]
    inbox = world.inbox(most_bytes=0)
    inbox.look()
    world.bucket.objects[names[0]] = b"x" * 90
    del world.bucket.objects[names[1]]
    found = [one.file.name for one in inbox._objects()]
    assert found == [names[0], *names[2:]]


@pytest.mark.parametrize("gateways", [1, 200])
def test_a_look_waits_for_few_answers(world: World, gateways: int) -> None:
    """Seconds of a look are rounds of requests: a server answers after tens of milliseconds,
    whatever it is asked.  Of a thousand files those to fetch, to ask whose names they have,
    and to move are each made by as many at once as there may be."""
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
    of_words = (
        files
        // inbox_module._ROUND
        * -(-min(gateways, inbox_module._ROUND) // REQUESTS)
    )
    assert sum(rounds) == files // REQUESTS + of_words
    for name in names:
        world.commit(name)
    rounds.clear()
    inbox.look()
    assert sum(rounds) == -(-(files - gateways) // REQUESTS)
    asked = Counter(one for one, _ in world.bucket.requests)
    assert (asked["list"], asked["remove_all"], asked["remove"]) == (4, 1, 0)


def test_what_can_not_be_read_does_not_come_again(world: World) -> None:
    """The job has moved it to poison/; the object stays as it is."""
    name = world.put(1, 5)
    inbox = world.inbox()
    inbox.look()
    (world.folder / name).unlink()
    world.holes = (Hole("gw", 1, 5, name, "damaged", 0.0),)
    assert inbox.look() == 0
    assert list(world.bucket.objects) == [name]


@pytest.mark.parametrize("point", range(6))
def test_a_kill_between_any_two_requests_loses_nothing(
    world: World, point: int
) -> None:
    """Each is done again, or was done."""

    names = [world.put(1, 5), world.put(6, 9)]
    count = [0]

    def fault(request: str, name: str) -> None:
        count[0] += 1
        if count[0] > point:
            raise PowerCut

    inbox = world.inbox()
    inbox.look()
    world.commit(names[0])
    inbox.look()
    world.put(1, 5)
    (world.folder / names[1]).unlink()
    world.bucket.fault = fault
    with contextlib.suppress(PowerCut):
        for _ in range(point + 1):
            inbox = world.inbox()
            inbox.look()
            inbox.look()
    assert count[0] == point + 1
    world.bucket.back()
    inbox = world.inbox()
    inbox.look()
    inbox.look()
    assert sorted(world.bucket.objects) == [f"_archive/{names[0]}", names[1]]
    assert world.here() == [names[1]]


def test_a_stop_waits_for_no_download(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_what_came_later_than_asked_for_stays(world: World) -> None:
    """`--once` reads what was there, and comes to an end while gateways go on."""
    names = [world.put(1, 5), world.put(1, 3, "gw-2")]
    inbox = world.inbox()
    upto = inbox.newest()
    assert upto == {"gw": 5, "gw-2": 3}
    world.put(6, 9)
    world.put(1, 1, "gw-3")
    assert inbox.look(upto=upto) == 2
    assert world.here() == sorted(names)
    assert inbox.look(upto=upto) == 0


def by(incarnation: str) -> bytes:
    """A file that says who published it."""
    table = pa.table({"lsn": [1]}).replace_schema_metadata({KEY: incarnation})
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def test_what_comes_from_who_was_taken_over_is_put_aside(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The other gateway gives the same lsns: its file is the one that is taken.  What the
    first one had put there before that is, too."""
    early, late, mine = world.put(1, 5), world.put(6, 9), world.put(6, 8)
    world.bucket.objects |= {early: by("old"), late: by("old"), mine: by("new")}
    said = Word(fenced={"old": 5})
    world.bucket.objects[name_of("gw")] = msgspec.json.encode(said)
    other = world.put(6, 9, "gw-2")
    assert world.inbox(most_bytes=10_000).look() == 3
    assert world.here() == sorted([early, mine, other])
    assert f"_fenced/{late}" in world.bucket.objects
    assert late not in world.bucket.objects
    assert "incarnation old" in caplog.text


def test_what_comes_too_late_takes_nobodys_place(world: World) -> None:
    """The newest file of a node is the newest that the job may have: what a gateway that was
    taken over puts behind it does not push it out."""
    newest, late = world.put(1, 5), world.put(1001, 1005)
    world.bucket.objects |= {newest: by("new"), late: by("old")}
    said = Word(fenced={"old": 0})
    world.bucket.objects[name_of("gw")] = msgspec.json.encode(said)
    inbox = world.inbox(most_bytes=10_000)
    assert inbox.look() == 1
    world.commit(newest, "new")
    for _ in range(3):
        inbox.look()
    assert newest in world.bucket.objects
    assert late not in world.bucket.objects
    world.put(6, 9)
    inbox.look()
    inbox.look()
    assert newest not in world.bucket.objects


def test_a_name_does_not_say_whose_lsns_they_are(world: World) -> None:
    """Over lsns that the tables have of another incarnation an object is fetched; once more
    after each start, an object whose events they have is looked at, and only removed."""
    names = [world.put(1, 5), world.put(6, 9)]
    world.bucket.objects |= {name: by("new") for name in names}
    world.committed.add(Life("gw", "old"), 1, 20)
    inbox = world.inbox(most_bytes=10_000)
    assert inbox.look() == 2
    assert world.here() == names
    for name in names:
        world.commit(name, "new")
    again = world.inbox(most_bytes=10_000)
    assert again.look() == again.look() == 0
    assert sorted(world.bucket.objects) == [f"_archive/{names[0]}", names[1]]
    reads = world.bucket.requests.count(("read", names[1]))
    assert again.look() == again.look() == 0
    assert world.bucket.requests.count(("read", names[1])) == reads


def test_an_answer_that_is_cut_short_is_not_a_file(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
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


def test_how_incarnations_ended_is_heard_of(world: World) -> None:
    """From the word of who came after; and that a disk is back after all."""
    name = world.put(6, 9)
    world.bucket.objects[name] = by("new")
    ended = End(5, 1.0, "journal", exact=False, found=3.0, since=1)
    now = Reached("new", 6, 9, 4.0, "journal", earlier=("other",))
    said = Word(reached=now, ended={"old": ended})
    world.bucket.objects[name_of("gw")] = msgspec.json.encode(said)
    inbox = world.inbox(most_bytes=10_000)
    inbox.look()
    assert inbox.ends == {
        Life("gw", "old"): ended,
        Life("gw", "new"): None,
        Life("gw", "other"): None,
    }


def test_a_name_is_asked_for_after_files_were_fetched(world: World) -> None:
    """What its new holder can not have seen has arrived after that; else it goes on behind."""
    late = world.put(6, 9)
    world.bucket.objects[late] = by("old")

    def fault(request: str, name: str) -> None:
        if (request, name) == ("read", late):
            said = msgspec.json.encode(Word(fenced={"old": 5}))
            world.bucket.objects[name_of("gw")] = said

    world.bucket.fault = fault
    assert world.inbox().look() == 0
    assert world.here() == []


def test_files_wait_for_the_word_of_who_has_taken_over(world: World) -> None:
    """Not for ever: it may have ended before it said anything."""
    name = world.put(1, 5)
    world.bucket.objects[name] = by("old")
    said = Word(fenced={"old": UNDECIDED})
    world.bucket.objects[name_of("gw")] = msgspec.json.encode(said)
    inbox = world.inbox()
    now = [0.0]
    inbox._clock = lambda: now[0]
    assert inbox.look() == 0
    assert world.here() == []
    now[0] = inbox_module._UNDECIDED_SECONDS
    assert inbox.look() == 1
    assert world.here() == [name]


def test_nothing_comes_from_a_node_that_was_forgotten(world: World) -> None:
    """Its gateway came back, and had not asked."""
    early, late = world.put(1, 5), world.put(6, 9)
    world.bucket.objects[name_of("gw")] = msgspec.json.encode(Word(forgotten=5))
    for each in (early, late):
        world.bucket.objects[each] = by("old")
    world.inbox().look()
    assert world.here() == [early]
    assert f"_fenced/{late}" in world.bucket.objects


def test_what_somebody_took_out_of_the_bucket_is_missed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A lifecycle rule, or another job: once, when later files have been there for a while,
    and not what is noted to be damaged."""
    first, gone, _ = world.put(1, 5), world.put(6, 9), world.put(10, 12)
    world.holes = (Hole("gw-2", 1, 3, file_name("gw-2", 1, 3), "damaged", 1.0),)
    world.put(4, 6, "gw-2")
    world.commit(first)
    inbox = world.inbox()
    now = [0.0]
    inbox._clock = lambda: now[0]
    inbox.look()
    del world.bucket.objects[gone]
    for now[0] in (1.0, 1.0 + inbox_module._LACKING_SECONDS):
        assert "lifecycle" not in caplog.text
        inbox.look()
    inbox.look()
    assert caplog.text.count("lifecycle") == 1
    assert "4 events of node gw, lsn 6 to 9 first" in caplog.text
    assert "gw-2" not in caplog.text
    world.put(6, 9)
    now[0] += 2 * inbox_module._LACKING_SECONDS
    inbox.look()
    assert caplog.text.count("lifecycle") == 1


def test_a_half_fetched_file_is_fetched_again(world: World) -> None:
    """It has a hidden name until it is whole."""
    name = world.put(1, 5)
    world.folder.mkdir()
    (world.folder / f".{name}").write_bytes(b"x")
    assert world.inbox().look() == 1
    assert world.here() == [name]


def test_a_bucket_that_is_away_is_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
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


@pytest.fixture
def server() -> Iterator[SmallS3]:
    with small_s3() as server:
        yield server


@pytest.fixture
def in_bucket(config: SimpleNamespace, server: SmallS3) -> SimpleNamespace:
    """The job's configuration, with its spool on that server."""
    config.spool.bucket = BucketUrl("bucket", "prefix")
    config.spool.s3 = options_of(
        model.S3,
        endpoint=server.url,
        region="us-east-1",
        access_key_id="KEY",
        secret_access_key="SECRET",
    )
    return config


def upload(server: SmallS3, *paths: Path) -> None:
    """As the gateway does, and remove them here."""
    for path in paths:
        server.objects[f"bucket/prefix/{path.name}"] = path.read_bytes()
        path.unlink()


@pytest.mark.spark
def test_from_a_bucket_to_tables(
    server: SmallS3,
    spool: Any,
    in_bucket: SimpleNamespace,
    run_once: Callable[[], list[Mapping[str, Any]]],
    lake_events: Callable[..., Counter[tuple[str, int]]],
) -> None:
    """Each event is in one table, once; again nothing happens."""
    upload(
        server,
        spool.events("gw-1", 1, 50),
        spool.events("gw-1", 51, 10),
        spool.events("gw-2", 1, 20),
    )
    run_once()
    assert lake_events() == spool.produced
    files = sorted(name for name in server.objects if name.endswith(".parquet"))
    assert files == [
        f"bucket/prefix/_archive/{file_name('gw-1', 1, 50)}",
        f"bucket/prefix/{file_name('gw-1', 51, 60)}",
        f"bucket/prefix/{file_name('gw-2', 1, 20)}",
    ]
    assert list((in_bucket.data_dir / "inbox").iterdir()) == []
    run_once()
    assert lake_events() == spool.produced


@pytest.mark.spark
def test_nodes_whose_clocks_are_a_day_off(
    server: SmallS3,
    spool: Any,
    in_bucket: SimpleNamespace,
    run_once: Callable[[], list[Mapping[str, Any]]],
    lake_events: Callable[[Path], Counter[tuple[str, int]]],
) -> None:
    """One ahead, one behind, one that was set back between two files: they are in other
    days' folders, and each event is there once, says the audit.
    """
    now, day = int(time.time() * 1e6), 86_400_000_000
    times = {
        "ahead": (now + day, now + day + 1),
        "behind": (now - day, now - day + 1),
        "set-back": (now + day, now - day),
    }
    data = in_bucket.data_dir
    for at in (0, 1):
        for node, both in times.items():
            path = spool.events(node, 1 + at * 10, 10, received_at=both[at])
            server.objects[f"bucket/prefix/{path.name}"] = path.read_bytes()
            path.unlink()
        run_once()
    assert lake_events(data / "lake") == spool.produced
    folders = {path.name for path in (data / "lake" / "events").glob("*/date=*")}
    assert len(folders) == 2
    bucket = S3(in_bucket.spool.bucket, in_bucket.spool.s3)
    report = audit(Directories.under(data), bucket=bucket)
    assert report.complete
    assert {one.node: one.in_lake for one in report.nodes} == dict.fromkeys(times, 20)


@pytest.mark.spark
def test_a_backlog_larger_than_the_disk_is_read_at_once(
    server: SmallS3,
    spool: Any,
    in_bucket: SimpleNamespace,
    run_once: Callable[[], list[Mapping[str, Any]]],
    lake_events: Callable[..., Counter[tuple[str, int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`--once` fetches some batches, puts them into tables, and goes on until all that
    was there is."""
    monkeypatch.setattr(running, "_INBOX_BATCHES", 2)
    paths = [spool.events("gw", 1 + n * 10, 10) for n in range(5)]
    upload(server, *paths)
    size = len(server.objects[f"bucket/prefix/{paths[0].name}"])
    in_bucket.spark.max_bytes_per_trigger = size // 2
    folder = in_bucket.data_dir / "inbox"
    most = [0]
    fetch = Inbox._fetch

    def fetched(inbox: Inbox, one: Any) -> bool:
        came = fetch(inbox, one)
        most[0] = max(most[0], len(list(folder.iterdir())))
        return came

    monkeypatch.setattr(Inbox, "_fetch", fetched)
    run_once()
    assert lake_events() == spool.produced
    assert most[0] <= 2
