"""The decoder: any slicing, limits on declared lengths, skipped and buffered bytes."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.rsio import messages, wire
from gateway.protocols.rsio.decoder import Decoder, Overrun, Oversized, Run, elements
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Code
from gateway.protocols.rsio.streams import Consumed
from gateway.sdk.interfaces import Refusal

pytestmark = pytest.mark.usefixtures("each_way")

_ids = st.integers(0, 2**64 - 1) | st.integers(0, 200)
_text = st.text(max_size=20)
_messages = st.one_of(
    st.builds(messages.Subscribe, _text, _ids, _ids),
    st.builds(messages.Request, _ids, _ids),
    st.builds(messages.Cancel, _ids),
    st.builds(messages.OnError, _ids, _text),
    st.builds(messages.OnComplete, _ids),
    st.builds(messages.OnNextPart, _ids, _ids, st.binary(max_size=300)),
    st.builds(messages.Goodbye, _text),
    st.builds(messages.Ping, st.binary(max_size=20)),
    st.builds(messages.Stored, _ids, _ids),
    st.builds(messages.ClientHello, st.integers(0, 255), st.tuples(_ids, _ids)),
)
_sizes = {1: 0, 2: 0, 300: 0, 7: 3, 8: 1}


@st.composite
def _elements(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, bytes]]]:
    """Octets, and the elements they are."""
    number = draw(st.sampled_from(sorted(_sizes)))
    size = _sizes[number]
    body = st.binary(min_size=size, max_size=size or 300)
    found = draw(st.lists(body, min_size=1, max_size=6))
    if size and draw(st.booleans()):
        octets = wire.on_next_packed(number, len(found), b"".join(found))
    else:
        octets = wire.on_next(number, found, fixed=size > 0)
    return octets, [(number, element) for element in found]


_streams = st.lists(
    _elements() | _messages.map(lambda message: (wire.encode(message), [message])),
    max_size=12,
)


def _decoder(**limits: int) -> tuple[Decoder, dict[int, Consumed]]:
    streams = {}
    for number, size in _sizes.items():
        streams[number] = Consumed(number, "", 2**62, 0)
        streams[number].size = size
    return Decoder(streams, Limits(**limits), frozenset(Code)), streams


def _all(decoder: Decoder) -> list[Any]:
    found: list[Any] = []
    while (token := decoder.next()) is not None:
        if isinstance(token, Run):
            some = list(elements(token.messages, token.stream.size))
            assert len(some) == token.count
            assert sum(map(len, some)) == token.octets
            found += [(token.stream.id, element) for element in some]
        else:
            found.append(token)
    return found


@settings(max_examples=150, deadline=None)
@given(_streams, st.data())
def test_any_slicing(stream, data):
    """However the network slices the stream, the same comes out."""
    octets = b"".join(piece for piece, _ in stream)
    cuts = data.draw(st.sets(st.integers(0, len(octets)), max_size=8))
    decoder, _ = _decoder()
    found: list[Any] = []
    edges = [0, *sorted(cuts), len(octets)]
    for start, stop in zip(edges, edges[1:], strict=False):  # noqa: RUF007 - with one edge, too
        decoder.feed(octets[start:stop])
        found += _all(decoder)
    assert found == [one for _, expected in stream for one in expected]
    assert decoder.held_bytes == 0


@settings(max_examples=40, deadline=None)
@given(_streams)
def test_octet_by_octet(stream):
    """… down to single octets."""
    decoder, _ = _decoder()
    found: list[Any] = []
    for octet in b"".join(piece for piece, _ in stream):
        decoder.feed(bytes((octet,)))
        found += _all(decoder)
    assert found == [one for _, expected in stream for one in expected]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(1, 200))
def test_nonsense(octets, step):
    """Nothing but tokens and at most one `Refusal` comes of anything."""
    decoder, _ = _decoder(declared_bytes=1000, element_bytes=100, part_bytes=100)
    try:
        for at in range(0, len(octets), step):
            decoder.feed(octets[at : at + step])
            while (token := decoder.next()) is not None:
                if isinstance(token, Overrun | Oversized):
                    token.stream.dropped = True
        assert decoder.held_bytes <= len(octets)
    except Refusal:
        pass


def test_a_run_is_one_token():
    """Like elements that lie together are one object."""
    decoder, _ = _decoder()
    decoder.feed(wire.on_next(1, [b"x" * 200] * 1000) + wire.on_next(2, [b"y"]))
    first, second = decoder.next(), decoder.next()
    assert isinstance(first, Run)
    assert isinstance(second, Run)
    assert (first.count, second.count) == (1000, 1)
    assert decoder.next() is None


def test_packed_elements_are_taken_as_they_come():
    """Nothing is held but the element that is cut."""
    decoder, _ = _decoder()
    octets = wire.on_next_packed(7, 1000, b"abc" * 1000)
    decoder.feed(octets[:1001])
    run = decoder.next()
    assert isinstance(run, Run)
    assert run.count > 300
    assert decoder.next() is None
    decoder.feed(octets[1001:])
    rest = decoder.next()
    assert isinstance(rest, Run)
    assert run.count + rest.count == 1000


def test_no_more_than_there_is_room_for():
    """A run ends where the demand does, in whatever form the elements come."""
    for octets in (
        wire.on_next(7, [b"abc"] * 5, fixed=True),
        wire.on_next_packed(7, 5, b"abc" * 5),
    ):
        decoder, streams = _decoder()
        streams[7].room = 3
        decoder.feed(octets)
        run, overrun = decoder.next(), decoder.next()
        assert isinstance(run, Run)
        assert run.count == 3
        assert isinstance(overrun, Overrun)
        streams[7].dropped = True
        assert decoder.next() is None
        assert decoder.held_bytes == 0


def test_an_element_too_large_is_skipped_without_being_held():
    """Its stream is dropped; what follows is read as usual."""
    decoder, streams = _decoder(element_bytes=100)
    decoder.feed(wire.on_next(1, [b"a"]) + b"\x21\x01" + wire.varint(10_000))
    assert isinstance(decoder.next(), Run)
    token = decoder.next()
    assert isinstance(token, Oversized)
    assert token.size == 10_000
    streams[1].dropped = True
    assert decoder.next() is None
    for _ in range(100):
        decoder.feed(b"x" * 100)
        assert decoder.next() is None
        assert decoder.held_bytes == 0
    decoder.feed(wire.on_next(2, [b"fine"]))
    run = decoder.next()
    assert isinstance(run, Run)
    assert run.stream.id == 2


def test_a_drip_costs_no_more_than_its_octets(monkeypatch):
    """A long element that comes octet by octet is not looked at each time."""
    looked = 0
    look = Decoder._token

    def counting(decoder: Decoder) -> Any:
        nonlocal looked
        looked += 1
        return look(decoder)

    monkeypatch.setattr(Decoder, "_token", counting)
    decoder, _ = _decoder()
    octets = wire.on_next(1, [b"x" * 5000])
    for at in range(len(octets)):
        decoder.feed(octets[at : at + 1])
        token = decoder.next()
    assert isinstance(token, Run)
    assert looked < 10


# Blocks


def _block(octets: bytes, deflater: Any) -> bytes:
    import zlib

    return wire.block(deflater.compress(octets) + deflater.flush(zlib.Z_SYNC_FLUSH))


@pytest.fixture
def deflate() -> Callable[[bytes], bytes]:
    """One zlib stream; each call gives a block."""
    import zlib

    deflater = zlib.compressobj()
    return lambda octets: _block(octets, deflater)


def test_blocks(deflate):
    """What is in blocks comes in its place, however it is sliced."""
    octets = (
        wire.on_next(1, [b"plain"])
        + deflate(wire.on_next(1, [b"in a block"] * 3) + wire.on_next(2, [b"too"]))
        + deflate(b"")
        + wire.on_next(2, [b"plain again"])
        + deflate(wire.on_next_packed(7, 2, b"abcdef"))
    )
    for step in (1, 7, len(octets)):
        decoder, _ = _decoder()
        decoder.inflate()
        found = []
        for at in range(0, len(octets), step):
            decoder.feed(octets[at : at + step])
            found += _all(decoder)
        assert [element for _, element in found] == [
            b"plain", *[b"in a block"] * 3, b"too", b"plain again", b"abc", b"def",
        ]  # fmt: skip


@pytest.mark.parametrize(
    "inside",
    [b"\x21\x01\x05ab", b"\x24\x07\x02abcd", b"\x21", wire.block(b"x"), b"\x00"],
)
def test_bad_blocks(deflate, inside):
    """A message cut by the end of a block, a block in a block, and nonsense."""
    decoder, _ = _decoder()
    decoder.inflate()
    decoder.feed(deflate(inside) + wire.on_next(1, [b"more"]))
    with pytest.raises(Refusal):
        _all(decoder)


@pytest.mark.parametrize(
    "message",
    [
        wire.encode(messages.Ping(b"")),
        wire.encode(messages.Request(7, 1)),
        wire.on_next(300, [b""]),
        wire.on_next_packed(8, 0, b""),
    ],
    ids=["ping", "request", "element nobody wants", "pack of nothing"],
)
def test_a_block_is_no_bomb(deflate, message):
    """Octets that cost the peer nothing may not cost us a message each."""
    decoder, streams = _decoder(block_signals=1000)
    streams[300].dropped = True
    decoder.inflate()
    decoder.feed(deflate(message * 900))
    _all(decoder)
    decoder.feed(deflate(message * 900))
    with pytest.raises(Refusal, match="too many messages for their size") as caught:
        _all(decoder)
    assert caught.value.limit == 1000


def test_a_block_of_elements_is_as_long_as_the_demand(deflate):
    """Elements that were asked for are not counted, nor what comes for those sent."""
    decoder, streams = _decoder(block_signals=50)
    streams[1].room = streams[2].room = 400
    decoder.inflate()
    decoder.feed(deflate((wire.on_next(1, [b"a"]) + wire.on_next(2, [b"a"])) * 400))
    assert len(_all(decoder)) == 800
    for _ in range(20):
        decoder.allow(40)
        decoder.feed(deflate(wire.encode(messages.Request(7, 1)) * 40))
        assert len(_all(decoder)) == 40
