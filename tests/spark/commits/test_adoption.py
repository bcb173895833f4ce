"""Tables that begin with the rows of the Parquet folders that a data directory had before."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from format_tables import MARKS, SIZE, World
from gateway.audit import audit
from gateway.spark import job
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken
from gateway.spark.later.adopt import check_removed
from gateway.store.directories import Directories
from gateway.store.readers.lake import INTERNAL

pytestmark = MARKS


@pytest.fixture
def old(world) -> Path:
    """A lake of Parquet folders with some of the spool's events, moved out of the way."""
    config, sink = world.config, world.config.spark.sink
    world.spool.put("gw", 31, [b'{"message": "m"}', b"{"], flaws={1: "invalid-json"})
    config.spark.sink = "parquet"
    job.run(config, world.spark, available_now=True)
    assert audit(Directories.under(config.data_dir)).complete
    config.spark.sink = sink
    moved = config.data_dir / "lake.parquet"
    (config.data_dir / "lake").rename(moved)
    shutil.rmtree(config.data_dir / "checkpoint")
    (config.data_dir / "lake" / INTERNAL).mkdir(parents=True)
    return moved


def adopt(world: World, old: Path) -> list[str]:
    return list(world.kind.adopt(world.config, world.spark, Lake(), old))


@pytest.mark.lowest
def test_the_rows_go_along_and_the_job_goes_on(world, old):
    """Events, quarantine and counts, with the ledger: the audit is complete before the next
    start and after it, and nothing of it is done twice.  Rows can be deleted once the folders
    are gone, where they would stay."""
    said = adopt(world, old)
    assert [text.partition(": ")[2] for text in said] == [
        f"{3 * SIZE + 2} rows of events and quarantine",
        "1 rows of stats",
    ]
    assert audit(Directories.under(world.config.data_dir)).complete
    assert adopt(world, old) == []
    world.spool.events("gw", 33, SIZE)
    job.run(world.config, world.spark, available_now=True)
    world.check_complete()
    lake = world.config.data_dir / "lake"
    with pytest.raises(Broken, match=r"lake\.parquet.* remove it first"):
        check_removed(Lake(), lake)
    shutil.rmtree(old)
    check_removed(Lake(), lake)


def test_cut_off_between_the_two_tables_it_goes_on(world, old, monkeypatch):
    """Events that are committed do not come again."""
    table = type(world.events())
    append, left = table.append, [True]

    def once(*args: Any, **more: Any) -> None:
        if not left:
            raise OSError("no room")
        left.pop()
        append(*args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(table, "append", once)
        with pytest.raises(OSError, match="no room"):
            adopt(world, old)
    assert len(adopt(world, old)) == 1
    world.check_complete()


def test_what_can_not_go_along_is_named(world, old):
    """Tables that have begun, folders that are none of Parquet, and VARIANT in place of text."""
    ledger = old / INTERNAL / "events.json"
    ledger.write_text(
        ledger.read_text().replace('"body": "string"', '"body": "variant"')
    )
    with pytest.raises(Broken, match="column body is VARIANT"):
        adopt(world, old)
    with pytest.raises(Broken, match="is no lake"):
        adopt(world, old / "events")
    world.spool.events("gw", 33, SIZE)
    world.run(1)
    ledger.write_text(
        ledger.read_text().replace('"body": "variant"', '"body": "string"')
    )
    with pytest.raises(Broken, match="has rows of its own"):
        adopt(world, old)
