"""What is remembered of senders' lives, over restarts, for years, and by many names."""

from collections.abc import Iterable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import formatEvent

from gateway.event import Batch, Stored
from gateway.protocols.rsio import events
from gateway.protocols.rsio.events import Part, pack
from gateway.protocols.rsio.messages import Announce, Token
from gateway.protocols.rsio.offsets import Claim, Key, Offsets
from gateway.protocols.rsio.offsets import Fenced as Refused

from .announcing import HELLO, KEY, ORIGIN, Wire


def _now(done: Deferred[bytes]) -> bytes:
    found: list[bytes] = []
    done.addCallback(found.append)
    return found[0]


def _nothing(*_: Any) -> None:
    """Nobody listens."""


def _claim(
    offsets: Offsets, instance: bytes, key: Key = KEY, *, resumed: bool = False
) -> list[Batch]:
    """Claim, and what the journal is given for it."""
    begun: list[Claim] = []
    claim = offsets.claim(
        key, lambda claim, _: begun.append(claim), _nothing, instance=instance,
        resumed=resumed, named=True,
    )  # fmt: skip
    assert claim is not None
    claim.begin()
    assert begun == [claim]
    if (life := claim.instance_record()) is None:
        return []
    claim.began(life)
    return [Batch(ORIGIN, 0, 0, life.packed(), 0)]


def _elements(first: int, count: int) -> Batch:
    part = Part("events", 1, 0, first, count, events.NAMED)
    body = pack([part], [], message_bytes=9, content_type="text/plain")
    return Batch(ORIGIN, 0, count, body, 0)


def _replayed(batches: Iterable[Batch], snapshot: bytes | None = None) -> Offsets:
    offsets = Offsets()
    if snapshot is not None:
        offsets.restore(snapshot)
    for batch in batches:
        offsets.replay(Stored(batch, 1))
    return offsets


def test_after_a_restart():
    """The journal alone, a snapshot alone, and both, however much of it they share."""
    offsets = Offsets()
    batches = [*_claim(offsets, b"1"), *_claim(offsets, b"2")]
    middle = _now(offsets.snapshot())
    batches += _claim(offsets, b"3")
    last = _now(offsets.snapshot())
    for again in (
        _replayed(batches),
        _replayed(batches, middle),
        _replayed([], last),
        _replayed(batches[:1], last),  # the journal may lack what the snapshot has
        _replayed(batches[:2], last),
    ):
        with pytest.raises(Refused):
            _claim(again, b"2", resumed=True)
        assert _claim(again, b"3", resumed=True) == []
        [begun] = _claim(again, b"4")
        life = events.instance_record(begun.body)
        assert life is not None
        assert life.number == 4


def test_elements_with_their_life():
    """Both are read back for the same sender."""
    batches = [*_claim(Offsets(), b"1"), _elements(1, 5), _elements(6, 2)]
    again = _replayed(batches)
    assert again.known == [(KEY, 7)]
    assert _claim(again, b"1", resumed=True) == []
    assert _replayed(batches, _now(again.snapshot())).known == [(KEY, 7)]


def test_a_gateway_that_knows_nothing():
    """It was started on an empty directory: whoever goes on is not refused here; it
    sees by itself whether it can.
    """
    assert len(_claim(Offsets(), b"1", resumed=True)) == 1


def test_a_name_that_was_forgotten_before():
    """What a snapshot knows of it is not what its new life has stored, if the journal says
    that this began from nothing.
    """
    offsets = Offsets()
    batches = [*_claim(offsets, b"1"), _elements(1, 100)]
    snapshot = _now(_replayed(batches).snapshot())
    offsets = _replayed([], snapshot)
    another = offsets.claim(Key("another", "events"), _nothing, _nothing, most=1)
    assert another is not None
    another.release()
    lives = [*_claim(offsets, b"2"), _elements(1, 50), _elements(51, 10)]
    assert _replayed(lives, snapshot).known == [(KEY, 60)]
    assert _replayed(lives[:1], snapshot).known == []
    assert _replayed([lives[0], lives[2]], snapshot).known == []
    assert _replayed(batches, snapshot).known == [(KEY, 100)]


def test_a_year_of_lives():
    """A name that is restarted every minute takes no more room than any other."""
    offsets = Offsets()
    sizes = set()
    for n in range(1000):
        _claim(offsets, n.to_bytes(8))
        sizes.add(len(_now(offsets.snapshot())) // 16)
    assert offsets.names == 1
    assert len(sizes) <= 2


def test_names_of_a_token_are_bounded():
    """The oldest goes for a new one; other tokens' names and proved ones stay."""
    other = Key("b", "events", proved=True, name="x")
    offsets = Offsets([(other, 1), (Key("a", "events", proved=True), 1)])
    for n in range(10):
        key = Key("a", "events", proved=True, name=str(n))
        claim = offsets.claim(
            key, _nothing, _nothing, instance=b"1", named=True, most=3
        )
        assert claim is not None
        claim.release()
    assert offsets.names == 5
    assert other in dict(offsets.known)


@pytest.mark.parametrize(
    ("shown", "options", "whose"),
    [
        ([], {"names": 2}, "2 without token (options.names)"),
        (
            [Token("bearer", b"secret")],
            {"token_names": 2, "tokens": {"fleet": "secret"}},
            "2 with the token of 'fleet' (options.token_names)",
        ),
    ],
)
def test_forgotten_names_are_counted_and_logged(
    make_gate, read, logged, shown, options, whose
):
    """A line a minute says which option to raise; below it nothing is forgotten."""
    gate = make_gate(**options)

    def come(name: bytes) -> None:
        one = Wire(gate, read, HELLO, *shown, Token("name", name))
        one.say(Announce("events", b"1", resumed=0))
        one.connection.lose()

    def lines() -> list[str]:
        said = [formatEvent(one) for one in logged]
        return [line for line in said if "are forgotten" in line]

    come(b"a")
    come(b"b")
    assert (gate.offsets.forgotten, lines()) == (0, [])
    for name in (b"c", b"d", b"e"):
        come(name)
    assert gate.offsets.forgotten == 3
    [line] = lines()
    assert f"1 so far: more than {whose}" in line
    gate.clock.advance(60)
    come(b"f")
    assert "4 so far" in lines()[1]
