"""Which life of its node a file is of, by its footer."""

from __future__ import annotations

from pathlib import Path

import pytest

from forwarded import A, B, Sent
from gateway.store import digests, lives
from gateway.store.directories import Directories
from gateway.store.lives import LivesOfFiles
from gateway.store.names import file_name
from gateway_testkit.bucket import MemoryBucket


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    found = Directories.under(tmp_path)
    for each in (found.spool, found.archive):
        each.mkdir()
    return found


def test_of_files_in_the_archive(directories: Directories) -> None:
    """Or on their way there; not of one that waits for a name, which another one has.  What
    is gone is left out, and what is damaged is of nobody.
    """
    one, waits, coming = Sent(1), Sent(1, by=B), Sent(4, by=B)
    (directories.archive / one.name).write_bytes(one.data)
    (directories.spool / waits.name).write_bytes(waits.data)
    (directories.spool / coming.name).write_bytes(coming.data)
    damaged = Sent(7).name
    (directories.archive / damaged).write_bytes(b"PAR1")
    names = [one.name, coming.name, damaged, Sent(10).name]
    found = LivesOfFiles(directories, None)
    assert found.of_named(names) == {one.name: A, coming.name: B, damaged: ""}
    assert found.of(one.name, 0) == A
    with pytest.raises(FileNotFoundError):
        found.of(Sent(10).name, 0)
    with pytest.raises(ValueError, match="is no name of a spool file"):
        found.of_named(["x.parquet"])


def test_what_has_left_the_archive_costs_nothing(
    directories: Directories, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query's checkpoint names all that it has ever had, at a file a second millions."""
    monkeypatch.setattr(lives, "_AT_A_TIME", 2)
    looked_at: list[str] = []
    incarnation_of = digests.incarnation_of

    def look(path: Path) -> str:
        looked_at.append(path.name)
        return incarnation_of(path)

    monkeypatch.setattr(digests, "incarnation_of", look)
    there = [Sent(lsn) for lsn in (1, 4, 7, 10, 13)]
    for one in there:
        (directories.archive / one.name).write_bytes(one.data)
    names = [one.name for one in there]
    gone = [file_name("edge", lsn, lsn) for lsn in range(100, 200)]
    found = LivesOfFiles(directories, None).of_named([*gone, *names])
    assert found == dict.fromkeys(names, A)
    assert sorted(looked_at) == names


@pytest.mark.parametrize("asked", [64 << 10, 100])
def test_of_objects_only_the_end_is_fetched(
    directories: Directories, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    """All of its footer, however long that is."""
    monkeypatch.setattr(lives, "_END_BYTES", asked)
    bucket, one, other = MemoryBucket(), Sent(1), Sent(1, 9, by=B, node="other")
    for sent in (one, other):
        bucket.create(sent.name, sent.data)
    found = LivesOfFiles(directories, bucket)
    named = found.of_named([one.name, other.name, Sent(20).name])
    assert named == {one.name: A, other.name: B}
    assert found.of_all({one.name: one.file.bytes, Sent(20).name: 9}) == {one.name: A}
