"""Events that somebody wants deleted go everywhere, once, under readers and kills."""

import dataclasses
import hashlib
import itertools
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import script
from deadlines import run
from gateway.audit import audit
from gateway.audit.chain import verify_chains
from gateway.audit.payloads import compare_payloads
from gateway.cli import main
from gateway.config import load
from gateway.event import SCHEMA
from gateway.feeds import columns
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger, Ranges
from gateway.spark.commit.partition import Busy, alone
from gateway.spark.jvm import java
from gateway.spark.later import deletion
from gateway.spark.later.compact import compact
from gateway.spark.later.deleted_ranges import DeletedRanges
from gateway.spark.later.deletion import Asked, Found, delete, write_down
from gateway.spark.later.erasure import Locations, as_sql, carry_out
from gateway.spark.later.redact import redacted
from gateway.store import digests
from gateway.store.digests import (
    EVENTS_KEY,
    PREVIOUS_KEY,
    EventsDigest,
    link_said,
    metadata_of,
)
from gateway.store.directories import Directories
from gateway.store.names import Life, SpoolFile, file_name, kept_name
from gateway.store.node.catalog import Catalog
from gateway.store.node.incarnation import Incarnation
from gateway.store.objects.bucket import StoredObject
from gateway.store.readers.deleted import (
    Deletion,
    Rewritten,
    counts_of,
    deletions,
    digests_before,
    unfinished,
)
from gateway.store.spool.parquet import open_writer
from gateway.store.system.disk import RealDisk
from incarnations import A, B
from played_spark import PowerCut
from spools import envelope
from watched_lake import Steady

SIZE = 10
MINUTE = timedelta(minutes=1)
AT = 1_772_366_400_000_000
DAY = 86_400_000_000
ASKED = Asked("uid = 'ann' AND lsn > 7", "request 4711")
WANTED = [3, 4, 15, 31]


def wanted(*lsns: int) -> Ranges:
    found = Ranges()
    for lsn in lsns:
        found.add(Life("gw", A), lsn, lsn)
    return found


def put_rows(lake: Path, first: int, flawed: tuple[int, ...] = ()) -> None:
    """A batch of ten, of the day `first // 20`, with its counts."""
    day = first // 20
    at = datetime.fromtimestamp((AT + day * DAY) / 1e6, UTC)
    for table in ("events", "quarantine"):
        mine = [
            lsn
            for lsn in range(first, first + SIZE)
            if (lsn in flawed) is (table == "quarantine")
        ]
        if not mine:
            continue
        texts = [f'{{"message": "line {lsn}"}}' for lsn in mine]
        rows = {
            "node": ["gw"] * len(mine),
            "incarnation": [A] * len(mine),
            "lsn": mine,
            "received_at": pa.array([at] * len(mine), pa.timestamp("us", tz="UTC")),
            "listener": ["beats"] * len(mine),
            "channel": pa.array([None] * len(mine), pa.string()),
            "payload_bytes": pa.array([len(text) for text in texts], pa.int32()),
            "body": texts,
            "flaw": pa.array(
                ["odd" if lsn in flawed else None for lsn in mine], pa.string()
            ),
            "misfits": pa.array([None] * len(mine), pa.string()),
        }
        folder = lake / table / "protocol=lumberjack" / f"date={at.date()}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(rows), folder / f"part-{first:010d}-0badcafe-0.parquet")
    counts = {
        "window_start": pa.array([at], pa.timestamp("us", tz="UTC")),
        "window_end": pa.array([at + MINUTE], pa.timestamp("us", tz="UTC")),
        "listener": ["beats"],
        "channel": pa.array([None], pa.string()),
        "events": [SIZE],
        "payload_bytes": [
            sum(len(f'{{"message": "line {n}"}}') for n in range(first, first + SIZE))
        ],
        "flawed": [len(flawed)],
    }
    folder = lake / "stats" / "protocol=lumberjack" / f"date={at.date()}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(counts), folder / f"part-{first:010d}-0badcafe-1.parquet")


def put_file(
    folder: Path, name: str, table: pa.Table, words: Mapping[bytes, Any]
) -> str:
    """A published file with its digests; its link."""
    folder.mkdir(parents=True, exist_ok=True)
    digest = EventsDigest(table["lsn"][0].as_py())
    with (folder / name).open("wb") as file, open_writer(file, "zstd") as writer:
        for begin in range(0, len(table), 4):
            part = table.slice(begin, 4)
            digest.add(part["payload"], part["received_at"])
            writer.write_table(part, row_group_size=4)
        found = {EVENTS_KEY: digest.hexdigest(), b"gateway.incarnation": A}
        writer.add_key_value_metadata({**found, **words})
    return link_said(metadata_of(folder / name))


def name_of(first: int) -> str:
    return file_name("gw", A, first, first + SIZE - 1)


@pytest.fixture
def locations(tmp_path) -> Locations:
    """Four batches in tables and archive, of two days; what a stream keeps of the first."""
    lake, link = tmp_path / "lake", "0" * 64
    committed = Ranges()
    for first in range(1, 4 * SIZE, SIZE):
        flawed = (first + 2,) if first == 1 else ()
        put_rows(lake, first, flawed)
        texts = [b'{"message": "line %d"}' % lsn for lsn in range(first, first + SIZE)]
        table = envelope("gw", first, texts, received_at=AT + first // 20 * DAY)
        words = {PREVIOUS_KEY: link}
        link = put_file(tmp_path / "archive", name_of(first), table, words)
        if first == 1:
            kept = tmp_path / "retained" / "gw"
            put_file(kept, kept_name(1, SIZE, 0), table, {})
        committed.add(Life("gw", A), first, first + SIZE - 1)
    (lake / ".gateway").mkdir()
    ledger = Ledger(committed=committed, sequence=1000)
    ledger.save(Lake(), lake / ".gateway" / "events.json")
    return Locations(
        lake,
        tmp_path / "spool",
        tmp_path / "archive",
        tmp_path / "retained",
        tmp_path / "poison",
        tmp_path / "journal",
    )


def seen(lake: Path) -> Counter[int]:
    found: Counter[int] = Counter()
    for table in ("events", "quarantine"):
        rows = ds.dataset(lake / table, partitioning="hive", format="parquet")
        if rows.files:  # all rows of one may have gone
            found.update(rows.to_table(columns=["lsn"])["lsn"].to_pylist())
    return found


def counted(lake: Path) -> tuple[int, int, int]:
    rows = ds.dataset(lake / "stats", partitioning="hive", format="parquet").to_table()
    return tuple(
        sum(rows[name].to_pylist()) for name in ("events", "payload_bytes", "flawed")
    )  # type: ignore[return-value]


def is_counted_right(lake: Path) -> bool:
    """Whether the counts are those of the rows that are there."""
    found = [0, 0, 0]
    for table in ("events", "quarantine"):
        found_files = ds.dataset(lake / table, format="parquet")
        if not found_files.files:
            continue
        rows = found_files.to_table()
        found[0] += rows.num_rows
        found[1] += sum(rows["payload_bytes"].to_pylist())
        found[2] += rows.num_rows - rows["flaw"].null_count
    return counted(lake) == tuple(found)


def bytes_below(folder: Path) -> bytes:
    """What files say, unpacked."""
    found = [
        json.dumps(pq.ParquetFile(path).read().to_pylist(), default=str)
        for path in sorted(folder.rglob("*.parquet"))
    ]
    return "".join(found).encode()


def check_gone(locations: Locations, root: Path, lsns: list[int]) -> None:
    """From tables, counts, archive and what streams keep; and the audit says complete."""
    lake = locations.lake
    assert seen(lake) == Counter({n: 1 for n in range(1, 41) if n not in lsns})
    assert is_counted_right(lake)
    for folder in (lake, locations.archive, locations.retained):
        said = bytes_below(folder)
        for lsn in lsns:
            assert f'"line {lsn}"'.encode() not in said.replace(b"\\", b""), lsn
    report = audit(Directories.under(root))
    assert report.complete, report
    assert report.count("deleted") == len(lsns)
    assert compare_payloads(Directories.under(root)).problems == []
    assert verify_chains(Directories.under(root), pause=lambda _: None).whole


def test_gone_everywhere(locations, tmp_path, capsys):
    """And who asked for it, when, why and what is written down, but not whose it was; a
    second call finds nothing to finish."""
    record = write_down(locations.lake, Lake(), ASKED, Found(wanted(*WANTED)), MINUTE)
    assert [one.id for one in unfinished(locations.lake)] == [record.id]
    done = carry_out(locations, Lake(), record)
    assert done.done
    assert unfinished(locations.lake) == []
    check_gone(locations, tmp_path, WANTED)
    assert main(["audit", "--data-dir", str(tmp_path), "--content", "--chain"]) == 0
    said = capsys.readouterr().out
    assert (
        "complete: 36 events, each exactly once; 4 deleted on purpose (request 4711)"
        in said
    )
    [written] = deletions(locations.lake)
    assert (written.reason, written.where) == ("request 4711", "uid = ? AND lsn > ?")
    hashed = hashlib.sha256(f"{written.salt}{ASKED.where}".encode()).hexdigest()
    assert written.where_hash == hashed
    assert (
        "ann"
        not in (locations.lake / ".gateway/deleted" / f"{written.id}.json").read_text()
    )
    assert "@" in written.who


def test_files_of_the_archive_keep_their_place(locations):
    """Names, lsns, channels and the lengths of payloads stay, as readers of streams go by
    them; sender and contents do not. A subscriber of `events` gets no such row."""
    path = locations.archive / name_of(1)
    before = pq.read_table(path).to_pylist()
    path.chmod(0o640)
    record = write_down(locations.lake, Lake(), ASKED, Found(wanted(3, 4)), MINUTE)
    carry_out(locations, Lake(), record)
    assert path.stat().st_mode & 0o777 == 0o640, "who could read it can"
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        assert file.num_row_groups == 3
        table = file.read()
    assert table.schema.equals(SCHEMA)
    rows = table.to_pylist()
    for was, now in zip(before, rows, strict=True):
        if was["lsn"] not in (3, 4):
            assert now == was
            continue
        assert now["payload"] == bytes(len(was["payload"]))
        assert (now["session"], now["peer"], now["attributes"]) == ("", "", None)
        assert now["flaw"] == "deleted"
        for name in ("lsn", "received_at", "channel", "listener", "protocol", "seq"):
            assert now[name] == was[name]
    [batch] = table.combine_chunks().to_batches()
    assert columns.kept(batch)["lsn"].to_pylist() == [1, 2, *range(5, 11)]
    kept = [path.name for path in (locations.retained / "gw").iterdir()]
    assert kept == [kept_name(1, SIZE, 1)]
    assert (
        redacted(path, lambda rows: [True] * 0 or rows["lsn"].to_numpy() == 3) is None
    )


def test_what_a_stream_keeps_of_another_incarnation_stays(locations):
    """What is retained has the lsns of its own directory: of those that another disk of this
    node gave nothing is deleted here.
    """
    [kept] = (locations.retained / "gw").iterdir()
    before = kept.read_bytes()
    (locations.journal / "gw").mkdir(parents=True)
    catalog = Catalog(locations.journal / "gw", RealDisk())
    catalog.put(Incarnation(B, 4, 0, (A,), begins=(1,)))
    catalog.close()
    record = write_down(locations.lake, Lake(), ASKED, Found(wanted(*WANTED)), MINUTE)
    carry_out(locations, Lake(), record)
    [kept] = (locations.retained / "gw").iterdir()
    assert kept.read_bytes() != before
    flaws = pq.read_table(kept)["flaw"].to_pylist()
    assert flaws[2:4] == ["deleted", None], "lsn 4 is another event here"


@pytest.mark.parametrize("gone", [2, 3, 4])
def test_offsets_of_a_stream_stay(tmp_path, gone):
    """A Pravega segment has as many bytes as before, zeros where the event was, and all others
    are where they were; in a row that is no whole events, too."""
    from gateway.protocols.pravega.runs import RowGroup

    texts = [b"first", b"half an ev", b"third", b""]
    table = envelope(
        *("gw", 1, texts), flaws={1: "unframed"}, protocol="pravega", channel="s/t/0"
    )
    table = table.set_column(10, "seq", pa.array([0, 13, 23, 36], pa.int64()))
    put_file(tmp_path, name_of(1), table.cast(SCHEMA), {})

    def segment() -> bytes:
        with pq.ParquetFile(tmp_path / name_of(1)) as file:
            run = RowGroup(file, 0, "pravega").run("s/t/0")
        return bytes(run.read(0, 1000, 1))

    before = segment()
    assert before[8:23] == b"firsthalf an ev"
    done = redacted(tmp_path / name_of(1), lambda rows: rows["lsn"].to_numpy() == gone)
    assert done is not None
    (tmp_path / name_of(1)).write_bytes(done[0])
    begin, text = {2: (13, texts[1]), 3: (31, texts[2]), 4: (44, b"")}[gone]
    end = begin + len(text)
    assert segment() == before[:begin] + bytes(len(text)) + before[end:]


def test_a_footer_of_before_is_not_believed(locations, tmp_path):
    """Who has read it reads the file that took the place of its own."""
    from gateway.store.finder import Finder

    finder = Finder(Directories.under(tmp_path), "gw")
    finder.refresh()
    file = finder.file(1)
    assert file is not None
    with finder.open(file) as opened:
        footer = opened.metadata
    carry_out(
        locations,
        Lake(),
        write_down(locations.lake, Lake(), ASKED, Found(wanted(3)), MINUTE),
    )
    with finder.open(file, footer) as opened:
        assert opened.metadata.serialized_size != footer.serialized_size
        assert opened.read()["flaw"].to_pylist()[2] == "deleted"


POINTS = (
    *("staged", "replaced", "removed", "counted", "link written down", "redacted"),
    "done",
)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("times", [1, 2])
def test_cut_off_anywhere(locations, tmp_path, point, times):
    """Each row is there once or is one that goes, the audit is complete at once, and the next
    call goes on, also where the day was compacted in between."""
    record = write_down(locations.lake, Lake(), ASKED, Found(wanted(*WANTED)), MINUTE)
    left = [times]

    def cut(name: str) -> None:
        left[0] -= name == point
        if not left[0]:
            raise PowerCut

    try:
        carry_out(locations, Lake(), record, point=cut)
    except PowerCut:
        left[0] = -1
    assert left[0] == -1 or times == 2
    now = seen(locations.lake)
    assert set(now.values()) == {1}
    assert set(range(1, 41)) - now.keys() <= set(WANTED)
    assert audit(Directories.under(tmp_path)).complete
    list(compact(locations.lake, Lake(), before=date(2027, 1, 1)))
    for one in unfinished(locations.lake):
        carry_out(locations, Lake(), one)
    check_gone(locations, tmp_path, WANTED)
    assert not counts_of(locations.lake, record.id).exists()
    assert not any((locations.lake / ".gateway" / "compact").rglob("*.parquet"))


def test_a_whole_day_may_go(locations, tmp_path):
    """No file is left of it, and its counts are nothing."""
    lsns = list(range(1, 20))
    record = write_down(locations.lake, Lake(), ASKED, Found(wanted(*lsns)), MINUTE)
    carry_out(locations, Lake(), record)
    check_gone(locations, tmp_path, lsns)


def test_a_second_one_of_the_same_files(locations, tmp_path):
    """The chain is still that of the files as they were published."""
    for lsns in (WANTED[:2], WANTED[2:], [5]):
        record = write_down(locations.lake, Lake(), ASKED, Found(wanted(*lsns)), MINUTE)
        carry_out(locations, Lake(), record)
    check_gone(locations, tmp_path, [*WANTED, 5])


def test_somebody_else_is_at_it(locations):
    """Nothing is done then, and what was written down waits."""
    record = write_down(locations.lake, Lake(), ASKED, Found(wanted(3)), MINUTE)
    with alone(locations.lake), pytest.raises(Busy, match="being rewritten already"):
        carry_out(locations, Lake(), record)
    assert len(seen(locations.lake)) == 40
    assert unfinished(locations.lake) == [record]


def test_what_waits_in_the_spool_is_not_done(locations):
    """Its file comes to the archive later: the next call has that, too."""
    locations.spool.mkdir()
    (locations.archive / name_of(1)).rename(locations.spool / name_of(1))
    record = write_down(locations.lake, Lake(), ASKED, Found(wanted(3)), MINUTE)
    assert not carry_out(locations, Lake(), record).done
    (locations.spool / name_of(1)).rename(locations.archive / name_of(1))
    [left] = unfinished(locations.lake)
    assert carry_out(locations, Lake(), left).done
    assert b'"line 3"' not in bytes_below(locations.archive).replace(b"\\", b"")


def test_a_file_that_comes_again_is_redacted_again(locations, tmp_path):
    """A hub that has forgotten what it has is sent all of it once more, as it was.  The tables
    have it, so it goes to the archive: the deletion is not finished then, before that.  One
    of another life has other events.
    """
    clear = {one.name: one.read_bytes() for one in locations.archive.iterdir()}
    record = write_down(locations.lake, Lake(), ASKED, Found(wanted(3, 31)), MINUTE)
    assert carry_out(locations, Lake(), record).done
    gone = DeletedRanges(locations.lake)

    def comes(first: int, by: str = A) -> list[Deletion]:
        gone.come_again(Lake(), [SpoolFile("gw", by, first, first + SIZE - 1)])
        return unfinished(locations.lake)

    assert comes(11) == []
    assert comes(31, by=B) == []
    [left] = comes(31)
    (locations.archive / name_of(31)).write_bytes(clear[name_of(31)])
    assert carry_out(locations, Lake(), left).done
    check_gone(locations, tmp_path, [3, 31])
    assert [one.id for one in comes(1)] == [record.id]


def test_what_came_again_and_waits_is_told(locations, settings_file, tmp_path):
    """Deleted events that a sender brought once more lie in clear until a job takes them."""
    config = load(settings_file(data_dir=tmp_path))
    clear = (locations.archive / name_of(31)).read_bytes()
    record = write_down(locations.lake, Lake(), ASKED, Found(wanted(3, 31)), MINUTE)
    [(text, _)] = delete(config, None, Lake(), None)
    assert "2 events deleted" in text
    [(text, _)] = delete(config, None, Lake(), None)
    assert text == "no deletion has been cut off"
    locations.spool.mkdir(exist_ok=True)
    (locations.spool / name_of(31)).write_bytes(clear)
    with pytest.raises(Busy, match="Of 1 deleted event what was sent lies in"):
        [*delete(config, None, Lake(), None)]
    (locations.archive / name_of(31)).rename(locations.spool / name_of(31))  # redacted
    assert [text for text, _ in delete(config, None, Lake(), None)] == [
        "no deletion has been cut off"
    ]
    assert [one.id for one in deletions(locations.lake)] == [record.id]


def test_a_batch_that_is_decided_and_not_in_place_comes_first(locations, tmp_path):
    """Its rows are in no table yet and will be: nothing is looked for, or deleted, before."""
    manifest = locations.lake / ".gateway" / "staging" / "events" / "7" / "manifest"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"moves": [["0", "events/protocol=rsio/date=x/part-0"]]}')
    record = write_down(locations.lake, Lake(), ASKED, Found(wanted(3)), MINUTE)
    with pytest.raises(Busy, match="is not finished: start gateway spark"):
        carry_out(locations, Lake(), record)
    config = SimpleNamespace(
        data_dir=tmp_path,
        spark=SimpleNamespace(sink="parquet", stats_window=60),
        spool=SimpleNamespace(bucket=None, folder="spool", s3=None),
        journal=SimpleNamespace(directory="journal"),
    )
    with pytest.raises(Busy, match="is not finished: start gateway spark"):
        list(delete(config, None, Lake(), ASKED))
    assert len(seen(locations.lake)) == 40
    manifest.unlink()
    assert carry_out(locations, Lake(), record).done


def test_rows_that_hold_a_place_are_not_meant():
    """What is redacted is not deleted again."""
    import sqlite3

    flaws = [None, "odd", "deleted", "deleted:unframed"]
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE t (flaw text)")
    db.executemany("INSERT INTO t VALUES (?)", [(flaw,) for flaw in flaws])

    def meant(*tables: str) -> list[str | None]:
        condition = Asked("1 = 1 OR 1 = 2", "", tables).condition
        return [flaw for [flaw] in db.execute(f"SELECT * FROM t WHERE {condition}")]

    assert meant("events", "quarantine") == [None, "odd"]
    assert meant("events") == [None]
    assert meant("quarantine") == ["odd"]


def test_links_lead_to_the_first_file_in_any_order():
    """Also where a deletion that was cut off has gone on after a later one."""
    empty = Deletion("", "asked", "", 0.0, "")
    found = [
        msgspec.structs.replace(empty, files={"f": [Rewritten(was, now)]})
        for was, now in (("b", "c"), ("a", "b"), ("c", "d"))
    ]
    for order in itertools.permutations(found):
        assert digests_before(order) == dict.fromkeys("bcd", "a")


def test_an_audit_of_the_chain_reads_deletions_once(locations, monkeypatch):
    """Not for each file of the archive, of which there may be a hundred thousand."""
    record = write_down(locations.lake, Lake(), ASKED, Found(wanted(3)), MINUTE)
    carry_out(locations, Lake(), record)
    read: list[Path] = []

    def counting(lake: Path) -> list[Deletion]:
        read.append(lake)
        return deletions(lake)

    monkeypatch.setattr("gateway.audit.chain.deletions", counting)
    [chain] = verify_chains(Directories.under(locations.lake.parent)).chains
    assert not chain.problems
    assert read == [locations.lake]


class Bucket:
    """A bucket in memory."""

    url = "s3://b/p"

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects

    def list(self, begin: str, after: str = "") -> Any:
        for name, data in sorted(self.objects.items()):
            if name.startswith(begin):
                yield StoredObject(name, len(data), 0.0)

    def read(self, name: str) -> bytes:
        return self.objects[name]

    def replace(self, name: str, data: bytes) -> None:
        self.objects[name] = data


def test_copies_in_a_bucket(locations):
    """The objects of its archive, and no others."""
    objects = {
        f"_archive/{p.name}": p.read_bytes() for p in locations.archive.iterdir()
    }
    bucket: Any = Bucket(dict(objects))
    there = Locations(
        locations.lake,
        locations.spool,
        locations.poison,
        locations.retained,
        locations.poison,
        locations.journal,
        bucket,
    )
    record = write_down(locations.lake, Lake(), ASKED, Found(wanted(3, 31)), MINUTE)
    done = carry_out(there, Lake(), record)
    changed = {name for name in objects if bucket.objects[name] != objects[name]}
    assert changed == {f"_archive/{name_of(first)}" for first in (1, 31)}
    assert set(done.files) == {name_of(1), name_of(31)}
    table = pq.read_table(pa.BufferReader(bucket.objects[f"_archive/{name_of(1)}"]))
    assert table["flaw"].to_pylist()[2] == "deleted"


def test_a_footer_alone_is_not_looked_into(locations):
    """As a cluster's driver has it: it counts as one of the bucket's that are not here."""
    locations.spool.mkdir()
    objects = {
        name: (locations.archive / name).read_bytes() for name in map(name_of, (1, 31))
    }
    (locations.spool / name_of(1)).write_bytes(objects[name_of(1)])
    data = objects[name_of(31)]
    footer = data[-digests.footer_bytes(data) :]
    (locations.spool / name_of(31)).write_bytes(footer.rjust(len(data), b"\0"))
    bucket: Any = Bucket(objects)
    there = dataclasses.replace(locations, bucket=bucket)
    found = deletion._sources(there, Ranges())["spool"]
    assert [path.name for path in found] == [name_of(1)]
    assert deletion._unseen(there, Ranges()) == 1


def test_the_newest_object_of_a_node_is_not_done(locations):
    """It stays where it was put though the tables have it, and comes to the archive later."""
    name = name_of(31)
    bucket: Any = Bucket({name: (locations.archive / name).read_bytes()})
    there = dataclasses.replace(locations, bucket=bucket)
    record = write_down(locations.lake, Lake(), ASKED, Found(wanted(31)), MINUTE)
    assert not carry_out(there, Lake(), record).done
    bucket.objects[f"_archive/{name}"] = bucket.objects.pop(name)
    [left] = unfinished(locations.lake)
    assert carry_out(there, Lake(), left).done
    table = pq.read_table(pa.BufferReader(bucket.objects[f"_archive/{name}"]))
    assert table["flaw"].to_pylist()[0] == "deleted"


def test_what_goes_to_the_archive_at_the_last_look_is_not_done(locations):
    """A job's own thread moves objects meanwhile: whatever it does between two requests, what
    is called done is redacted."""
    name = name_of(31)

    class Moving(Bucket):
        moved = False

        def list(self, begin: str, after: str = "") -> Any:
            yield from [*super().list(begin, after)]
            if begin.startswith("_archive") and not self.moved:
                self.moved = True
                self.objects[f"_archive/{name}"] = self.objects.pop(name)

    bucket: Any = Moving({name: (locations.archive / name).read_bytes()})
    there = dataclasses.replace(locations, archive=locations.poison, bucket=bucket)
    record = write_down(locations.lake, Lake(), ASKED, Found(wanted(31)), MINUTE)
    record = carry_out(there, Lake(), record)
    assert bucket.moved
    if not record.done:
        record = carry_out(there, Lake(), record)
    assert record.done
    table = pq.read_table(pa.BufferReader(bucket.objects[f"_archive/{name}"]))
    assert table["flaw"].to_pylist()[0] == "deleted"


@pytest.mark.parametrize(
    ("where", "shape"),
    [
        ("uid = 'ann' AND lsn > 7", "uid = ? AND lsn > ?"),
        (r"uid = 'O\'Hara'", "uid = ?"),
        ("uid = 'O''Hara' OR host = 'b'", "uid = ? OR host = ?"),
        (r'uid = "a\"nn" OR true', "uid = ? OR true"),
        (r"peer RLIKE r'^1\' OR uid = 'ann'", "peer RLIKE ? OR uid = ?"),
        ("body LIKE '%\nann\n%'", "body LIKE ?"),
    ],
)
def test_a_shape_has_no_text_of_the_condition(where, shape):
    """However Spark lets it be spelled."""
    assert Asked(where, "request 4711").shape == shape


KILLED = """
import os, signal, sys
from datetime import timedelta
from pathlib import Path
from gateway.spark.later.deletion import Asked, Found, write_down
from gateway.spark.later.erasure import Locations, carry_out
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ranges
from gateway.store.readers.deleted import unfinished
from gateway.store.names import Life

root, lsn, deadly = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
locations = Locations(*(root / name for name in ("lake", "spool", "archive", "retained", "poison", "journal")))

def point(name):
    if name == deadly:
        os.kill(os.getpid(), signal.SIGKILL)

for one in unfinished(locations.lake):
    carry_out(locations, Lake(), one)
events = Ranges()
events.add(Life("gw", "a" * 10), lsn, lsn)
record = write_down(locations.lake, Lake(), Asked("true", "test"), Found(events), timedelta(minutes=1))
carry_out(locations, Lake(), record, point=point)
"""


def test_killed_under_the_eyes_of_a_reader(locations, tmp_path):
    """Who looks all the while sees no row twice, and misses none that stays; each kill is
    gone on with by the next call."""
    lsns = [5, 6, 15, 16, 25, 26, 35]
    stay = {n for n in range(1, 41) if n != 3}.difference(lsns)
    reader = Steady(locations.lake, tmp_path / "reader", stay)
    try:
        for lsn, deadly in zip(lsns, itertools.cycle(POINTS)):
            reader.look_again()
            killed = run(*script.words(KILLED, tmp_path, lsn, deadly))
            assert killed.returncode == -signal.SIGKILL, killed.stderr
        for one in unfinished(locations.lake):
            carry_out(locations, Lake(), one)
        assert reader.end() == []
    finally:
        reader.kill()
    check_gone(locations, tmp_path, lsns)


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 99), st.integers(0, 3)),
        max_size=12,
    )
)
def test_conditions_are_true_of_just_these(spans):
    """However many ranges there are, and however they are cut."""
    import sqlite3

    events = Ranges()
    for incarnation, first, more in spans:
        events.add(Life("gw", incarnation), first, first + more)
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE t (node text, incarnation text, lsn integer)")
    everything = [("gw", who, n) for who in ("a", "b", None) for n in range(1, 110)]
    db.executemany("INSERT INTO t VALUES (?, ?, ?)", everything)
    found = [
        row
        for condition in as_sql(events, most=3)
        for row in db.execute(f"SELECT * FROM t WHERE {condition}")
    ]
    assert len(found) == len(set(found))
    assert {(who, lsn) for _, who, lsn in found} == {
        (life.incarnation, n)
        for life, first, last in events
        for n in range(first, last + 1)
    }


# -- with Spark -------------------------------------------------------------------------


@pytest.mark.spark
def test_by_a_condition(spark, spool, config, run_once, lake_events):
    """Found in the tables and in the spool; what waits is left out when it comes; a checkpoint
    and a ledger that are lost bring nothing back.  Nor does what a stream keeps."""
    put_twice(config, spool, run_once)
    retained = config.data_dir / "retained"
    texts = [b'{"user": "zoe"}', b'{"user": "bob"}']
    put_file(retained / "gw", kept_name(1, 2, 0), envelope("gw", 1, texts), {})
    asked = Asked(OF_ZOE, "case 1")
    [(text, data)] = delete(config, spark, Lake(), asked)
    assert "some wait in the spool" in text
    run_once()
    stay = {("gw", lsn) for lsn in (2, 4, 6, 8)}
    assert set(lake_events()) == stay
    [(text, data)] = delete(config, spark, Lake(), None)
    assert data["done"] is True
    archive = config.data_dir / "archive"
    assert b"zoe" not in bytes_below(archive) + bytes_below(retained)
    report = audit(Directories.under(config.data_dir))
    assert (report.complete, report.count("deleted")) == (True, 4)
    for path in archive.iterdir():
        path.rename(spool.path / path.name)
    run_once()
    assert set(lake_events()) == stay
    [*_, (text, _)] = delete(config, spark, Lake(), asked)
    assert "nothing to delete" in text
    assert unfinished(config.data_dir / "lake") == []


OF_ZOE = "coalesce(body, cast(payload AS string)) LIKE '%zoe%'"


def put_twice(config: SimpleNamespace, spool: Any, run_once: Callable[[], Any]) -> None:
    """Four events of two users are in the tables, one of them flawed, and four wait."""
    config.spool.s3 = None
    texts = [b'{"user": "%s"}' % name for name in (b"zoe", b"bob", b"zoe", b"eve")]
    config.spark.columns = {}
    spool.put("gw", 1, texts, flaws={2: "odd"})
    run_once()
    spool.put("gw", 5, texts)


@pytest.mark.spark
def test_a_dry_run_counts_and_changes_nothing(
    spark, spool, config, run_once, lake_events
):
    """In the tables, in the spool and in the archive, or only where it is asked to look."""
    put_twice(config, spool, run_once)
    asked = Asked(OF_ZOE, "case 1")
    [(text, data)] = delete(config, spark, Lake(), asked, dry_run=True)
    assert data == {
        "events": 4,
        "counts": {"lake/events": 1, "lake/quarantine": 1, "spool": 2, "archive": 2},
        "dry_run": True,
    }
    assert text.startswith("4 events: 1 in lake/events")
    only = Asked(OF_ZOE, "case 0", ("quarantine",))
    [(_, data)] = delete(config, spark, Lake(), only, dry_run=True)
    assert data["counts"] == {"lake/quarantine": 1, "archive": 1}
    assert len(lake_events()) == 4


def test_the_command_asks_for_what_it_needs(settings_file, capsys):
    """Before anything starts."""
    config = ["--config", str(settings_file())]
    for words, why in (
        (["--where", "true"], "--reason"),
        (["--where", " ", "--reason", "x"], "which rows"),
        (["--dry-run"], "delete needs --where"),
    ):
        assert main(["spark", "delete", *words, *config]) == 2
        assert why in capsys.readouterr().err
    assert main(["spark", "compact", "--where", "true", *config]) == 2
    assert "are for delete" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["delete", "--where", "true", "--reason", "x"], ["backfill"]]
)
def test_the_command_says_that_spark_or_java_is_not_there(
    words, settings_file, monkeypatch, capsys
):
    """In a line, as the job says it."""
    command = ["spark", *words, "--config", str(settings_file())]

    def find(*_: object) -> Any:
        raise java.NoJava("no Java 17 here")

    monkeypatch.setattr(java, "find", find)
    assert main(command) == 1
    assert capsys.readouterr().out == "no Java 17 here\n"
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert main(command) == 1
    told = capsys.readouterr().out
    assert told == "no Python package pyspark: pip install 'gateway[spark]'\n"


@pytest.mark.spark
@pytest.mark.long
def test_rows_with_variant(spark, spool, config, run_once, lake_events):
    """Stay VARIANT for those that read it: Spark writes their file anew."""
    config.spool.s3 = None
    config.spark.body = "variant"
    spool.put("gw", 1, [b'{"user": "%s"}' % name for name in (b"zoe", b"bob", b"eve")])
    run_once()
    asked = Asked("variant_get(body, '$.user', 'string') = 'zoe'", "case 2")
    [(_, data)] = delete(config, spark, Lake(), asked)
    assert (data["events"], data["done"]) == (1, True)
    assert set(lake_events()) == {("gw", 2), ("gw", 3)}
    rows = spark.read.parquet(str(config.data_dir / "lake" / "events"))
    users = rows.selectExpr("variant_get(body, '$.user', 'string') AS u").collect()
    assert sorted(row.u for row in users) == ["bob", "eve"]
