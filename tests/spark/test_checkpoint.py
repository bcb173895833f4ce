"""Reading Spark's logs."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken, Ledger
from gateway.spark.commit.sink import Plan
from gateway.spark.run import query
from gateway.spark.run.checkpoint import Checkpoint
from gateway.store.names import file_name, parse_file_name
from incarnations import A


def name(number: int) -> str:
    """The name of the *number*th spool file of ten events each."""
    return (
        f"events-gw_aaaaaaaaaa-{number * 10 + 1:020d}-{number * 10 + 10:020d}.parquet"
    )


@pytest.fixture
def log(logs) -> Any:
    """The logs of a query that has just begun."""
    made = logs("events")
    made.begin()
    return made


@pytest.fixture
def checkpoint(log) -> Checkpoint:
    """Over those logs."""
    return Checkpoint(log.path, Lake())


def names(files: list[Any]) -> list[str]:
    """In order of lsn."""
    return sorted(file.name for file in files)


def test_nothing_yet(logs):
    """Before the first start there is no query, no batch, no file."""
    checkpoint = Checkpoint(logs("events").path, Lake())
    assert checkpoint.query is None
    assert checkpoint.committed == -1
    assert checkpoint.files(-1, -1) == []


def test_it_has_begun_with_its_first_batch(log, checkpoint):
    """What a kill leaves of offsets that were being written is no batch."""
    log.source(0, [name(0)])
    (log.path / "offsets").mkdir()
    (log.path / "offsets" / ".0.34348642.tmp").touch()
    assert not checkpoint.begun
    log.offset(0, 0)
    assert checkpoint.begun


def test_batches_are_not_entries(log, checkpoint):
    """A batch has the files of the entries that its offset adds: none, one or many."""
    for entry in range(4):
        log.source(entry, [name(entry)])
    for batch, entry in enumerate([0, 0, 3]):
        log.offset(batch, entry)
    assert names(checkpoint.batch_files(0)) == [name(0)]
    assert checkpoint.batch_files(1) == []
    assert names(checkpoint.batch_files(2)) == [name(1), name(2), name(3)]


def test_a_batch_before_any_file(log, checkpoint):
    """Spark writes a dash where a source has no offset yet."""
    log.offset(0, -1)
    assert checkpoint.batch_files(0) == []


def test_compact_entries_stand_for_all_before(log, checkpoint):
    """Whether an entry has a file of its own or not, its names are found, once."""
    log.source(9, [name(9)], compact={n: [name(n)] for n in range(9)})
    log.source(10, [name(10)])
    assert names(checkpoint.files(-1, 10)) == [name(n) for n in range(11)]
    assert names(checkpoint.files(3, 5)) == [name(4), name(5)]
    assert names(checkpoint.files(8, 9)) == [name(9)]


def test_all_names_of_the_log(log, checkpoint):
    """Also of an entry for which there is no batch yet; checksums have none."""
    assert checkpoint.names() == set()
    log.source(9, [name(9)], compact={n: [name(n)] for n in range(9)})
    log.source(10, [name(10)])
    assert checkpoint.names() == {name(n) for n in range(11)}


def test_only_commits_count(log, checkpoint):
    """A batch with offsets and no commit is not committed; checksums are no batches."""
    for batch in range(12):
        log.offset(batch, batch)
        log.commit(batch) if batch < 11 else None
    assert checkpoint.committed == 10


def test_a_missing_entry_is_an_error(log, checkpoint):
    """Rather stop than take a batch for smaller than it is."""
    log.source(0, [name(0)])
    with pytest.raises(Broken, match="entry 1 is missing"):
        checkpoint.files(-1, 1)


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}", "v1", 'v1\n{}\n{"logOff'])
def test_damaged_offsets_are_an_error(log, checkpoint, text):
    """Cut short by a power cut, or written by a Spark that we do not know."""
    log.offset(0, 0)
    (log.path / "offsets" / "0").write_text(text)
    with pytest.raises(Broken, match=r"offsets/0"):
        checkpoint.offset(0)


def test_a_log_that_a_power_cut_has_emptied(log, checkpoint):
    """Whoever looks for files of another directory is told what to do, too."""
    log.source(0, [name(0)])
    (log.path / "sources" / "0" / "0").write_text("")
    with pytest.raises(Broken, match=rf"0: cut short; remove {log.path}$"):
        checkpoint.directories()


def test_a_foreign_file_is_an_error(log, checkpoint):
    """Without lsns in its name a file's events can not be counted."""
    log.source(0, ["events-mine.parquet"])
    with pytest.raises(Broken, match=r"events-mine\.parquet"):
        checkpoint.files(-1, 0)


def test_sync_reaches_all_that_a_batch_rests_on(log):
    """Offsets, commit and source entries, their checksums and folders."""
    synced: set[str] = set()

    class Watching(Lake):
        def open(self, path: Any) -> Any:
            synced.add(str(path.relative_to(log.path)))
            return super().open(path)

        def sync_directory(self, path: Any) -> None:
            synced.add(f"{path.relative_to(log.path)}/")

    log.source(4, [name(4)])
    log.offset(3, 4)
    log.commit(3)
    Checkpoint(log.path, Watching()).sync(range(3, 4), range(4, 5))
    assert synced == {
        *("offsets/3", "offsets/.3.crc", "commits/3", "commits/.3.crc"),
        *("sources/0/4", "sources/0/.4.crc"),
        *("./", "offsets/", "commits/", "sources/0/"),
    }


def test_a_retired_checkpoint_is_gone(log, checkpoint):
    """Nothing is left that Spark could take for a query, and what a crash left goes."""
    log.source(0, [name(0)])
    log.offset(0, 0)
    assert checkpoint.log_bytes() > 0
    aside = log.path.with_name(".events.old")
    aside.mkdir()
    (aside / "half").touch()
    checkpoint.retire()
    assert list(log.path.parent.iterdir()) == []
    assert checkpoint.log_bytes() == 0
    checkpoint.retire()


@pytest.fixture
def spark(monkeypatch) -> Any:
    """A session whose executors have so many cores now, and what it was started with."""

    def made(cores: int, **more: Any) -> Any:
        given = {f"spark.{key.replace('_', '.')}": one for key, one in more.items()}
        monkeypatch.setattr(query, "settings_of", lambda _: given)
        return SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=cores))

    return made


@pytest.fixture
def plan(tmp_path) -> Plan:
    """Of one file that would give work to nine."""
    name = file_name("gw", A, 1, 9)
    with (tmp_path / name).open("wb") as file:
        file.truncate(8 * query._TASK_BYTES)
    found = parse_file_name(name)
    assert found is not None
    return Plan([found])


def test_a_batch_has_tasks_by_its_size_and_by_the_cores_of_that_moment(
    tmp_path, plan, spark
):
    """Executors come and go while the job runs: each batch looks anew."""
    running = spark(2)
    assert query._tasks(running, plan, query._size_of(tmp_path, plan.files)) == 2
    running.sparkContext.defaultParallelism = 8
    assert query._tasks(running, plan, query._size_of(tmp_path, plan.files)) == 8
    running.sparkContext.defaultParallelism = 32
    assert query._tasks(running, plan, query._size_of(tmp_path, plan.files)) == 9


@pytest.mark.parametrize(
    ("given", "tasks"),
    [
        ({}, 9),
        ({"dynamicAllocation_maxExecutors": "3"}, 3),
        ({"dynamicAllocation_maxExecutors": "3", "executor_cores": "2"}, 6),
        ({"default_parallelism": "2"}, 2),
        ({"dynamicAllocation_enabled": "false"}, 2),
    ],
)
def test_executors_that_are_started_by_tasks_that_wait_get_some(
    tmp_path, plan, spark, given, tasks
):
    """With dynamic allocation there may be none, and Spark says two cores: two tasks would
    never be more.  What somebody has set counts."""
    running = spark(2, **{"dynamicAllocation_enabled": "true", **given})
    assert query._tasks(running, plan, query._size_of(tmp_path, plan.files)) == tasks


def query_of(sink: Any, checkpoint: Checkpoint, spool: Path) -> query.Query:
    asked: Any = None
    return query.Query(
        *(asked, sink, checkpoint, spool),
        stream=asked, made=asked, limit=asked, trigger=1.0,
    )  # fmt: skip


def test_no_batch_is_in_the_sink_once_the_query_is_stopped(logs):
    """Spark's end interrupts its own thread, not the sink's: what that has begun is over when
    `stop` returns, and what Spark had sent does not begin.
    """
    begun, end = threading.Event(), threading.Event()
    done: list[int] = []

    class Sink:
        ledger, busy = Ledger(), False

        def __call__(self, rows: Any, batch: int) -> None:
            begun.set()
            end.wait(30)
            done.append(batch)
            self.busy = False

    sink = Sink()
    made = query_of(sink, Checkpoint(logs("events").path, Lake()), Path("/d/spool"))
    batch = threading.Thread(target=made._batches, args=(None, 1))

    class Running:
        isActive = False  # noqa: N815 - as Spark has it

        def stop(self) -> None:
            batch.start()
            begun.wait(30)

    batches = made._batches
    made._running = Running()  # type: ignore[assignment]
    made._batches = SimpleNamespace(end=lambda: None)  # type: ignore[assignment]
    threading.Timer(0.2, end.set).start()
    made.stop()
    assert done == [1]
    batches.end()
    with pytest.raises(RuntimeError, match="is stopped"):
        batches(None, 2)  # type: ignore[arg-type]
    assert done == [1]


@pytest.mark.parametrize(("spool", "begins_anew"), [("/d/spool", False), ("/e", True)])
def test_a_query_of_another_directory_begins_anew(
    logs, monkeypatch, spool, begins_anew
):
    """A data_dir that was copied or moved: Spark would look for files where they were."""
    log = logs("events")
    log.begin()
    log.source(0, ["a.parquet"])
    log.offset(0, 0)
    checkpoint = Checkpoint(log.path, Lake())
    sink: Any = SimpleNamespace(ledger=Ledger(), recover=lambda: None)
    made = query_of(sink, checkpoint, Path(spool))
    monkeypatch.setattr(query.Query, "_begin", lambda self: None)
    made.start(available_now=True)
    assert (checkpoint.query is None) == begins_anew
