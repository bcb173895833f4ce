"""What may leave the spool, and when."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ranges
from gateway.spark.files.cleaner import Cleaner
from gateway.spark.run.checkpoint import Checkpoint
from gateway.store.names import SpoolFile
from incarnations import A

SIZE = 10


def name(number: int) -> str:
    """The name of the *number*th spool file."""
    return f"events-gw_aaaaaaaaaa-{number * SIZE + 1:020d}-{(number + 1) * SIZE:020d}.parquet"


class Spool:
    """Five files and a query, of which nothing is committed."""

    def __init__(self, data: Path, logs: Callable[[str], Any]) -> None:
        self.path = data / "spool"
        self.archive = data / "archive"
        self.path.mkdir(parents=True)
        self.files = [name(number) for number in range(5)]
        for file in self.files:
            (self.path / file).write_bytes(b"rows")
        self.query = logs("events")
        self.before: Callable[[Sequence[SpoolFile]], None] = lambda _: None
        self.in_tables = Ranges({"gw": {A: [(1, 5 * SIZE)]}})
        self.query.begin()
        for entry in range(5):
            self.query.source(entry, [name(entry)])
            self.query.offset(entry, entry)

    def cleaner(self, *, archive: bool = True, disk: Lake | None = None) -> Cleaner:
        """As a job makes it when it starts."""
        return Cleaner(
            self.path,
            self.archive if archive else None,
            Checkpoint(self.query.path, disk or Lake()),
            self.in_tables.covers,
            disk or Lake(),
            self.before,
        )

    def commit(self, upto: int) -> None:
        """Commit the batches of the query."""
        for batch in range(upto + 1):
            self.query.commit(batch)

    def left(self) -> list[str]:
        """Names in the spool."""
        return sorted(path.name for path in self.path.iterdir())

    def archived(self) -> list[str]:
        """Names in the archive."""
        return sorted(path.name for path in self.archive.iterdir())


@pytest.fixture
def spool(tmp_path, logs) -> Spool:
    """See `Spool`."""
    return Spool(tmp_path / "data", logs)


def test_a_file_goes_when_its_batch_is_committed(spool):
    cleaner = spool.cleaner()
    assert cleaner.run() == []
    spool.commit(1)
    assert sorted(cleaner.run()) == spool.files[:2]
    assert spool.archived() == spool.files[:2]
    assert spool.left() == spool.files[2:]
    spool.commit(4)
    assert sorted(cleaner.run()) == spool.files[2:]
    assert spool.left() == []


class Noting(Lake):
    """Notes what was synced when the first file left the spool."""

    def __init__(self) -> None:
        self.synced: set[str] = set()
        self.before: set[str] | None = None

    def open(self, path: Path) -> Any:
        self.synced.add(f"{path.parent.name}/{path.name}")
        return super().open(path)

    def rename(self, old: Path, new: Path) -> None:
        if self.before is None:
            self.before = set(self.synced)
        super().rename(old, new)


def test_what_says_that_a_file_is_done_is_durable_before_it_goes(spool):
    """After a power cut Spark would else take a batch anew, of files that are gone."""
    disk = Noting()
    cleaner = spool.cleaner(disk=disk)
    spool.commit(2)
    assert sorted(cleaner.run()) == spool.files[:3]
    assert disk.before is not None
    logs = {
        f"{log}/{batch}" for log in ("offsets", "commits", "0") for batch in (0, 1, 2)
    }
    assert disk.before >= logs


def test_offsets_alone_free_nothing(spool):
    """A batch that began may be run again, and needs its files then."""
    assert spool.cleaner().run() == []
    assert spool.left() == spool.files


def test_the_tables_must_have_it_too(spool):
    """Whatever Spark's logs say: what the ledger does not know stays."""
    spool.commit(4)
    spool.in_tables = Ranges({"gw": {A: [(1, 2 * SIZE + 3)]}})
    assert sorted(spool.cleaner().run()) == spool.files[:2]


def test_deleting_leaves_no_copy(spool):
    """With spool.after = delete there is no archive at all."""
    spool.commit(0)
    assert spool.cleaner(archive=False).run() == spool.files[:1]
    assert spool.left() == spool.files[1:]
    assert not spool.archive.exists()


def test_a_killed_job_leaks_nothing(spool):
    """Committed before the kill and not taken out: the next start does it."""
    spool.commit(3)
    assert sorted(spool.cleaner().run()) == spool.files[:4]


def test_a_start_reads_compacted_logs(spool):
    """After many batches the old entries are in one file only."""
    log = spool.query.path / "sources" / "0"
    for path in log.iterdir():
        path.unlink()
    spool.query.source(4, [name(4)], compact={n: [name(n)] for n in range(4)})
    spool.commit(4)
    assert sorted(spool.cleaner().run()) == spool.files


def test_what_is_not_the_gateways_stays(spool):
    """Hidden names are not there yet, and other names are none of our business."""
    spool.commit(4)
    others = [f".{name(9)}", name(9), "notes.txt"]
    for other in others:
        (spool.path / other).touch()
    spool.cleaner().run()
    assert spool.left() == sorted(others)


def test_a_file_published_again_goes_again(spool):
    """The same name has the same events; Spark will not look at it a second time."""
    spool.commit(4)
    spool.cleaner().run()
    (spool.path / name(2)).write_bytes(b"rows")
    assert spool.cleaner().run() == [name(2)]
    assert spool.archived() == spool.files


def test_what_is_redacted_in_the_archive_stays_so(spool):
    """A file that comes again has in clear what somebody has had deleted."""
    spool.commit(4)
    spool.cleaner().run()
    (spool.archive / name(2)).write_bytes(b"0000")
    (spool.path / name(2)).write_bytes(b"rows")
    assert spool.cleaner().run() == [name(2)]
    assert (spool.archive / name(2)).read_bytes() == b"0000"
    assert spool.left() == []


def test_what_goes_to_the_archive_is_told_before(spool):
    """By then it is still where it was; without an archive nobody asks."""
    spool.commit(0)
    told: list[tuple[list[str], list[str]]] = []

    def before(files: Sequence[SpoolFile]) -> None:
        told.append(([file.name for file in files], spool.archived()))

    spool.before = before
    spool.cleaner().run()
    spool.cleaner().run()
    assert told == [([name(0)], [])]
    spool.commit(1)
    spool.cleaner(archive=False).run()
    assert len(told) == 1
