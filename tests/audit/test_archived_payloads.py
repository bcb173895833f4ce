"""`--content` finds what a row was sent as, wherever the job has left its file, and whatever
table has the row."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from catalogs import write
from gateway.audit.chain import verify_chains
from gateway.audit.content import find_resent
from gateway.audit.payloads import compare_payloads
from gateway.audit.sites import Site
from gateway.store.directories import Directories
from gateway.store.node import catalog
from gateway.store.node.incarnation import Incarnation
from gateway.store.objects.bucket import ARCHIVE
from incarnations import A, B
from lives import current, publish
from spools import SpoolFolder

from .accounts import claimed, look, planned


def rows(path: Path, life: str) -> pa.Table:
    """A file's, as a table has them."""
    table = pq.read_table(path, columns=["node", "lsn", "received_at", "payload"])
    table = table.set_column(0, "node", table["node"].cast(pa.string()))
    return table.append_column("incarnation", pa.repeat(life, len(table)))


def edited(table: pa.Table, lsn: int) -> pa.Table:
    payloads = pc.if_else(pc.equal(table["lsn"], lsn), b"forged", table["payload"])
    at = table.column_names.index("payload")
    return table.set_column(at, "payload", payloads)


def parquet(data: Path, table: pa.Table, _: pytest.MonkeyPatch) -> None:
    folder = data / "lake" / "events" / "protocol=plain" / "date=2026-01-01"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "part.parquet")


def delta(data: Path, table: pa.Table, _: pytest.MonkeyPatch) -> None:
    deltalake = pytest.importorskip("deltalake")
    place = data / "lake" / "delta" / "events"
    deltalake.write_deltalake(str(place), table, mode="overwrite")
    claimed(data, sink="delta", table=f"file://{place}")


def iceberg(data: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file, as pyiceberg names it."""
    module = pytest.importorskip("pyiceberg.table")
    path = data / "lake" / "iceberg" / "a.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    claimed(data, sink="iceberg", table="lake.e", metadata="/m.json")
    file = SimpleNamespace(file_path=f"file://{path}")
    task = SimpleNamespace(file=file, delete_files=[])
    monkeypatch.setattr(module, "StaticTable", planned(lambda: [task]))


@pytest.mark.parametrize("put", [parquet, delta, iceberg])
def test_an_edited_row_is_found_by_the_archive_in_the_bucket(
    tmp_path, monkeypatch, put, bucket
):
    """The job keeps what it has committed below `_archive/`; no catalog is here, nor any
    other copy.  What is in the table as it was sent is compared, too."""
    data, gateway = tmp_path / "job", tmp_path / "gateway"
    found = publish(gateway, b"a,b,c", b"d,e")
    for path in found:
        bucket.objects[f"{ARCHIVE}/{path.name}"] = path.read_bytes()
    table = pa.concat_tables(rows(path, current(gateway)) for path in found)
    place = Site(Directories.under(data), bucket=bucket)
    put(data, table, monkeypatch)
    fine = compare_payloads(place)
    assert (fine.archived, fine.in_tables, fine.events) == (2, 2, 5)
    assert (fine.uncompared, fine.problems) == (0, [])
    put(data, edited(table, 5), monkeypatch)
    assert look(data, bucket).complete
    changed = compare_payloads(place)
    [problem] = changed.problems
    assert (
        "the events of gw lsn 4 to 5 are not those of their spool file" in problem.why
    )
    assert (changed.in_tables, changed.uncompared) == (1, 0)


def test_a_damaged_object_of_the_archive_is_found(tmp_path, bucket):
    """Its own digest tells; it is named where it is, and no copy of it stays here."""
    [path] = publish(tmp_path / "gateway", b"a,b,c" * 1000)
    name = f"{ARCHIVE}/{path.name}"
    bucket.objects[name] = path.read_bytes()[:-9]
    place = Site(Directories.under(tmp_path / "job"), bucket=bucket)
    found = compare_payloads(place)
    [problem] = found.problems
    assert problem.file.endswith(f"/prefix/{name}")
    assert bucket.objects[name] == path.read_bytes()[:-9]


def test_a_hole_is_looked_for_in_the_archive_of_the_bucket(
    tmp_path, monkeypatch, bucket
):
    """What the table has lost, and the archive has, is told with its object."""
    data, gateway = tmp_path / "job", tmp_path / "gateway"
    one, two = publish(gateway, b"a,b,c", b"d,e")
    bucket.objects[f"{ARCHIVE}/{one.name}"] = one.read_bytes()
    parquet(data, rows(two, current(gateway)), monkeypatch)
    report = look(data, bucket)
    [hole] = report.holes["gw"]
    assert (hole.first, hole.last) == (1, 3)
    [archived] = hole.archive
    assert archived.endswith(f"/{ARCHIVE}/{one.name}")


def test_payloads_of_two_incarnations_are_not_mixed_up(tmp_path, monkeypatch, bucket):
    """Rows of the same lsns: each is compared with its own."""
    data, old, new = tmp_path / "job", tmp_path / "old", tmp_path / "new"
    [before], [after] = publish(old, b"a,b"), publish(new, b"x,y")
    bucket.objects[f"{ARCHIVE}/{before.name}"] = before.read_bytes()
    bucket.objects[after.name] = after.read_bytes()
    table = rows(before, current(old))
    parquet(data, table, monkeypatch)
    place = Site(Directories.under(data), bucket=bucket)
    found = compare_payloads(place)
    assert found.problems == []
    assert (found.in_tables, found.uncompared) == (1, 0)
    both = pa.concat_tables([table, rows(after, current(new))])
    parquet(data, both, monkeypatch)
    found = compare_payloads(place)
    assert found.problems == []
    assert (found.in_tables, found.uncompared) == (2, 0)


def test_rows_that_two_files_have_are_compared_once(tmp_path, monkeypatch):
    """Copies of a directory publish their past with bounds of their own."""
    archive = SpoolFolder(tmp_path / "archive")
    payloads = [b"%d" % n for n in range(1, 16)]
    one, two = (
        archive.put("gw", first, payloads[first - 1 : last], received_at=5)
        for first, last in ((1, 10), (6, 15))
    )
    table = pa.concat_tables([rows(one, A), rows(two, A).slice(5)])
    parquet(tmp_path, pa.concat_tables([table, rows(one, B)]), monkeypatch)
    found = compare_payloads(Directories.under(tmp_path))
    assert (found.in_tables, found.uncompared, found.problems) == (2, 10, [])


@pytest.mark.parametrize("put", [parquet, delta, iceberg])
def test_what_beats_sent_twice_is_found_in_all_tables(tmp_path, monkeypatch, put):
    table = pa.table(
        {
            "node": ["gw"] * 3,
            "lsn": pa.array([1, 2, 3], pa.int64()),
            "agent_id": ["x", "x", "y"],
            "log_file_path": ["/a"] * 3,
            "log_offset": pa.array([0, 0, 0], pa.int64()),
            "message": ["m"] * 3,
        }
    )
    put(tmp_path, table, monkeypatch)
    found = find_resent(tmp_path / "lake")
    assert (found.placed, found.copies) == (3, 1)


def chained(data: Path) -> tuple[list[str], list[str]]:
    """What the chain's notes and problems are."""
    found = verify_chains(Directories.under(data), pause=lambda _: None)
    [chain] = found.chains
    return chain.notes, [one.why for one in chain.problems]


def test_a_rebuilt_node_begins_a_chain_of_its_own(tmp_path):
    """Its first file knows none before it, and the archive has some, under the same lsns or
    before them: that is said, and is no alarm.  What is taken out of either is one."""
    old, new = tmp_path / "old", tmp_path / "new"
    publish(old, b"a", b"b", b"c")
    publish(new, b"x,y", b"z", b"w,v")
    (new / "archive").mkdir(exist_ok=True)
    for path in old.glob("spool/events-*"):
        shutil.copy(path, new / "archive" / path.name)
    notes, problems = chained(new)
    assert problems == []
    assert any("begins a chain of its own with lsn 1" in note for note in notes)
    [gone] = new.glob("spool/events-*03-*03.parquet")
    away = gone.rename(tmp_path / gone.name)
    assert any("removed: what had lsn 3 is" in why for why in chained(new)[1])
    away.rename(gone)
    [gone] = new.glob("archive/events-*02-*02.parquet")
    gone.unlink()
    assert any("removed: what had lsn 2 is" in why for why in chained(new)[1])


def test_a_new_disk_is_no_removed_chain(tmp_path):
    """It went on behind what a bucket has: files before that were never here."""
    publish(tmp_path, b"a", b"b", b"c")
    journal = tmp_path / "journal" / "gw"
    this = catalog.look(journal).newest(Incarnation)
    assert this is not None
    shutil.rmtree(tmp_path / "state")
    (journal / "catalog").unlink()
    for file in sorted(tmp_path.glob("spool/events-*"))[:2]:
        file.unlink()
    assert chained(tmp_path)[1]
    write(journal, Incarnation(this.id, 3, this.directory))
    notes, problems = chained(tmp_path)
    assert problems == []
    assert any(
        "begins a chain of its own with lsn 3, behind a" in note for note in notes
    )
