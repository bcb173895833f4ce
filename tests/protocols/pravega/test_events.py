"""Where events begin and end, counted and split, whole or in pieces."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.pravega.events import (
    MOST_EVENTS,
    STEP_EVENTS,
    EventScan,
    count_rows,
    cut,
    equal_payloads,
    split,
)
from gateway.protocols.pravega.segment import StagedData

from .places import events as framed

pytestmark = pytest.mark.usefixtures("each_way")

EVENTS = st.one_of(
    st.lists(st.binary(max_size=5), max_size=20),
    st.builds(lambda data, count: [data] * count, st.binary(), st.integers(0, 30)),
)


def plainly(data: bytes) -> list[tuple[int, bytes]] | None:
    """Events as one would read them with pencil and paper."""
    found, at = [], 0
    while at < len(data):
        if len(data) - at < 8:
            return None
        kind, size = struct.unpack_from(">II", data, at)
        payload = data[at + 8 : at + 8 + size]
        if kind or len(payload) < size:
            return None
        found.append((at, payload))
        at += 8 + size
    return found


@given(EVENTS, st.integers(0, 1 << 40))
def test_events_are_split(events, offset):
    """Every event comes back, at its offset."""
    data = framed(*events)
    found = split(data, offset)
    assert found is not None
    payloads, offsets = found
    assert payloads == events
    assert [at - offset for at in offsets] == [at for at, _ in plainly(data) or ()]
    assert count_rows(data) == len(events)


@given(EVENTS, st.data())
def test_what_is_no_events(events, data):
    """A byte that is changed, cut off or added: never a wrong split."""
    raw = bytearray(framed(*events))
    if raw:
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    raw += data.draw(st.binary(max_size=3))
    odd = bytes(raw)
    wanted = plainly(odd)
    found = split(odd, 0)
    if wanted is None:
        assert found is None
        assert count_rows(odd) == 1
    else:
        assert found is not None
        assert list(zip(found[1], found[0], strict=True)) == wanted
        assert count_rows(odd) == len(wanted)


@given(EVENTS, st.binary(max_size=3), st.lists(st.integers(0, 40)))
def test_pieces_cut_anywhere(events, tail, cuts):
    """A transaction's rows are those of all of its bytes, however they came."""
    data = framed(*events) + tail
    staged, at = StagedData(), 0
    for size in (*cuts, len(data)):
        staged.add(data[at : at + size])
        at += size
    assert staged.rows == count_rows(data)


@pytest.mark.parametrize("kind", [1, -1, 1 << 24])
def test_a_type_that_is_not_an_events(block, kind):
    """One other header, and it is all bytes and no events, for good."""
    staged = StagedData(block(b"a"))
    staged.add(struct.pack(">ii", kind, 0))
    staged.add(block(b"b"))
    assert staged.rows == 1


@pytest.mark.parametrize("sizes", [(5,), (5, 6)])
def test_events_are_counted_a_bit_at_a_time(block, sizes):
    """Of one size or of many, in an append or in a transaction; the same in the end."""
    data = block(*map(bytes, sizes)) * 100_000
    staged, scan = StagedData(data), EventScan(data, 0)
    steps = 1
    while not staged.count():
        steps += 1
    assert steps > 3
    assert staged.rows == len(sizes) * 100_000
    steps = 1
    while not scan.step():
        steps += 1
    assert steps == (1 if len(sizes) == 1 else MOST_EVENTS // STEP_EVENTS)
    assert scan.found == cut(data, 0)
    assert scan.found is not None
    assert scan.found[0] == MOST_EVENTS


@given(EVENTS, st.binary(max_size=3))
def test_a_scan_finds_what_a_cut_does(several, tail):
    """Whole events or not."""
    data = framed(*several) + tail
    scan = EventScan(data, 0)
    while not scan.step():
        pass
    assert scan.found == cut(data, 0)


def test_staged_bytes_are_read_anywhere(block):
    """A staged segment gives what is asked for, and not more than there is."""
    staged = StagedData(block(b"abc"))
    staged.add(block(b"defg"))
    whole = block(b"abc", b"defg")
    for offset in range(len(whole) + 1):
        assert staged.read(offset, 7) == whole[offset : offset + 7]
    assert staged.rows == 2


@given(st.integers(0, 3), st.integers(0, 200), st.booleans())
def test_events_of_one_size_stay_in_one_piece(size, count, odd):
    """Many of them lose their headers and nothing else; others are left to `split`."""
    events = [bytes([n % 256]) * size for n in range(count)] + [b"four"] * odd
    data = framed(*events)
    found = equal_payloads(data)
    if odd or not size or count < 64:
        assert found is None
    else:
        assert found == (b"".join(events), size)
