"""Which file holds an event: of names alone, while files move."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.config import Config
from gateway.sdk.files import Gone
from gateway.store.directories import Directories
from gateway.store.finder import Finder, segment_files, spool_files
from gateway.store.journal import segment
from gateway.store.spool import file_name
from incarnations import A, segment_name
from making import Make

LISTENER = {"name": "l", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}


@pytest.fixture
def directories(tmp_path) -> Directories:
    """Of the node `gw`, empty."""
    made = Directories.under(tmp_path)
    for path in (made.journal_of("gw"), made.spool, made.archive):
        path.mkdir(parents=True)
    return made


@pytest.fixture
def publish(directories) -> Make[Path]:
    """Puts a file of one node with these lsns into the spool, or elsewhere."""

    def make(first: int, last: int, *, to: Path | None = None, of: str = "gw") -> Path:
        path = (to or directories.spool) / file_name(of, A, first, last)
        pq.write_table(pa.table({"lsn": list(range(first, last + 1))}), path)
        return path

    return make


def journal(directories: Directories, *firsts: int) -> None:
    for first in firsts:
        names = {path.name for path in directories.journal_of("gw").iterdir()}
        attempt = next(n for n in range(9) if segment_name(first, n) not in names)
        header = segment.Header(first, 0, 1).encode()
        (directories.journal_of("gw") / segment_name(first, attempt)).write_bytes(
            header
        )


def test_files_follow_each_other(directories, publish):
    """From the file with an lsn on, wherever each lies, up to the first hole; other
    nodes' files and hidden ones are not there."""
    publish(1, 4, to=directories.archive)
    publish(5, 9)
    publish(10, 10)
    publish(12, 20)
    publish(1, 99, of="other")
    (directories.spool / f".{file_name('gw', A, 11, 11)}").touch()
    found = Finder(directories, "gw")
    found.refresh()
    assert [file.first for file in found.files(3)] == [1, 5, 10]
    assert [file.first for file in found.files(12)] == [12]
    assert found.file(9) == next(found.files(9))
    assert found.file(11) is None
    assert list(found.files(21)) == []


def test_files_that_overlap(directories, publish):
    """As a crash leaves them that was before a part of a larger file was removed."""
    publish(1, 30)
    publish(11, 20)
    publish(31, 40)
    found = Finder(directories, "gw")
    found.refresh()
    for lsn in range(1, 31):
        file = found.file(lsn)
        assert file is not None
        assert file.first <= lsn <= file.last
    assert [file.first for file in found.files(25)] == [1, 31]
    assert found.file(41) is None


def test_segments(directories):
    """The segment with an lsn is the last that begins there or before; it ends where
    the next begins, which may be at once."""
    journal(directories, 7, 1, 7)
    found = Finder(directories, "gw")
    assert [(file.first, file.before) for file in found.segments(5)] == [
        (1, 7),
        (7, 7),
        (7, None),
    ]
    last = found.segment(8)
    assert last is not None
    assert last.path.name == segment_name(7, 1)
    assert last.scan().header.first_lsn == 7
    assert found.segment(0) is None


def test_the_oldest(directories, publish):
    """Of all places, from an lsn on; None where there is nothing."""
    found = Finder(directories, "gw")
    assert found.oldest() is None
    journal(directories, 10)
    publish(3, 9)
    assert found.oldest() == 3
    assert found.oldest(4) == 10
    assert found.oldest(11) is None


def test_what_moves_while_we_look(directories, publish, ambush):
    """An event that is in its next place before it leaves the one before is met,
    however its moves fall between the listings."""
    journal(directories, 1)
    file = directories.spool / file_name("gw", A, 1, 5)

    def published() -> None:
        publish(1, 5)
        (directories.journal_of("gw") / segment_name(1)).unlink()

    ambush += [published, lambda: file.rename(directories.archive / file.name)]
    found = Finder(directories, "gw")
    assert found.oldest() == 1
    assert found.file(5) is not None


def test_opened_wherever_it_is(directories, publish):
    """A file that Spark has taken since is opened in the archive; one that is nowhere
    is FileNotFoundError."""
    path = publish(1, 5)
    found = Finder(directories, "gw")
    found.refresh()
    file = found.file(1)
    assert file is not None
    moved = path.rename(directories.archive / path.name)
    with found.open(file) as opened:
        assert opened.metadata.num_rows == 5
    moved.unlink()
    with pytest.raises(FileNotFoundError):
        found.open(file)


def test_directories_that_are_not_there(tmp_path):
    assert segment_files(tmp_path / "no") == []
    assert spool_files(tmp_path / "no") == {}
    assert Finder(Directories.under(tmp_path / "no"), "gw").oldest() is None


def test_gone_says_what_is_left():
    """Whoever asked for what is gone is told where to begin."""
    assert str(Gone(3, 7)) == "lsn 3 is not there any more; the oldest is 7"
    assert str(Gone(3, None)) == "lsn 3 is not there any more; nothing older is left"


def test_the_configured_names(tmp_path):
    """Journal and spool may have other names; what is one node's lies below its own."""
    config = Config.model_validate(
        {
            "node": "gw-1",
            "listeners": [LISTENER],
            "data_dir": str(tmp_path),
            "journal": {"directory": "wal"},
            "spool": {"directory": "out"},
        }
    )
    found = Directories.of(config)
    assert found.journal_of("gw-1") == tmp_path / "wal" / "gw-1"
    assert (found.root, found.spool) == (tmp_path, tmp_path / "out")
    assert found.state_of("gw-1") == tmp_path / "state" / "gw-1"
    assert Directories.under(tmp_path).journal == tmp_path / "journal"
