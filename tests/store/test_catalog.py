"""The catalog of a node: its small states, a typed line each."""

import errno
from pathlib import Path

import msgspec
import pytest

from gateway.sdk.summed import OtherForm, encode
from gateway.store.node import catalog
from gateway.store.node.catalog import Catalog, Line, Lines, look
from gateway_testkit.disk import Fault, RecordingDisk

PLACE = Path("/journal")


class Alone(Line, frozen=True, tag="alone"):
    """A state of which there is one."""

    value: int


class Several(Line, frozen=True, tag="several"):
    """One that has keys."""

    name: str = msgspec.field(name="key")
    value: int = 0


class Old(msgspec.Struct):
    """A line of before."""

    first: int


@pytest.fixture
def disk() -> RecordingDisk:
    disk = RecordingDisk()
    disk.make_directory(PLACE)
    return disk


def lines(disk: RecordingDisk) -> list[bytes]:
    return disk.read(PLACE / "catalog").splitlines(keepends=True)


def test_the_newest_line_of_a_type_and_a_key_counts(disk):
    """For the process that writes it, and for whoever looks or starts later."""
    here = Catalog(PLACE, disk)
    assert here.newest(Alone) is None
    assert here.all(Several) == []
    for line in (Alone(1), Several("a", 2), Alone(3), Several("b", 4), Several("a", 5)):
        here.put(line)
    for each in (here, look(PLACE, disk), Catalog(PLACE, disk)):
        assert each.newest(Alone) == Alone(3)
        assert each.newest(Several, "a") == Several("a", 5)
        assert each.all(Several) == [Several("a", 5), Several("b", 4)]
    assert len(lines(disk)) == 5


def test_old_lines_go_in_time(disk, monkeypatch):
    """The file is written anew; what another version keeps in it stays."""
    monkeypatch.setattr(catalog, "_SPARE", 3)
    disk.create(PLACE / "catalog").write([encode(Several("of another version", 7))])
    here = Catalog(PLACE, disk)
    for value in range(50):
        here.put(Alone(value))
        assert len(lines(disk)) < 9
    assert Catalog(PLACE, disk).newest(Alone) == Alone(49)
    assert Catalog(PLACE, disk).all(Several) == [Several("of another version", 7)]


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_line_that_failed_is_settled_by_the_next(disk, call):
    """Nothing is written behind it; it does not count until then."""
    here = Catalog(PLACE, disk)
    here.put(Alone(1))
    disk.fault = Fault(1, errno.ENOSPC, calls=frozenset({call}))
    with pytest.raises(OSError, match="space"):
        here.put(Alone(2))
    disk.fault = None
    assert here.newest(Alone) == Alone(1)
    here.put(Several("a"))
    assert lines(disk) == [encode(Alone(1)), encode(Several("a"))]


def test_what_a_crash_leaves_of_the_last_line_is_no_damage():
    """Its beginning, or zeros and what is behind them."""
    whole = encode(Alone(1))
    last = encode(Alone(2))
    for size in range(len(last) - 1):
        for torn in (last[:size], bytes(size) + last[size:]):
            if b'"type"' not in torn:
                found = Lines(whole + torn)
                assert (found.damaged_numbers, found.all(Alone)) == ([], [Alone(1)])


def test_damage_is_of_the_type_that_a_line_still_names():
    """Of a type with another length it can not be; of one that names none it may be of any."""
    bad = encode(Alone(1)).replace(b":1", b":2")
    found = Lines(bad + encode(Several("a")))
    assert found.damaged_numbers == [1]
    assert (found.damaged(Alone), found.damaged(Several)) == (True, False)
    assert found.numbered(Several) == [(2, Several("a"))]
    found = Lines(bytes(9) + b"\n" + encode(Several("a")))
    assert (found.damaged(Alone), found.damaged(Several)) == (True, True)
    assert found.numbered(Several) == [(1, None), (2, Several("a"))]


@pytest.mark.parametrize("damage", [b"x", bytes(1), bytes(40), bytes(70)], ids=len)
def test_damage_hides_no_line_behind_one_of_another_type(damage):
    """A newline that is lost, or a sector, makes one line of two."""
    states = (Several("a"), Alone(1), Several("b"), Several("c"), Several("d"))
    lines = [*map(encode, states)]
    data = b"".join(lines)
    begin = data.index(lines[2])
    for at in range(begin - len(damage), begin):
        found = Lines(data[:at] + damage + data[at + len(damage) :])
        whole = damage == b"x" and at < begin - 1
        assert (None in dict(found.numbered(Several)).values()) != whole, at
    behind = Lines(lines[0] + lines[1].replace(b"1}", b"\0}"))
    assert behind.numbered(Several) == [(1, Several("a"))]


def test_a_file_that_was_replaced_takes_no_line(disk, monkeypatch):
    """Where the new one has its name, and may lose it in a power cut."""
    monkeypatch.setattr(catalog, "_SPARE", 3)
    here = Catalog(PLACE, disk)
    for value in range(6):
        here.put(Alone(value))
    disk.fault = Fault(1, calls=frozenset({"sync_directory"}))
    with pytest.raises(OSError, match="error"):
        here.put(Alone(6))
    disk.fault = None
    for name in "abc":
        here.put(Several(name))
    assert look(PLACE, disk).all(Several) == [Several(name) for name in "abc"]


def test_a_line_without_a_type_is_of_an_earlier_commit(disk):
    """It is refused, and changed by nobody."""
    disk.create(PLACE / "catalog").write([encode(Old(1))])
    with pytest.raises(OtherForm, match=r"/journal/catalog: .* without a type"):
        Catalog(PLACE, disk)
