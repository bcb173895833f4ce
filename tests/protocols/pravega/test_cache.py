"""Recent data: what is there is right, what is not is said, and memory is bounded."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.pravega.cache import Shared, TailCache

_adds = st.lists(st.tuples(st.sampled_from("ab"), st.binary(max_size=40)), max_size=60)


@given(_adds, st.integers(1100, 9000), st.integers(0, 200), st.integers(0, 300))
def test_49_reads_are_the_bytes(adds, most, offset, size):
    """A read gives bytes of the segment, across chunks, or nothing."""
    recent = TailCache(most)
    whole = {"a": b"", "b": b""}
    for name, data in adds:
        recent.add(name, len(whole[name]), memoryview(data))
        whole[name] += data
        assert recent.bytes <= most
    for name, data in whole.items():
        got = recent.read(name, offset, size)
        begin = recent.begin(name)
        if begin is None or offset < begin:
            assert got is None
        else:
            assert got == data[offset : offset + size]


def test_oldest_goes_first():
    """A segment's first bytes leave when newer ones of any segment need the room."""
    recent = TailCache(4000)
    recent.add("a", 0, memoryview(b"x" * 1000))
    recent.add("a", 1000, memoryview(b"y" * 500))
    recent.add("b", 0, memoryview(b"z" * 400))
    assert recent.read("a", 0, 10) is None
    assert recent.read("a", 1000, 10) == b"y" * 10
    assert recent.begin("b") == 0


def test_small_pieces_join():
    """Events that come one by one take little more room than their bytes."""
    recent = TailCache(1 << 20)
    for number in range(5000):
        recent.add("a", 100 * number, memoryview(b"%0100d" % number))
    assert recent.bytes < 1.1 * 5000 * 100
    assert recent.begin("a") == 0
    assert recent.read("a", 123_400, 200) == b"%0100d%0100d" % (1234, 1235)


def test_dropped_segments_leave_nothing():
    """Segments that come and go take no memory, however many."""
    recent = TailCache(1 << 20)
    recent.add("stays", 0, memoryview(b"abc"))
    for number in range(1000):
        recent.add(f"{number}", 0, memoryview(b"x" * 100))
        recent.drop(f"{number}")
    assert len(recent._order) < 5
    assert recent.read("stays", 0, 3) == b"abc"
    recent.drop("stays")
    assert recent.bytes == 0


def test_a_gap_starts_afresh():
    """Bytes that do not follow make what was there useless."""
    recent = TailCache(10_000)
    recent.add("a", 0, memoryview(b"xx"))
    recent.add("a", 9, memoryview(b"yy"))
    assert recent.begin("a") == 9
    assert recent.read("a", 0, 9) is None
    recent.drop("a")
    assert recent.bytes == 0


def test_many_chunks():
    """A long run of small chunks stays readable while its head leaves."""
    recent = TailCache(16_000)
    for number in range(50_000):
        recent.add("a", number, memoryview(bytes([number % 256])))
    begin = recent.begin("a")
    assert begin is not None
    assert 0 < begin < 49_000
    expected = bytes(n % 256 for n in range(begin, 50_000))
    assert recent.read("a", begin, 50_000) == expected


def test_what_has_no_room_pushes_nothing_out():
    """A merge larger than all of it leaves the others where they are."""
    recent = TailCache(3000)
    recent.add("a", 0, memoryview(b"abc"))
    recent.add("b", 0, memoryview(b"old"))
    recent.add("b", 3, memoryview(bytes(2900)))
    assert recent.read("a", 0, 3) == b"abc"
    assert recent.read("b", 0, 3) is None
    assert recent.begin("b") is None


def test_made_once_for_all_who_come():
    """Whoever comes while it is made, or later, gets the same."""
    there, go, made = Barrier(9), Event(), []
    shared: Shared[object] = Shared(10)

    def make() -> object:
        made.append(object())
        assert go.wait(60)
        return made[-1]

    def ask(_: int) -> object:
        there.wait(60)
        return shared.made("k", make)

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, n) for n in range(8)]
        there.wait(60)
        go.set()
        assert {id(each.result()) for each in asked} == {id(made[0])}
    assert len(made) == 1


def test_what_can_not_be_made():
    """Those who waited hear why; the next one tries again."""
    shared: Shared[str] = Shared(10)
    begun, go = Event(), Event()

    def fail() -> str:
        begun.set()
        assert go.wait(60)
        raise FileNotFoundError("gone")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(shared.made, "k", fail)
        assert begun.wait(60)
        second = pool.submit(shared.made, "k", fail)
        go.set()
        for each in (first, second):
            with pytest.raises(FileNotFoundError):
                each.result()
    assert shared.made("k", lambda: "made") == "made"


def test_what_was_used_last_stays():
    """As much as has room, and the last one always."""
    shared: Shared[bytes] = Shared(10, len)
    for key in "abc":
        shared.put(key, key.encode() * 4)
    assert shared.get("a") is None
    assert shared.get("b") == b"bbbb"
    shared.put("d", b"dd")
    assert shared.get("c") == b"cccc"
    shared.put("b", b"b" * 100)
    assert [shared.get(key) for key in "bcd"] == [b"b" * 100, None, None]
    shared.put("b", b"b")
    shared.put("e", b"e" * 9)
    assert shared.get("b") == b"b"
    shared.drop("e")
    assert shared.get("e") is None
