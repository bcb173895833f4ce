"""A job of somebody else's that reads what a gateway published: each event once."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlines import ROOT, eventually
from fenced import blocks
from gateway import config
from gateway.cli import main
from gateway.spark.consumer import consume
from gateway.spark.own import Context
from gateway.store.readers.consumers import Consumers, marks_of
from gateway.store.spool.expiry import Expiry
from gateway.store.system.disk import RealDisk
from gateway_testkit.daemon import listener
from incarnations import A, B
from programs import running
from spools import SpoolFolder

pytestmark = pytest.mark.spark

RECIPE = ROOT / "examples" / "recipes" / "to_folders.py"


@pytest.fixture
def file(tmp_path) -> Path:
    """The configuration of a gateway without a job of ours."""
    settings = {
        "node": "gw",
        "data_dir": str(tmp_path / "data"),
        "listeners": [listener("beats", "lumberjack")],
        "spool": {"after": "keep", "consumers": ["mine"]},
    }
    path = tmp_path / "gateway.yaml"
    path.write_text(json.dumps(settings))
    return path


@pytest.fixture
def archive(tmp_path) -> SpoolFolder:
    """Of that gateway."""
    folder = SpoolFolder(tmp_path / "data" / "archive")
    folder.path.mkdir(parents=True)
    return folder


def expire(file: Path, archive: SpoolFolder) -> Consumers:
    """As the gateway does, when every file's time is over."""
    settings = config.load(file)
    consumers = Consumers(
        lambda name: marks_of(settings, name), settings.spool.consumers
    )
    Expiry(archive.path, RealDisk(), -1.0, None, lambda: None, consumers=consumers).run(
        0
    )
    return consumers


@pytest.fixture
def counted(table_rows, tmp_path) -> Callable[[], Counter[tuple[str, int]]]:
    """How often each event is in what the job wrote."""
    return lambda: Counter(
        (row["node"], row["lsn"])
        for row in table_rows(tmp_path / "mine", "node", "lsn")
    )


def test_each_event_once_though_a_batch_comes_again(
    spark, file, archive, tmp_path, counted
):
    """The job ends after its work and before Spark knows of that; files of what is
    committed go meanwhile, and those that it asks for again are there.
    """
    fails = iter([False, True, False, False])

    told: list[Context] = []

    def work(events: Any, context: Context) -> None:
        told.append(context)
        assert "file_name" not in events.columns
        assert events.count() == context.rows
        path = f"{tmp_path}/mine/batch={context.batch}"
        events.write.mode("overwrite").parquet(path)
        if next(fails):
            raise RuntimeError("killed")

    def run() -> Any:
        query = consume(spark, str(file), "mine", work, max_files=2)
        query = query.option("checkpointLocation", f"{tmp_path}/checkpoint")
        running = query.trigger(availableNow=True).start()
        running.processAllAvailable()
        running.stop()

    for first in (1, 11, 21, 31):
        archive.events("gw", first, 10)
    with pytest.raises(Exception, match="killed"):
        run()
    behind = expire(file, archive).behind["mine"]
    assert len(list(archive.path.iterdir())) == 2
    assert (behind.files, behind.missed_files) == (2, 0)
    run()
    assert counted() == archive.produced
    assert len(list(archive.path.iterdir())) == 2
    archive.events("gw", 41, 10)
    run()
    assert counted() == archive.produced
    assert expire(file, archive).behind["mine"].files == 0
    assert [int(one.stem[-20:]) for one in archive.path.iterdir()] == [50]
    batches = [(0, False, 20), (1, False, 40), (1, True, 40), (2, False, 50)]
    assert [(c.batch, c.repeated, c.events["gw"][-1][1]) for c in told] == batches
    assert [*told[0].names["gw"].values()] == [[(1, 20)]]


def test_a_query_without_our_package_says_what_it_has_committed(
    spark, file, archive, tmp_path, counted
):
    """The query of docs/consumers.md, as it stands but for its paths; and then, by
    `gateway spool done --checkpoint`, those files go, and no other.
    """
    archive.events("gw", 1, 10)
    archive.events("gw-2", 1, 5)
    _, query = blocks("docs/consumers.md", "python")
    text = query.text.replace("/var/lib/gateway/archive", str(archive.path))
    text = text.replace("/srv/mine-checkpoint", f"{tmp_path}/checkpoint")
    exec(text.replace("/srv/mine", f"{tmp_path}/mine"), {"spark": spark})
    assert counted() == archive.produced
    late = archive.events("gw", 11, 10)
    said = ["--config", str(file), "mine", "--checkpoint", f"{tmp_path}/checkpoint"]
    assert main(["spool", "done", *said]) == 0
    expire(file, archive)
    assert list(archive.path.iterdir()) == [late]


@pytest.mark.long
def test_what_a_rebuilt_node_brings_stays_until_it_is_read(
    spark, file, archive, tmp_path, counted
):
    """Its lsns begin at 1 again, and the query had these of its earlier life."""

    def run() -> None:
        query = consume(
            spark,
            str(file),
            "mine",
            lambda events, context: events.write.parquet(
                f"{tmp_path}/mine/batch={context.batch}"
            ),
        )
        query = query.option("checkpointLocation", f"{tmp_path}/checkpoint")
        query.trigger(availableNow=True).start().awaitTermination()

    archive.events("edge", 1, 10, incarnation=A)
    run()
    new = archive.events("edge", 1, 5, incarnation=B)
    newer = archive.events("edge", 6, 3, incarnation=B)
    assert expire(file, archive).behind["mine"].held_files == 2
    run()
    assert counted() == archive.produced
    assert expire(file, archive).behind["mine"].files == 0
    assert sorted(archive.path.iterdir()) == [new, newer]
    last = archive.events("edge", 9, 1, incarnation=B)
    run()
    assert expire(file, archive).behind["mine"].files == 0
    assert list(archive.path.iterdir()) == [last]


def test_who_is_not_named_is_refused(file):
    """Nobody would keep its files."""
    with pytest.raises(ValueError, match="other is not in"):
        consume(None, str(file), "other", lambda *_: None)  # type: ignore[arg-type]


@pytest.fixture
def start(file, tmp_path) -> Iterator[Callable[[], Any]]:
    """Starts the recipe; whatever is left of it at the end is killed."""
    words = (sys.executable, RECIPE, file, "mine", tmp_path / "mine")
    with running() as start, (tmp_path / "said").open("a") as errors:
        yield lambda: start(*words, stderr=errors)


@pytest.mark.slow
@pytest.mark.long
def test_the_recipe_loses_and_doubles_nothing_when_it_is_killed(
    start, file, archive, counted, tmp_path
):
    """With Java and all, wherever it is just then, while a gateway publishes and removes."""
    job: subprocess.Popen[str] = start()
    archive.events("gw", 1, 10)
    done = tmp_path / "mine"
    eventually((done / "batch=0").exists, "the first batch", seconds=120)
    for first in range(11, 211, 10):
        archive.events("gw", first, 10)
        expire(file, archive)
    eventually((done / "batch=1").exists, "another batch", seconds=60)
    job.kill()
    job.wait()
    archive.events("gw", 211, 10)
    expire(file, archive)
    start()
    eventually(
        lambda: expire(file, archive).behind["mine"].files == 0,
        "all of it read",
        seconds=120,
    )
    assert counted() == archive.produced
    assert expire(file, archive).behind["mine"].missed_files == 0
