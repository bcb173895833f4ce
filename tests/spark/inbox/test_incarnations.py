"""Files of several incarnations of a node, and what those say of themselves."""

import msgspec
import pytest

from gateway.spark.bucket.endings import Endings
from gateway.spark.bucket.inbox import Inbox
from gateway.store.names import Life
from gateway.store.objects.bucket import BucketError
from gateway.store.objects.node_record import (
    EVERY_SECONDS,
    SILENT_SECONDS,
    NodeRecord,
    name_of,
)
from gateway.store.readers.lake import End
from gateway_testkit.bucket import MemoryBucket
from inboxes import World
from incarnations import A, B

C = "c" * 10


def say(world: World, by: str, lsn: int, at: float = 1.0, **more: object) -> None:
    said = {"since": 1, "ack": "journal", **more}
    name = name_of("gw", by)
    word = msgspec.convert(
        {"incarnation": by, "lsn": lsn, "at": at, **said}, NodeRecord
    )
    world.bucket.replace(name, msgspec.json.encode(word))


def heard(world: World) -> tuple[Inbox, list[float]]:
    """A job's inbox, and its clock."""
    inbox, now = world.inbox(most_bytes=10_000), [0.0]
    inbox.listing._clock = inbox._missing._clock = inbox.endings._clock = lambda: now[0]
    inbox.look()
    return inbox, now


def test_lsns_that_another_incarnation_gave_are_other_events(world):
    """The tables have these lsns of the one, and the objects of the other are fetched; after
    a start they are looked at again before they are removed."""
    names = [world.put(1, 5, by=B), world.put(6, 9, by=B)]
    world.committed.add(Life("gw", A), 1, 20)
    inbox = world.inbox(most_bytes=10_000)
    assert inbox.look() == 2
    assert world.here() == names
    world.commit(*names)
    again = world.inbox(most_bytes=10_000)
    assert again.look() == 2
    world.commit(*names)
    assert again.look() == 0
    assert sorted(world.bucket.objects) == [f"_archive/{name}" for name in names]


def test_who_is_silent_has_ended(world):
    """For the job's own clock, from when the word was last another one; and it may be back
    after all."""
    inbox, now = heard(world)
    say(world, A, 5)
    now[0] = EVERY_SECONDS
    inbox.look()
    assert inbox.endings.ends == {Life("gw", A): None}
    now[0] += SILENT_SECONDS
    inbox.look()
    assert inbox.endings.ends == {Life("gw", A): None}
    now[0] += EVERY_SECONDS
    inbox.look()
    end = inbox.endings.ends[Life("gw", A)]
    assert end is not None
    assert (end.acknowledged, end.heard, end.ack, end.exact, end.since) == (
        5, 1.0, "journal", False, 1,
    )  # fmt: skip
    now[0] += EVERY_SECONDS
    inbox.look()
    assert inbox.endings.ends[Life("gw", A)] == end  # and not one that was found later
    say(world, A, 7, at=2.0)
    now[0] += EVERY_SECONDS
    inbox.look()
    assert inbox.endings.ends == {Life("gw", A): None}


def test_who_stopped_in_good_order_has_ended(world):
    """At once, and all is known; not the one that its directory goes on from, unless that
    disk was set back behind what that one had acknowledged."""
    say(world, A, 5, exact=True)
    say(world, B, 9, since=6, earlier=(A,), exact=True)
    say(world, C, 2)
    inbox, _ = heard(world)
    end = inbox.endings.ends.pop(Life("gw", B))
    assert isinstance(end, End)
    assert (end.acknowledged, end.exact) == (9, True)
    assert inbox.endings.ends == {Life("gw", A): None, Life("gw", C): None}
    say(world, A, 7, exact=True)
    inbox, _ = heard(world)
    assert inbox.endings.ends[Life("gw", A)] is not None


def test_words_are_read_once_a_minute(world):
    """Those that are new."""
    say(world, A, 5)
    inbox, now = heard(world)

    def reads() -> int:
        return world.bucket.requests.count(("read", name_of("gw", A)))

    assert reads() == 1
    say(world, A, 6)
    now[0] = EVERY_SECONDS - 1
    inbox.look()
    assert reads() == 1
    now[0] = EVERY_SECONDS
    inbox.look()
    assert reads() == 2
    now[0] *= 2
    inbox.look()
    assert reads() == 2


def test_files_come_while_words_can_not_be_read(world):
    """A damaged one, or a bucket that gives none: nobody's end is heard of."""
    say(world, A, 5)
    world.bucket.objects[name_of("gw", B)] = b"{"
    name = world.put(1, 5)
    inbox, now = heard(world)
    assert world.here() == [name]
    assert inbox.endings.ends == {Life("gw", A): None}

    def fault(request: str, name: str) -> None:
        if (request, name) == ("list", ".gateway-node-"):
            raise BucketError("503")

    world.bucket.fault = fault
    other = world.put(6, 9)
    now[0] += EVERY_SECONDS
    with pytest.raises(BucketError):
        inbox.look()
    assert other in world.here()


def test_a_record_that_could_not_be_read_once_is_read_again():
    """The last one of an incarnation does not change any more."""
    bucket, now = MemoryBucket(), 0.0
    record = NodeRecord(A, 1, 10, 5.0, "journal", exact=True)
    bucket.replace(name_of("gw", A), msgspec.json.encode(record))
    endings = Endings(bucket, lambda: now)

    def unavailable(request: str, name: str) -> None:
        if request == "read":
            raise BucketError("503 Slow Down")

    bucket.fault = unavailable
    endings.hear(map)
    assert endings.ends == {}
    listed, [heard] = endings.heard
    assert listed
    assert (heard.node, heard.record) == ("gw", None)
    bucket.fault = lambda request, name: None
    for _ in range(2):
        now += EVERY_SECONDS
        endings.hear(map)
        end = endings.ends[Life("gw", A)]
        assert end is not None
        assert end.acknowledged == 10
    assert [one.record for one in endings.heard[1]] == [record]
    assert [request for request, _ in bucket.requests].count("read") == 2
