"""The model of segments: every change, its record, and the way back from the journal.

Numbers in the names are those of the list of behaviours in docs/pravega.md.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.protocols.pravega import errors, records, snapshot
from gateway.protocols.pravega.codec import Entry
from gateway.protocols.pravega.segment import MARK_BYTES
from gateway.protocols.pravega.segments import Segments
from gateway.protocols.pravega.tables import Table
from gateway.protocols.pravega.wire import NEVER

from .conftest import TXN, W, X


def test_45_truncation_is_checked(model, block):
    """Only to where there is data."""
    model.append(block(b"a"), 1)
    for offset in (-1, 10):
        with pytest.raises(errors.BadOffset):
            model.state.truncate("s", offset, 0)
    model.keep(model.state.truncate("s", 9, 0))
    assert model.replayed().find("s").start == 9


def test_merges_of_several_are_one_change(model, block):
    """A transaction over several segments is one batch, rows under their own names."""
    model.create("t")
    other = TXN.replace("s#", "t#")
    for name in (TXN, other):
        model.create(name)
        model.append(block(name.encode()), 1, name=name)
    merged = model.keep(model.state.merge([("s", TXN), ("t", other)], 0))
    rows = records.decode(merged.body)
    assert rows.channel == "s"
    assert rows.channels == {1: "t"}
    assert rows.attributes == {"merged": TXN[2:]}
    assert list(rows.seqs or ()) == [0, 0]
    assert merged.payload_bytes == len(TXN) + len(other)


def test_a_source_is_merged_once(model):
    """Named twice in one merge, it is refused."""
    model.create(TXN)
    with pytest.raises(errors.SegmentNotFound):
        model.state.merge([("s", TXN), ("s", TXN)], 0)
    assert TXN in model.state.segments


def test_merges_are_remembered_for_a_while(model, monkeypatch):
    """The newest are, in snapshots too: memory does not grow with history."""
    monkeypatch.setattr("gateway.protocols.pravega.state._MERGED", 2)
    names = [TXN + end for end in "abc"]
    for name in names:
        model.create(name)
        model.keep(model.state.merge([("s", name)], 0))
    for state in (model.state, snapshot.restore(snapshot.save(model.state))):
        assert [state.was_merged(name) for name in names] == [False, True, True]


def test_two_sources_into_one_target(model, block):
    """They lie one behind the other."""
    other = TXN[:-1] + "b"
    for name in (TXN, other):
        model.create(name)
        model.append(block(b"1234"), 1, name=name)
    merged = model.keep(model.state.merge([("s", TXN), ("s", other)], 0))
    assert list(records.decode(merged.body).seqs or ()) == [0, 12]
    assert model.state.find("s").length == 24


def test_idle_writers_are_forgotten(model, block):
    """Who wrote since the last time is kept, who did not is not."""
    model.append(block(b"a"), 1, writer=W)
    model.append(block(b"a"), 1, writer=X)
    model.keep(model.state.forget_idle_writers(0))
    model.append(block(b"a"), 2, writer=X)
    for state in (model.state, model.replayed()):
        assert state.find("s").number_of(W) == 1
    model.keep(model.state.forget_idle_writers(0))
    for state in (model.state, model.replayed()):
        assert state.find("s").number_of(W) == NEVER
        assert state.find("s").number_of(X) == 2


def test_reading_waits_for_the_disk(model, block):
    """What is not durable is neither readable nor sealed for readers."""
    state: Segments = model.state
    appended = state.append("s", W, 1, block(b"a"), 0, claimed=1, last=NEVER)
    sealed = state.seal("s", 0)
    segment = state.find("s")
    assert (segment.readable, segment.closed) == (0, False)
    model.keep(appended)
    assert (segment.readable, segment.closed) == (9, False)
    model.keep(sealed)
    assert segment.closed
    assert state.durable == state.number


def test_a_name_that_lives_twice(model, block):
    """What becomes durable of a deleted segment is none of its successor's business."""
    state: Segments = model.state
    changes = [
        state.append("s", W, 1, block(b"a"), 0, claimed=1, last=NEVER),
        state.delete("s", 0),
        state.create("s", 0),
    ]
    for change in changes:
        model.keep(change)
    assert state.find("s").readable == 0


def test_a_body_is_applied_once(model, block):
    """Replaying a journal again, or on top of a snapshot of its middle, is harmless."""
    model.append(block(b"a"), 1)
    middle = snapshot.save(model.state)
    model.append(block(b"b"), 2)
    model.create("t")
    whole = snapshot.save(model.state)
    once = model.replayed()
    assert snapshot.save(once) == whole
    assert snapshot.save(model.replayed(onto=once)) == whole
    assert snapshot.save(model.replayed(onto=snapshot.restore(middle))) == whole
    assert snapshot.restore(whole).durable == model.state.number


def test_marks(model, block):
    """From an offset to an lsn shortly before it, and back; truncation drops them."""
    for number in range(6):
        model.append(block(b"x" * (MARK_BYTES // 2), b"y"), number + 1, claimed=2)
    segment = model.state.find("s")
    size = MARK_BYTES // 2 + 8 + 9
    assert segment.lsn_near(0) == 1
    assert segment.lsn_near(size) == 1
    assert segment.lsn_near(2 * size) == 5
    assert segment.first_offset_from(5) == 2 * size
    assert segment.first_offset_from(6) == 4 * size
    assert segment.first_offset_from(100) == segment.readable
    assert segment.event_boundary(1) == 2 * size
    model.keep(model.state.truncate("s", 3 * size, 0))
    assert segment.lsn_near(3 * size) == 5
    assert segment.lsn_near(0) is None


def test_lost_records_lose_no_more(model, block):
    """A journal that lost a body is replayed all the same, offsets as they were."""
    model.append(block(b"a"), 1)
    model.append(block(b"b"), 2)
    state = Segments()
    list(state.replay(model.bodies[2], 2, 0))
    assert state.find("s").length == 18
    assert state.find("s").number_of(W) == 2


@pytest.mark.parametrize(
    "data", [b"abc", b"\0\0\0\0\0\0\0\x05ab", b"\0\0\0\1\0\0\0\0", b"\0" * 11]
)
def test_bytes_that_are_no_events(model, data):
    """They are one row, whole and flawed, and readable as they are."""
    change = model.append(data, 1)
    assert change.count == 1
    rows = records.decode(change.body)
    assert rows.payloads == [data]
    assert rows.flaws == {0: "unframed"}
    assert list(rows.seqs or ()) == [0]


@pytest.mark.usefixtures("each_way")
@settings(max_examples=50)
@given(
    st.lists(st.binary(max_size=30), max_size=9)
    | st.lists(st.binary(max_size=30), min_size=64, max_size=70)
)
def test_18_rows_are_the_events(events):
    """Each event, empty ones too, is a row at its offset, with its writer."""
    state = Segments()
    state.create("s", 0)
    data = b"".join(b"\0\0\0\0" + len(e).to_bytes(4) + e for e in events)
    change = state.append("s", W, 9, data, 0, claimed=len(events), last=NEVER)
    rows = records.decode(change.body)
    assert list(rows.each()) == events
    assert change.count == len(events)
    assert change.payload_bytes == sum(map(len, events))
    assert rows.seqs is not None
    for event, seq in zip(events, rows.seqs, strict=True):
        assert data[seq + 8 : seq + 8 + len(event)] == event
    if events:
        assert rows.channel == "s"
        assert rows.attributes["event_number"] == "9"


@pytest.mark.parametrize("count", [3, 63, 64, 1000])
def test_rows_of_one_size(model, block, count):
    """Many or few events of one size: the same rows."""
    events = [b"%08d" % n for n in range(count)]
    model.append(block(b"before"), 1)
    rows = records.decode(model.append(block(*events), 2).body)
    assert list(rows.each()) == events
    assert list(rows.seqs or ()) == [14 + 16 * n for n in range(count)]
    assert rows.channel == "s"
    assert rows.attributes["event_number"] == "2"


def test_a_body_of_another_format():
    """It is an error that the spool keeps the bytes for."""
    with pytest.raises(ValueError, match="unknown format"):
        records.decode(b"\x93\x02\x01\x90")


def test_reading_on_in_a_large_table(monkeypatch):
    """Every entry is found, in order, and few are looked at that are not asked for."""
    table = Table()
    for number in range(5000):
        table.put(table.position, [(b"%d" % (number * 7 % 3000), b"v")])
    table.remove(table.position, [b"%d" % number for number in range(0, 3000, 2)])
    looked = 0
    get = Table.get

    def count(self: Table, key: bytes) -> Entry:
        nonlocal looked
        looked += 1
        return get(self, key)

    monkeypatch.setattr(Table, "get", count)
    seen: list[Entry] = []
    position, reads = 0, 0
    while found := table.since(position, 10):
        if not found[0]:
            break
        seen += found[0]
        position = found[1]
        reads += 1
    assert [each.key for each in seen] == list(table.entries)
    assert looked < 2 * len(seen) + 2500
    assert reads == 150


def test_many_small_entries_are_no_one_reply():
    """They count with what each costs; and what was put again since is passed once."""
    table = Table(3)
    keys = [n.to_bytes(3) for n in range(40_000)]
    table.put(0, [(key, b"") for key in keys])
    assert len(table.since(0, 1 << 30)[0]) < 10_000
    assert len(table.between(b"", b"", 1 << 30)) < 10_000
    table.put(40_000, [(key, b"") for key in keys[:3000]])
    assert [each.key for each in table.since(0, 1)[0]] == keys[3000:3001]
    assert len(table._keys) == 40_000


@pytest.mark.usefixtures("each_way")
def test_json_is_checked(model, block):
    """Where events are said to be JSON, one that is not has a flaw, in the words of all
    protocols; bytes that are no events are no JSON either.
    """
    payloads = [b'{"a": 1}', b"[1]", b"{", b"", b'{"a": "\xff"}', '{"ü": 2}'.encode()]
    rows = records.decode(model.append(block(*payloads), 1).body, "application/json")
    assert list(rows.each()) == payloads
    assert rows.content_type == "application/json"
    assert rows.flaws == {
        1: "not-an-object",
        2: "invalid-json",
        3: "empty",
        4: "invalid-utf8",
    }
    same = model.append(block(*[b"{}"] * 99, b"{]"), 2).body
    assert records.decode(same, "application/json").flaws == {99: "invalid-json"}
    assert records.decode(same).flaws == {}
    many = [b'{"n":%d}' % number for number in range(99)]
    rows = records.decode(model.append(block(*many), 3).body, "application/json")
    assert (list(rows.each()), rows.flaws) == (many, {})
    bytes_only = records.decode(model.append(b"raw", 3).body, "application/json")
    assert bytes_only.flaws == {0: "unframed"}
    assert bytes_only.content_types == {0: "application/octet-stream"}
