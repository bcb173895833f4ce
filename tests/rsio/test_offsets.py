"""Who goes on where: the edges that no connection shows."""

from __future__ import annotations

import msgspec
import pytest
from twisted.internet.defer import Deferred

from gateway.event import Batch, Origin, Stored
from gateway.rsio.events import Part, pack
from gateway.rsio.offsets import Claim, Key, Offsets, source_of

KEY = Key("dev", "events")


def _now(done: Deferred[bytes]) -> bytes:
    found: list[bytes] = []
    done.addCallback(found.append)
    return found[0]


def _begun(offsets: Offsets, key: Key = KEY) -> tuple[Claim, list[int]]:
    told: list[int] = []
    claim = offsets.claim(key, lambda _, stored: told.append(stored), lambda _: None)
    assert claim is not None
    claim.begin()
    return claim, told


def test_a_bound_on_names() -> None:
    """Senders of which nothing is stored are forgotten for others; the rest is kept."""
    offsets = Offsets([(Key("a", "events"), 5)], most=2)
    claim, _ = _begun(offsets)
    assert offsets.claim(Key("b", "events"), lambda *_: None, lambda _: None) is None
    claim.release()
    assert offsets.claim(Key("b", "events"), lambda *_: None, lambda _: None)
    assert offsets.known == [(Key("a", "events"), 5)]


def test_what_is_on_its_way_still_counts() -> None:
    """A stream that ended may have elements at the disk; the next one waits."""
    offsets = Offsets()
    first, _ = _begun(offsets)
    first.submitted(3)
    first.release()
    _, told = _begun(offsets)
    assert told == []
    first.settled(3, stored=True)
    assert told == [3]


def test_the_waiting_one_is_evicted_too() -> None:
    """Only the last of those who come gets the name."""
    offsets = Offsets()
    first, _ = _begun(offsets)
    first.submitted(1)
    evicted: list[Claim] = []
    second = offsets.claim(KEY, lambda *_: None, evicted.append)
    assert second is not None
    second.begin()
    _, told = _begun(offsets)
    assert evicted == [second]
    first.settled(1, stored=True)
    assert told == [1]


def _body(first: int, count: int, resumed: int = 1) -> bytes:
    part = Part("events", 1, 0, first, count, resumed)
    return pack([part], [], message_bytes=9, content_type="text/plain")


def _stored(origin: Origin, first: int, count: int, resumed: int = 1) -> Stored:
    part = Part("events", 1, 0, first, count, resumed)
    body = pack([part], [], message_bytes=9, content_type="text/plain")
    return Stored(Batch(origin, 0, count, body, 0), first)


NAMED = Origin("rsio", "l", "s", "p", attributes={"source": "dev"})


def test_replay() -> None:
    """From the journal: in order, doubles counted once, a gap not believed."""
    offsets = Offsets()
    for first, count in ((1, 5), (4, 4), (20, 5), (8, 1)):
        offsets.replay(_stored(NAMED, first, count))
    assert offsets.known == [(KEY, 8)]
    offsets.replay(_stored(Origin("rsio", "l", "s", "p"), 9, 9))
    offsets.replay(_stored(NAMED, 1, 99, resumed=0))
    elsewhere = Origin("pomelo", "l", "s", "p", principal="dev")
    offsets.replay(Stored(Batch(elsewhere, 0, 1, b"{}", 0), 9))
    assert offsets.known == [(KEY, 8)]


def test_a_snapshot_is_where_the_journal_goes_on() -> None:
    """Batches that it knows already come again, with any of them missing."""
    old = Offsets([(KEY, 8), (Key("a", "b"), 1)])
    new = Offsets()
    new.restore(_now(old.snapshot()))
    assert new.known == old.known
    new.replay(_stored(NAMED, 5, 2))
    assert new.known == old.known
    new.replay(_stored(NAMED, 9, 2))
    assert dict(new.known)[KEY] == 10


def test_a_snapshot_that_is_none() -> None:
    """… is refused."""
    with pytest.raises(msgspec.DecodeError):
        Offsets().restore(b"\xff")


def test_a_proved_name_goes_first() -> None:
    """A certificate says more than a word."""
    both = Origin("rsio", "l", "s", "p", principal="cn", attributes={"source": "dev"})
    assert source_of(both) == "cn"
