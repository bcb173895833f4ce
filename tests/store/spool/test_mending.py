"""What damaged lines of the catalog are taken for."""

from pathlib import Path

import pytest

from gateway.sdk.summed import encode
from gateway.store.node.catalog import Catalog, Lines
from gateway.store.spool import PublishedFiles, file_name
from gateway.store.spool.mending import Damaged, Entry
from gateway.store.system.disk import RealDisk
from gateway_testkit.disk import RecordingDisk
from incarnations import A


def entry(first: int, last: int) -> Entry:
    return Entry(first, last, file_name("gw", A, first, last))


ENTRIES = [entry(1, 3), entry(4, 4), entry(5, 9)]
LINES = [encode(each) for each in ENTRIES]
DATA = b"".join(LINES)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def opened(place: Path, data: bytes, *names: str) -> PublishedFiles:
    (place / "catalog").write_bytes(data)
    disk = RealDisk()
    return PublishedFiles(
        Catalog(place, disk), disk, "gw", names, given_by=lambda lsn: A
    )


def test_whatever_bit_flips_all_stays_published():
    """With the files still there nothing is forgotten, and each repair is told once."""
    names = [each.name for each in ENTRIES]
    place = Path("/journal")
    for bit in range(len(DATA) * 8):
        data = flipped(DATA, bit)
        disk = RecordingDisk()
        disk.make_directory(place)
        disk.create(place / "catalog").write([data])
        catalog = Catalog(place, disk)
        files = PublishedFiles(catalog, disk, "gw", names)
        assert disk.read(place / "catalog") == data
        files.settle()
        catalog.settle()
        assert files.last_lsn == 9
        assert [files.find(each.first) for each in ENTRIES] == ENTRIES
        assert Lines(disk.read(place / "catalog")).all(Entry) == ENTRIES
        # Only that of the last newline leaves every line readable.
        assert len(files.repairs) == (bit // 8 != len(DATA) - 1)


def test_a_line_between_others_needs_no_file(tmp_path):
    """All lsns between its neighbours are published, whoever took the file."""
    bad = flipped(LINES[1], 300)
    catalog = opened(tmp_path, LINES[0] + bad + LINES[2])
    assert catalog.unpublished(1) == 10
    assert catalog.repairs == [
        f"{tmp_path}/catalog: line 2 damaged: lsn 4 taken for published"
    ]


def test_the_first_lines_need_no_file(tmp_path):
    """What was published before the first good line was published."""
    bad = flipped(LINES[0], 300) + flipped(LINES[1], 300)
    assert opened(tmp_path, bad + LINES[2]).unpublished(1) == 10


def test_the_last_line_needs_its_file(tmp_path):
    """Nobody else knows its lsns: without the file the start is refused, with a way out
    that works.
    """
    data = DATA[: -len(LINES[2])] + flipped(LINES[2], 300)
    with pytest.raises(Damaged, match=r"line 3 is damaged.*from lsn 5 on") as refused:
        opened(tmp_path, data)
    assert str(tmp_path / "catalog") in str(refused.value)
    assert file_name("gw", A, 5, 104) in str(refused.value)
    assert (tmp_path / "catalog").read_bytes() == data
    catalog = opened(tmp_path, data, file_name("gw", A, 5, 104))
    assert catalog.last_lsn == 104


def test_a_file_that_is_being_written_is_not_taken_for_published(tmp_path):
    """One hidden file may have the damaged line; the one behind it has none."""
    data = LINES[0] + flipped(LINES[1], 300)
    hidden = "." + ENTRIES[2].name
    assert opened(tmp_path, data, ENTRIES[1].name, hidden).last_lsn == 4
    assert opened(tmp_path, data, "." + ENTRIES[1].name, hidden).last_lsn == 4


def test_public_files_make_good_for_lost_lines(tmp_path):
    """A file is public behind its line only; without one, the line was lost."""
    names = [each.name for each in ENTRIES]
    assert opened(tmp_path, LINES[0], *names).last_lsn == 9
    assert opened(tmp_path, b"", names[0], "." + names[1]).last_lsn == 3


def test_a_torn_line_is_no_damage(tmp_path):
    """A crash cut it short before anybody relied on it."""
    for size in range(len(LINES[2]) - 1):
        catalog = opened(tmp_path, LINES[0] + LINES[1] + LINES[2][:size])
        assert catalog.last_lsn == 4
        assert catalog.repairs == []
