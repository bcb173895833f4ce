"""Lines of the catalog that are damaged or gone: nothing is published twice, nor removed."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from catalogs import lines_of
from gateway.store.directories import Directories
from gateway.store.node.mark import Mark
from gateway.store.opening import Opened
from gateway.store.spool import file_name
from incarnations import A, segment_name

from .conftest import public, publish_all, store

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
