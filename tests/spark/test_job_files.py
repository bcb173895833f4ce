"""Files that the job can not read, that vanish, or that come again."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from gateway.spark import job
from gateway.spark.commit.ledger import Hole
from gateway.spark.files.incomplete import IncompleteBatches
from gateway.spark.run import query
from gateway.store.objects.bucket import BucketError
from played_spark import PowerCut

pytestmark = pytest.mark.spark


#: When the events of some files came, in microseconds.
AT = 1_772_366_400_000_000


def say_in_footer(path: Path, was: bytes, now: bytes) -> None:
    """Change what a file's footer says, behind the rows."""
    whole = path.read_bytes()
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    assert was in whole[begin:]
    path.write_bytes(whole[:begin] + whole[begin:].replace(was, now))


def cut_short(path: Path) -> bytes:
    """Lose the second half of a file; returns what it was."""
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return whole


def test_files_that_can_not_be_read_move_aside(run_once, spool, config, lake_events):
    """Cut short, a flipped bit, a name that is no text, empty, foreign: each goes aside with
    its reason, the ledger has the hole, and the rest goes on.  One whose footer says a year of
    which there is none has its rows.  Mended and put back, it is read."""
    whole = spool.events("gw", 1, 10)
    cut = spool.events("gw", 11, 10)
    kept = cut_short(cut)
    flipped = spool.put("gw", 21, [b'{"a": "%d"}' % n for n in range(2000)])
    content = bytearray(flipped.read_bytes())
    content[len(content) // 3] ^= 0x10
    flipped.write_bytes(content)
    no_text = spool.events("a", 1, 10)
    say_in_footer(no_text, b"listener", b"\xecistener")
    no_year = spool.put("c", 1, [b"{}"], received_at=AT)
    say_in_footer(no_year, AT.to_bytes(8, "little"), (1 << 62).to_bytes(8, "little"))
    empty = spool.events("b", 1, 10)
    empty.write_bytes(b"")
    foreign = spool.path / f"events-B-{1:020d}-{2:020d}.parquet"
    foreign.write_bytes(whole.read_bytes())
    run_once()
    lake = config.data_dir / "lake"
    there = {("gw", lsn) for lsn in range(1, 11)} | {("c", 1)}
    assert set(lake_events(lake)) == there
    aside = config.data_dir / "poison"
    moved = [cut, flipped, no_text, empty, foreign]
    assert {path.name for path in aside.glob("*.parquet")} == {
        path.name for path in moved
    }
    reason = json.loads((aside / f"{empty.name}.json").read_bytes())
    assert reason["why"] == "it is empty"
    ledger = json.loads((lake / ".gateway" / "events.json").read_bytes())
    assert {(hole["node"], hole["first"]) for hole in ledger["holes"]} == {
        ("gw", 11),
        ("gw", 21),
        ("a", 1),
        ("b", 1),
    }
    assert spool.names() == []

    cut.write_bytes(kept)
    run_once()
    assert set(lake_events(lake)) == there | {("gw", lsn) for lsn in range(11, 21)}
    ledger = json.loads((lake / ".gateway" / "events.json").read_bytes())
    assert len(ledger["holes"]) == 3


def test_a_vanished_file_stops_the_job(run_once, spool, lake_events, monkeypatch):
    """Nobody has it: the job says so, and goes on once it is back."""
    from gateway.spark.commit import parquet

    path = spool.events("gw", 1, 10)
    spool.events("gw", 11, 10)
    content = path.read_bytes()
    taken = parquet.ParquetSink._take

    def vanish(self: Any, rows: Any, batch: int) -> None:
        path.unlink()
        taken(self, rows, batch)

    monkeypatch.setattr(parquet.ParquetSink, "_take", vanish)
    with pytest.raises(job.Failed):
        run_once()
    monkeypatch.undo()
    assert lake_events() == Counter()
    path.write_bytes(content)
    run_once()
    assert lake_events() == spool.produced


def test_files_of_a_later_form_stop_the_job(run_once, spool, make_envelope):
    """What they hold beyond our columns would be dropped without a word."""
    table = make_envelope("gw", 1, [b"{}"])
    later = {**(table.schema.metadata or {}), b"gateway.schema": b"2"}
    path = spool.publish(table.replace_schema_metadata(later))
    with pytest.raises(job.Failed, match=f"{path.name} has form 2"):
        run_once()
    assert path.exists()


def test_a_batch_comes_again_with_files_that_are_whole():
    """Of which only the footers were here, as a cluster's tasks read the bucket.  What can not
    be fetched then is not taken for damaged: the job ends, and the next start tries again."""
    examined: list[object] = []
    footers = ["one"]

    def complete(files: object) -> list[str]:
        found, footers[:] = [*footers], []
        return found

    inbox = SimpleNamespace(complete=complete, mend=lambda files: [])
    incomplete = incomplete_of(
        ["one"], inbox, lambda files: examined.append(files) or []
    )
    assert incomplete.move_aside(OSError("no such object"))
    assert not incomplete.move_aside(OSError("no such object"))
    assert examined == [["one"], ["one"]]

    def away(files: object) -> list[str]:
        raise BucketError("503 SlowDown")

    inbox.complete = away
    assert not incomplete.move_aside(OSError("no such object"))
    assert len(examined) == 2


def test_a_damaged_copy_does_not_take_the_place_of_its_object():
    """What is here is examined before objects that are other ones are put back from it."""
    asked: list[str] = []
    damaged = [Hole("gw", 1, 5, "one", "damaged", 0.0)]

    def examine(files: object) -> list[Hole]:
        asked.append("examine")
        found, damaged[:] = [*damaged], []
        return found

    def mend(files: list[str]) -> list[str]:
        asked.append("mend")
        return files

    inbox = SimpleNamespace(complete=lambda files: [], mend=mend)
    incomplete = incomplete_of(["one", "two"], inbox, examine)
    assert incomplete.move_aside(OSError("no such object"))
    assert asked == ["examine"]
    assert incomplete.move_aside(OSError("no such object"))
    assert asked == ["examine", "examine", "mend"]


@pytest.mark.lowest
def test_a_path_that_spark_can_not_read_is_refused(spark, config, tmp_path):
    """Before anything is started."""
    config.data_dir = tmp_path / "a[b]"
    with pytest.raises(job.Failed, match="can not read a path"):
        job.run(config, spark, available_now=True)


@pytest.mark.long
def test_killed_between_a_file_that_is_moved_aside_and_a_new_checkpoint(
    run_once, spool, config, lake_events, monkeypatch
):
    """The next start does not wait for the file that the old checkpoint still names."""
    spool.events("gw", 1, 10)
    cut = spool.events("gw", 11, 10)
    kept = cut_short(cut)

    def kill(_: Any) -> None:
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(query.Query, "renew", kill)
        with pytest.raises(PowerCut):
            run_once()
    assert (config.data_dir / "poison" / cut.name).exists()
    run_once()
    assert set(lake_events()) == {("gw", lsn) for lsn in range(1, 11)}
    assert spool.names() == []
    cut.write_bytes(kept)
    run_once()
    assert lake_events() == spool.produced


def incomplete_of(
    files: list[str], inbox: Any, examine: Callable[[Any], Any]
) -> IncompleteBatches:
    """Of a batch of these files, of which *examine* moves aside what is damaged."""
    poison: Any = SimpleNamespace(sweep=list, examine=examine, aside="poison")
    sink: Any = SimpleNamespace(batch_files=files)
    health: Any = SimpleNamespace(say=lambda **_: None)
    return IncompleteBatches(Path(), poison, Mock(), Mock(), sink, inbox, health)
