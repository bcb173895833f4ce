"""The catalog of a node: its small states, a typed line each."""

import errno
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from catalogs import lines_of
from gateway.sdk.summed import OtherForm, encode
from gateway.store.directories import Directories
from gateway.store.node import catalog
from gateway.store.node.catalog import Catalog, Line, Lines, look
from gateway.store.node.mark import Mark
from gateway.store.opening import Opened
from gateway.store.spool import file_name
from gateway_testkit.disk import Fault, RecordingDisk
from incarnations import A, segment_name

from .conftest import public, publish_all, store

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


Start = Callable[..., Opened]


def take_all(start: Start, directories: Directories) -> dict[Path, bytes]:
    """Four batches are published, a segment and a file each, and the job has taken the
    files; what was in the segments, by their paths."""
    opened = start("plain")
    for body in (b"a", b"b", b"c", b"d"):
        store(opened, "plain", body)
    opened = start("plain")
    wholes = {one.path: one.path.read_bytes() for one in opened.segments}
    publish_all(opened)
    for sealed in opened.segments:
        opened.publisher.remove(sealed)
    for each in directories.spool.iterdir():
        each.unlink()
    opened.marker.write(Mark(4, 4, 4), now=True)
    return wholes


def put_back(start: Start, path: Path, whole: bytes, *, late: bool) -> Opened:
    """Put this segment back before a start, or *late*, before the one behind that.  There
    is nothing to publish, and that the segment will be set aside is told."""
    if late:
        assert len(start("plain").repairs) == 1
    path.write_bytes(whole)
    opened = start("plain")
    assert opened.unpublished == []
    assert any(f"{path.name}.damaged" in repair for repair in opened.repairs)
    for sealed in opened.segments:
        opened.publisher.remove(sealed)
    return opened


def halves(catalog: Path) -> tuple[bytes, list[bytes]]:
    """The lines of a catalog that say something else, and those of files."""
    [other] = lines_of(catalog, b"incarnation")
    return other, lines_of(catalog, b"file")


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("remembering", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_what_a_damaged_line_named_is_neither_published_twice_nor_removed(
    start, directories, number, remembering, late
):
    """Its segment was published, or published as lost: nobody knows.  Put back, it counts
    as published, and is kept, also if that is a start after the line was mended."""
    start = partial(start, remembering=remembering)
    wholes = take_all(start, directories)
    journal = directories.journal_of("gw")
    path = journal / segment_name(number)
    others, lines = halves(journal / "catalog")
    bad = lines[number - 1]
    lines[number - 1] = bad[:20] + bytes([bad[20] ^ 1]) + bad[21:]
    (journal / "catalog").write_bytes(others + b"".join(lines))
    opened = put_back(start, path, wholes[path], late=late)
    for sealed in opened.segments:
        opened.publisher.remove(sealed)
    assert path.with_name(f"{path.name}.damaged").read_bytes() == wholes[path]
    assert public(directories) == []
    assert opened.first_lsn == 5


def test_a_damaged_first_line_does_not_vouch_for_lines_that_were_dropped(
    start, directories, monkeypatch
):
    """They were older; what they named is kept as well when it is put back."""
    monkeypatch.setattr("gateway.store.spool.published._KEEP", 3)
    monkeypatch.setattr("gateway.store.node.catalog._SPARE", 0)
    opened = start("plain")
    for _ in range(10):
        store(opened, "plain", b"a")
    journal = directories.journal_of("gw")
    path = journal / segment_name(2)
    whole = path.read_bytes()
    publish_all(start("plain"))
    shutil.rmtree(directories.spool)
    others, lines = halves(journal / "catalog")
    assert len(lines) < 9
    lines[0] = b"0" + lines[0][1:] if lines[0][:1] != b"0" else b"1" + lines[0][1:]
    (journal / "catalog").write_bytes(others + b"".join(lines))
    path.write_bytes(whole)
    opened = start("plain")
    assert opened.unpublished == []
    assert path.with_name(f"{path.name}.damaged").read_bytes() == whole
    assert opened.first_lsn == 11


@pytest.mark.parametrize("left", [0, 1, 3])
@pytest.mark.parametrize("remembering", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_what_a_missing_line_named_is_not_removed_either(
    start, directories, left, remembering, late
):
    """The last lines were cut off, and the job has taken the files."""
    start = partial(start, remembering=remembering)
    wholes = take_all(start, directories)
    journal = directories.journal_of("gw")
    path = journal / segment_name(4)
    others, lines = halves(journal / "catalog")
    (journal / "catalog").write_bytes(others + b"".join(lines[:left]))
    put_back(start, path, wholes[path], late=late)
    assert path.with_name(f"{path.name}.damaged").read_bytes() == wholes[path]


@pytest.mark.parametrize("where", ["spool", "archive"])
def test_a_public_file_behind_a_hole_is_not_written_again(start, directories, where):
    """One bad sector took three lines, retention one of their files, and the mark is late:
    the file's name is there, and its segment was not removed yet."""
    opened = start("plain", remembering=True)
    for body in (b"a", b"b", b"c", b"d"):
        store(opened, "plain", body)
    publish_all(start("plain", remembering=True))
    file = directories.spool / file_name("gw", A, 4, 4)
    content = file.read_bytes()
    (directories.spool / file_name("gw", A, 3, 3)).unlink()
    file = file.rename(directories.root / where / file.name)
    opened.marker.write(Mark(4, 4, 1), now=True)
    journal = directories.journal_of("gw")
    for number in (1, 2, 3):
        (journal / segment_name(number)).unlink()
    others, (first, *lines) = halves(journal / "catalog")
    (journal / "catalog").write_bytes(others + first + bytes(sum(map(len, lines))))
    opened = start("plain", remembering=True)
    assert opened.unpublished == []
    assert any(f"no line names {file.name}" in repair for repair in opened.repairs)
    publish_all(opened)
    assert file.read_bytes() == content
    opened = start("plain", remembering=True)
    assert (opened.unpublished, opened.repairs, opened.first_lsn) == ([], [], 5)
