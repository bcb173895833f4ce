"""Large events in a small heap: they get through, or aside, and never stop the others."""

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from deadlines import environment, finish
from gateway.audit import audit
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.files import footers, heap
from gateway.spark.files.heap import Suspects, fit
from gateway.spark.files.incomplete import IncompleteBatches
from gateway.spark.jvm import session
from gateway.spark.run.failure import Failed
from gateway.spark.source import limit_of
from gateway.store.directories import Directories
from gateway.store.names import parse_file_name

MB = 1_000_000


class Session:
    """A Spark whose user has set these."""

    def __init__(self, **own: str) -> None:
        self.set: dict[str, str] = {}
        self.given = {key.replace("_", "."): value for key, value in own.items()}
        self.conf = SimpleNamespace(set=self.set.__setitem__)


def test_small_rows_are_taken_as_spark_does_and_large_ones_one_by_one(monkeypatch):
    """By their size; what the user has set stays."""
    monkeypatch.setattr(heap, "settings_of", lambda spark: spark.given)
    spark = Session()
    fit(spark, 500)
    usual = {"columnarReaderBatchSize": "4096", "min": "100", "max": "10000"}
    assert {key.rpartition(".")[2]: one for key, one in spark.set.items()} == usual
    fit(spark, 9 * MB)
    assert set(spark.set.values()) == {"1"}
    own = Session(parquet_page_size_row_check_min="7")
    fit(own, 9 * MB)
    assert len(own.set) == 4
    assert "parquet.page.size.row.check.min" not in own.set


@pytest.mark.parametrize(
    ("sizes", "least", "most"),
    [
        ([500] * 1000, 500, 1000),  # what all have, and their envelopes
        ([9 * MB] * 3, 9 * MB, 10 * MB),
        ([500] * 1000 + [20 * MB] * 2, 40 * MB, 42 * MB),  # it may be all in one
    ],
)
def test_the_footer_says_what_a_row_may_have(spool, sizes, least, most):
    """Before any of them is read."""
    path = spool.put("gw", 1, [os.urandom(size) for size in sizes])
    file = parse_file_name(path.name)
    assert file is not None
    found = footers.read(spool.path, [file])
    assert least <= found.row_bytes <= most


def test_a_batch_is_bounded_in_memory(spool):
    """What is compressed well counts as what it is, once it is more than a batch."""
    spool.put("gw", 1, [b'{"message": "%d%s"}' % (n, b"x" * MB) for n in range(4)])
    assert limit_of(spool.path, 8 * MB) == {"max_bytes": 8 * MB}
    (limit,) = limit_of(spool.path, 3 * MB).values()
    (path,) = spool.path.iterdir()
    assert limit * (4 * MB / path.stat().st_size) <= 3 * MB
    assert limit > 1


def test_who_is_suspected_is_known_after_a_kill(tmp_path):
    """Each until it has been tried alone; then nothing is left behind."""
    names = [f"events-gw_aaaaaaaaaa-{n:020d}-{n:020d}.parquet" for n in (1, 2, 3)]
    files = [one for one in map(parse_file_name, names) if one is not None]
    path = tmp_path / "heap.json"
    Suspects(path, Lake(), "1g").failed(files)
    assert Suspects(path, Lake(), "1g").names == set(names)
    Suspects(path, Lake(), "1g").failed(files[1:2])
    again = Suspects(path, Lake(), "1g")
    assert again.alone == names[1]
    again.aside(names[1])
    assert not again.keep(names)
    assert again.keep([])
    assert not again
    assert not path.exists()


def test_one_file_is_tried_again_before_it_is_moved(tmp_path):
    """The first time it had all the settings of small rows."""
    file = parse_file_name(f"events-gw_aaaaaaaaaa-{1:020d}-{1:020d}.parquet")
    assert file is not None
    suspects = Suspects(tmp_path / "heap.json", Lake(), "1g")
    suspects.failed([file])
    assert suspects.alone is None
    suspects.failed([file])
    assert suspects.alone == file.name


def test_with_another_heap_it_is_tried_again(tmp_path):
    """Who gives Java more, as the message says, does not find the file moved unread."""
    file = parse_file_name(f"events-gw_aaaaaaaaaa-{1:020d}-{1:020d}.parquet")
    assert file is not None
    path = tmp_path / "heap.json"
    suspects = Suspects(path, Lake(), "1g")
    for _ in range(2):
        suspects.failed([file])
    assert Suspects(path, Lake(), "1g").alone == file.name
    again = Suspects(path, Lake(), "4g")
    assert again.alone is None
    assert again.names == {file.name}
    again.failed([file])
    assert Suspects(path, Lake(), "4g").alone == file.name


@pytest.mark.parametrize("java_lives", [True, False])
def test_a_small_file_is_not_why_a_heap_is_too_small(
    spool, tmp_path, monkeypatch, java_lives
):
    """Something else fills it: the job ends and says so, and the file stays; else each file
    of the spool would go aside, one after the other.  Of a large one it is not so."""
    monkeypatch.setattr(session, "java_status", lambda: heap.EXIT)
    suspects = Suspects(tmp_path / "heap.json", Lake(), "1g")
    why = RuntimeError("java.lang.OutOfMemoryError: Java heap space")

    def try_(path: Path) -> str | None:
        files = [parse_file_name(path.name)]
        sink: Any = SimpleNamespace(
            batch_files=files, failure=why, repeats=False, busy=True
        )
        tried = IncompleteBatches(
            spool.path, Mock(), Mock(), suspects, sink, None, Mock()
        )
        if not java_lives:
            return tried.java_ended(why)
        try:
            assert tried.suspect(why)
        except Failed as end:
            return str(end)
        return None

    small = spool.put("gw", 1, large(3, 1000))
    try_(small)
    said = try_(small)
    assert said is not None
    assert "something else fills that" in said
    assert suspects.alone is None
    huge = spool.put("gw", 4, large(1, 9 * MB))
    try_(huge)
    assert suspects.alone == huge.name


@pytest.mark.parametrize(
    "said",
    [
        "java.lang.OutOfMemoryError: Java heap space",
        "Cannot reserve additional contiguous bytes in the vectorized reader (requested",
        "ExecutorLostFailure: Command exited with code 52",
    ],
)
def test_what_says_that_a_heap_was_too_small(said):
    """In the words of Java, of Spark's reader, and of a cluster."""
    assert heap.ran_out(RuntimeError(f"Job aborted: {said}"))
    assert not heap.ran_out(RuntimeError("Job aborted: exit code 520"))


@pytest.mark.parametrize(
    "said",
    [
        "unable to create native thread: possibly out of memory or process/resource limits",
        "Metaspace",
        "Compressed class space",
    ],
)
def test_what_java_lacks_for_itself_is_no_fault_of_a_file(said):
    """As under a limit of processes: with it each file would go aside."""
    assert not heap.ran_out(RuntimeError(f"java.lang.OutOfMemoryError: {said}"))


def job(settings: Path) -> tuple[int, str]:
    """The job, until what is there is read; how it ended, and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.spark.job", "--config", settings, "--once"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    _, said = finish(process, seconds=600)
    return process.returncode, said or ""


def rows(data: Path) -> list[int]:
    """The lsns in `events`."""
    import pyarrow.dataset as ds

    table = ds.dataset(data / "lake" / "events", partitioning="hive")
    return sorted(table.to_table(["lsn"])["lsn"].to_pylist())


@pytest.fixture
def _one_at_a_time(tmp_path_factory) -> Iterator[None]:
    """Each takes two gigabytes, in whichever of the workers it runs."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with (shared / "large-events.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def large(count: int, size: int) -> list[bytes]:
    """Events that compress to the half."""
    return [
        json.dumps({"message": os.urandom(size // 2).hex()}).encode()
        for _ in range(count)
    ]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("_one_at_a_time")
@pytest.mark.parametrize(
    ("count", "size"),
    [(30, 9 * MB), (60, 5 * MB)],  # each is more than one batch
)
def test_large_events_get_through(spool, settings_file, tmp_path, count, size):
    """With the default configuration, and its heap of 1 GiB."""
    each = 90 * MB // size  # of a window that has as much as a listener takes
    for first in range(1, count + 1, each):
        spool.put("gw", first, large(min(each, count + 1 - first), size))
    status, said = job(settings_file())
    assert status == 0, said
    assert rows(tmp_path / "data") == list(range(1, count + 1))
    assert audit(Directories.under(tmp_path / "data")).complete


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("_one_at_a_time")
@pytest.mark.parametrize("depth", [0, 5])
def test_what_can_not_fit_goes_aside_and_the_rest_goes_on(
    spool, settings_file, tmp_path, depth
):
    """Whether Java lives through it (depth 0) or not: then the next starts go on.  The last
    line names heap, key and file."""
    spool.put("gw", 1, large(3, 1000))
    path = spool.put("gw", 4, [b'{"message": "%s"}' % (b"x" * (300 * MB))])
    spool.put("gw", 5, large(3, 1000))
    settings = settings_file(conf={"spark.executor.killOnFatalError.depth": str(depth)})
    for _ in range(3):
        status, said = job(settings)
        if status == 0:
            break
        assert depth, said
        last = said.splitlines()[-1]
        assert "1g (spark.driver_memory)" in last
        assert "events-gw_" in last
    assert status == 0, said
    assert rows(tmp_path / "data") == [1, 2, 3, 5, 6, 7]
    reason = json.loads((tmp_path / "data/poison" / f"{path.name}.json").read_text())
    assert "1g (spark.driver_memory)" in reason["why"]
    assert f"{path.name} is moved to" in said
    assert not (tmp_path / "data/lake/.gateway/heap.json").exists()


@pytest.mark.spark
def test_the_heap_grows_for_large_batches_and_shrinks_for_small_ones(spark):
    """Java's flags say so, unless somebody else has set them."""
    before = heap.Room(spark).now()
    assert before is not None
    heap.Room(spark).set(heap.SMALL)
    room = heap.Room(spark)
    try:
        for size, wanted in (
            (100, heap.SMALL),
            (50 << 20, heap.LARGE),
            (60 << 20, heap.LARGE),
            (0, heap.SMALL),
            (50 << 20, heap.LARGE),
        ):
            room.fit(size)
            assert room.now() == wanted
        other = heap.Room(spark)  # as if the user had said so
        other.fit(0)
        assert other.now() == heap.LARGE
    finally:
        room.set(before)


@pytest.mark.spark
def test_a_java_without_these_flags_keeps_its_heap(spark, monkeypatch):
    """It is a saving alone: no batch fails for it."""
    monkeypatch.setattr(heap.Free, "_fields", ("NoSuchFlag",))
    room = heap.Room(spark)
    assert room.now() is None
    room.fit(50 << 20)
