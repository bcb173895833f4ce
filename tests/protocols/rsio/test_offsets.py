"""Offsets of named senders: claims, eviction, replay and snapshots."""

import msgspec
import pytest
from twisted.internet.defer import Deferred

from gateway.event import Batch, Origin, Stored
from gateway.protocols.rsio.events import Part, pack
from gateway.protocols.rsio.offsets import Claim, Key, Offsets

KEY = Key("dev", "events")


def _now(done: Deferred[bytes]) -> bytes:
    found: list[bytes] = []
    done.addCallback(found.append)
    return found[0]


def _begun(offsets: Offsets, key: Key = KEY, most: int = 9) -> tuple[Claim, list[int]]:
    told: list[int] = []
    claim = offsets.claim(
        key, lambda _, stored: told.append(stored), lambda _: None, most=most
    )
    assert claim is not None
    claim.begin()
    return claim, told


def test_a_bound_on_names():
    """The one that came before all others goes for a new one, if it is not here."""
    old, late, new = (Key(name, "events") for name in ("old", "late", "new"))
    offsets = Offsets([(late, 5), (old, 7)])
    claim, told = _begun(offsets, late, 2)
    assert (told, offsets.forgotten) == ([5], 0)
    assert _begun(offsets, new, 2)[1] == [0]
    assert (offsets.known, offsets.forgotten) == ([(late, 5)], 1)
    assert offsets.claim(old, lambda *_: None, lambda _: None, most=2) is None
    claim.release()
    assert _begun(offsets, old, 2)[1] == [0]
    assert (offsets.known, offsets.forgotten) == ([], 3)


def test_proved_names_are_never_forgotten():
    """There are as many as the operator gave: others take no place from them."""
    proved = [(Key(name, "events", proved=True), 5) for name in "abc"]
    offsets = Offsets(proved)
    for name in "xyz":
        claim, told = _begun(offsets, Key(name, "events"), 1)
        assert told == [0]
        claim.release()
    assert offsets.known == proved
    assert _begun(offsets, Key("d", "events", proved=True), 1)[1] == [0]


def test_a_name_that_is_said_is_not_one_that_is_proved():
    """Nobody moves the numbers of a sender whose token he does not have."""
    said = Key.of(NAMED, "events")
    proved = Key.of(Origin("rsio", "l", "s", "p", principal="dev"), "events")
    assert said is not None
    assert proved is not None
    offsets = Offsets([(proved, 8)])
    _begun(offsets, proved)
    claim, told = _begun(offsets, said)
    assert told == [0]
    claim.submitted(100)
    claim.settled(100, stored=True)
    offsets.replay(_stored(NAMED, 9, 300))
    assert dict(offsets.known)[proved] == 8


def test_what_is_on_its_way_still_counts():
    """A stream that ended may have elements at the disk; the next one waits."""
    offsets = Offsets()
    first, _ = _begun(offsets)
    first.submitted(3)
    first.release()
    _, told = _begun(offsets)
    assert told == []
    first.settled(3, stored=True)
    assert told == [3]


def test_the_waiting_one_is_evicted_too():
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


def _stored(origin: Origin, first: int, count: int, resumed: int = 1) -> Stored:
    part = Part("events", 1, 0, first, count, resumed)
    body = pack([part], [], message_bytes=9, content_type="text/plain")
    return Stored(Batch(origin, 0, count, body, 0), first)


NAMED = Origin("rsio", "l", "s", "p", attributes={"source": "dev"})


def test_replay():
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


def test_a_snapshot_is_where_the_journal_goes_on():
    """Batches that it knows already come again, with any of them missing."""
    old = Offsets([(KEY, 8), (Key("a", "b", proved=True), 1)])
    new = Offsets()
    new.restore(_now(old.snapshot()))
    assert new.known == old.known
    new.replay(_stored(NAMED, 5, 2))
    assert dict(new.known) == dict(old.known)
    new.replay(_stored(NAMED, 9, 2))
    assert dict(new.known)[KEY] == 10


def test_a_snapshot_that_is_none():
    """… is refused."""
    with pytest.raises(msgspec.DecodeError):
        Offsets().restore(b"\xff")


def test_a_proved_name_goes_first():
    """A certificate says more than a word."""
    both = Origin("rsio", "l", "s", "p", principal="cn", attributes={"source": "dev"})
    assert Key.of(both, "events") == Key("cn", "events", proved=True)
    assert Key.of(Origin("rsio", "l", "s", "p"), "events") is None
