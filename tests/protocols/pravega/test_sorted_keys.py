"""Keys of key-value tables, in their order, while they come and go."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.pravega import tables as sorted_keys
from gateway.protocols.pravega.segments import Segments
from gateway.protocols.pravega.snapshot import restore, save
from gateway.protocols.pravega.tables import Table

KEY = st.binary(min_size=1, max_size=1) | st.sampled_from([b"\0", b"a", b"\xff"])


@pytest.fixture(scope="module", autouse=True)
def _small_blocks() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_keys, "_BLOCK", 4)
        yield


@given(st.lists(st.tuples(st.booleans(), KEY)), KEY, KEY | st.just(b""), st.data())
def test_any_keys(changes, first, last, data):
    """Every range has what it should have, also after a restart in between."""
    state = Segments()
    state.create_table("t", 0, key_bytes=1)
    expected: dict[bytes, bytes] = {}
    stop = data.draw(st.integers(0, len(changes)))
    for number, (put, key) in enumerate(changes):
        if number == stop:
            state = restore(save(state))
        table = state.table("t")
        if put:
            table.put(table.position, [(key, b"%d" % number)])
            expected[key] = b"%d" % number
        else:
            table.remove(table.position, [key])
            expected.pop(key, None)
        found = table.between(first, last, 1000)
        assert [(each.key, each.value) for each in found] == [
            (key, value)
            for key, value in sorted(expected.items())
            if first <= key and (key <= last or not last)
        ]
        if found:
            assert [each.key for each in table.between(first, last, 1)] == [
                found[0].key
            ]


def test_who_reads_on_while_keys_come_and_go():
    """It meets each key that stays once, in order, whatever else is put and removed
    meanwhile.
    """
    table = Table(2)
    stay = [number.to_bytes(2) for number in range(0, 3000, 3)]
    table.put(0, [(key, b"") for key in reversed(stay)])
    met: list[bytes] = []
    begin, number = b"\0\0", 1
    while found := table.between(begin, b"", 10):
        met += [each.key for each in found]
        begin = (int.from_bytes(met[-1]) + 1).to_bytes(2)
        table.put(
            table.position, [((number + more).to_bytes(2), b"") for more in (0, 90, 3)]
        )
        table.remove(table.position, [(number + 3).to_bytes(2)])
        number = (number + 30) % 3000
    assert met == sorted(met)
    assert [key for key in met if int.from_bytes(key) % 3 == 0] == stay


def test_no_question_waits_until_all_keys_are_sorted(monkeypatch):
    """Neither the first one, nor one after a restart, nor a change."""
    monkeypatch.setattr(sorted_keys, "_BLOCK", 64)
    monkeypatch.setattr(sorted_keys, "_REPLY_BYTES", 1 << 30)
    compared = 0

    class Counted(bytes):
        def __lt__(self, other: bytes) -> bool:
            nonlocal compared
            compared += 1
            return bytes(self) < bytes(other)

    keys = [Counted((n * 7919 % 10_007).to_bytes(16)) for n in range(10_000)]
    for table in (
        Table(16),
        Table.restored(16, 9999, [(key, b"", n) for n, key in enumerate(keys[:9999])]),
    ):
        for number, key in enumerate(keys):
            if key not in table.entries:
                compared = 0
                table.put(number, [(key, b"")])
                assert compared < 100
        compared = 0
        assert len(table.between(b"\0" * 16, b"", 20)) == 20
        assert compared < 100
        table.remove(10_000, [keys[17]])
        assert compared < 200
        assert [each.key for each in table.between(b"", b"", 20_000)] == sorted(
            set(keys) - {keys[17]}
        )
