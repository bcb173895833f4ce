"""Files of a gateway whose name another one has now, and of a node that was forgotten."""

from __future__ import annotations

import msgspec
import pytest

from gateway.spark import inbox as inbox_module
from gateway.store.bucket import BucketError
from gateway.store.lake import End
from gateway.store.names import Life
from gateway.store.word import UNDECIDED, Reached, Word, name_of
from inboxes import World
from incarnations import A, B


def test_a_node_that_was_taken_over_holds_no_other_up(world: World) -> None:
    """Where what came too late from it can not be put aside, the files of others come."""
    said = Word(fenced={A: 5})
    world.bucket.objects[name_of("gw")] = msgspec.json.encode(said)
    late = world.put(6, 9)
    other = world.put(1, 4, "gw-2")

    def fault(request: str, name: str) -> None:
        if request == "copy":
            raise BucketError("403 AccessDenied")

    world.bucket.fault = fault
    with pytest.raises(BucketError, match="AccessDenied"):
        world.inbox(most_bytes=10_000).look()
    assert other in world.here()
    assert late not in world.here()


def test_what_comes_from_who_was_taken_over_is_put_aside(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The other gateway gives the same lsns: its file is the one that is taken.  What the
    first one had put there before that is, too."""
    early, late, mine = world.put(1, 5), world.put(6, 9), world.put(6, 9, by=B)
    said = Word(fenced={A: 5})
    world.bucket.objects[name_of("gw")] = msgspec.json.encode(said)
    other = world.put(6, 9, "gw-2")
    assert world.inbox(most_bytes=10_000).look() == 3
    assert world.here() == sorted([early, mine, other])
    assert f"_fenced/{late}" in world.bucket.objects
    assert late not in world.bucket.objects
    assert f"incarnation {A}" in caplog.text


def test_what_comes_too_late_takes_nobodys_place(world: World) -> None:
    """The newest file of a node is the newest that the job may have: what a gateway that was
    taken over puts behind it does not push it out."""
    newest, late = world.put(1, 5, by=B), world.put(1001, 1005)
    said = Word(fenced={A: 0})
    world.bucket.objects[name_of("gw")] = msgspec.json.encode(said)
    inbox = world.inbox(most_bytes=10_000)
    assert inbox.look() == 1
    world.commit(newest)
    for _ in range(3):
        inbox.look()
    assert newest in world.bucket.objects
    assert late not in world.bucket.objects
    world.put(6, 9, by=B)
    inbox.look()
    inbox.look()
    assert newest not in world.bucket.objects


def test_lsns_that_another_incarnation_gave_are_other_events(world: World) -> None:
    """The tables have these lsns of the one, and the objects of the other are fetched; after
    a start they are only removed."""
    names = [world.put(1, 5, by=B), world.put(6, 9, by=B)]
    world.committed.add(Life("gw", A), 1, 20)
    inbox = world.inbox(most_bytes=10_000)
    assert inbox.look() == 2
    assert world.here() == names
    for name in names:
        world.commit(name)
    again = world.inbox(most_bytes=10_000)
    assert again.look() == again.look() == 0
    assert sorted(world.bucket.objects) == [f"_archive/{names[0]}", names[1]]
    reads = world.bucket.requests.count(("read", names[1]))
    assert again.look() == again.look() == 0
    assert world.bucket.requests.count(("read", names[1])) == reads


def test_how_incarnations_ended_is_heard_of(world: World) -> None:
    """From the word of who came after; and that a disk is back after all."""
    world.put(6, 9, by=B)
    ended = End(5, 1.0, "journal", exact=False, found=3.0, since=1)
    now = Reached(B, 6, 9, 4.0, "journal", earlier=("other",))
    said = Word(reached=now, ended={A: ended})
    world.bucket.objects[name_of("gw")] = msgspec.json.encode(said)
    inbox = world.inbox(most_bytes=10_000)
    inbox.look()
    assert inbox.ends == {
        Life("gw", A): ended,
        Life("gw", B): None,
        Life("gw", "other"): None,
    }


def test_a_name_is_asked_for_after_files_were_fetched(world: World) -> None:
    """What its new holder can not have seen has arrived after that; else it goes on behind."""
    late = world.put(6, 9)

    def fault(request: str, name: str) -> None:
        if (request, name) == ("read", late):
            said = msgspec.json.encode(Word(fenced={A: 5}))
            world.bucket.objects[name_of("gw")] = said

    world.bucket.fault = fault
    assert world.inbox().look() == 0
    assert world.here() == []


def test_files_wait_for_the_word_of_who_has_taken_over(world: World) -> None:
    """Not for ever: it may have ended before it said anything."""
    name = world.put(1, 5)
    said = Word(fenced={A: UNDECIDED})
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
    world.inbox().look()
    assert world.here() == [early]
    assert f"_fenced/{late}" in world.bucket.objects
