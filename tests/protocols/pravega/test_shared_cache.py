"""Values that several threads need."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from gateway.protocols.pravega.cache import Shared


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
