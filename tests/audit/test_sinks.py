"""The tables of formats, as their own libraries read them: no Spark is needed."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from gateway.audit import audit
from gateway.audit.remote import Access, Remote, access_of
from gateway.audit.sinks import table_files
from gateway.config import load
from gateway.sinks.delta import storage_options
from gateway.sinks.iceberg import properties
from gateway.store.directories import Directories

from .accounts import claimed, planned

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def z85(data: bytes) -> str:
    """As Delta writes what lies in its log."""
    found = bytearray()
    for (word,) in struct.iter_unpack(">I", data):
        found += bytes(_Z85[word // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return found.decode()


def vector(row: int) -> dict[str, Any]:
    """Delta's word that one row of a file is deleted."""
    roaring = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, row)
    bits = struct.pack("<IQI", 1681511377, 1, 0) + roaring
    padded = bits + bytes(-len(bits) % 4)
    return {
        "storageType": "i",
        "pathOrInlineDv": z85(padded),
        "sizeInBytes": len(bits),
        "cardinality": 1,
    }


@pytest.mark.parametrize("name", ["gate#1", "a%41", "what?", "two words"])
def test_a_directory_may_have_a_name_that_is_no_url(tmp_path, name):
    """Folders of Parquet are found by their paths, whatever is in those."""
    data = tmp_path / name
    file = data / "lake/events/protocol=x/date=2026-01-01/part-1.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(
        pa.table({"node": ["gw"] * 3, "lsn": pa.array([1, 2, 3], pa.int64())}), file
    )
    assert [path for path, _ in table_files(data / "lake")] == [file]
    assert audit(Directories.under(data)).nodes[0].in_lake == 3


@pytest.mark.parametrize("name", ["gate#1", "what?", "two words"])
def test_a_table_of_delta_may_have_such_a_name(tmp_path, name):
    """Values of its partitions have what is encoded in folders' names, and stays so."""
    deltalake = pytest.importorskip("deltalake")
    place = tmp_path / name / "events"
    rows = pa.table({"node": ["gw"], "lsn": pa.array([1], pa.int64()), "by": [": a%"]})
    deltalake.write_deltalake(str(place), rows, partition_by=["by"])
    claimed(tmp_path, sink="delta", table=f"file://{place}")
    assert [path for path, _ in table_files(tmp_path / "lake")] == [
        *place.rglob("*.parquet")
    ]
    assert audit(Directories.under(tmp_path)).nodes[0].in_lake == 1


def test_rows_that_a_deletion_vector_hides_are_said(tmp_path):
    """The files still have them; the audit does not take that for complete, and says how
    the rows get out of the files."""
    deltalake = pytest.importorskip("deltalake")
    place = tmp_path / "lake" / "delta" / "events"
    rows = pa.table({"node": ["gw"] * 3, "lsn": pa.array([1, 2, 3], pa.int64())})
    deltalake.write_deltalake(str(place), rows)
    claimed(tmp_path, sink="delta", table=f"file://{place}")
    assert audit(Directories.under(tmp_path)).complete

    log = place / "_delta_log"
    (added,) = (
        found["add"]
        for line in (log / f"{0:020d}.json").read_text().splitlines()
        if "add" in (found := json.loads(line))
    )
    removed = {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}
    hidden = {**added, "deletionVector": vector(1)}
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    (log / f"{1:020d}.json").write_text(
        "\n".join(
            json.dumps(action)
            for action in (
                {"protocol": protocol}, {"remove": removed}, {"add": hidden}
            )
        )
    )  # fmt: skip
    report = audit(Directories.under(tmp_path))
    assert not report.complete
    (problem,) = report.problems
    assert problem.file.endswith(added["path"])
    assert "rows of it are deleted by others" in problem.why
    assert "REORG TABLE" in problem.why


def test_a_table_of_iceberg_has_names_as_they_are(tmp_path, monkeypatch):
    """Values of its partitions are encoded in them, and are not to be decoded."""
    table = pytest.importorskip("pyiceberg.table")
    place = tmp_path / "two words" / "by=a%3Ab.parquet"
    place.parent.mkdir()
    rows = pa.table({"node": ["gw"], "lsn": pa.array([1], pa.int64())})
    pq.write_table(rows, place)
    claimed(tmp_path, sink="iceberg", table="lake.e", metadata="/m.json")
    file = SimpleNamespace(file_path=f"file:{place}")
    task = SimpleNamespace(file=file, delete_files=[])
    monkeypatch.setattr(table, "StaticTable", planned(lambda: [task]))
    assert [path for path, _ in table_files(tmp_path / "lake")] == [place]


def test_rows_that_a_delete_file_hides_are_said(tmp_path, monkeypatch):
    """Positions are said of their file; where only values are named, nothing is judged."""
    table = pytest.importorskip("pyiceberg.table")
    rows = pa.table({"node": ["gw"] * 3, "lsn": pa.array([1, 2, 3], pa.int64())})
    pq.write_table(rows, tmp_path / "a.parquet")
    claimed(tmp_path, sink="iceberg", table="lake.e", metadata="/m.json")
    deletes = [SimpleNamespace(file_path="/d/00-deletes.parquet")]
    task = SimpleNamespace(
        file=SimpleNamespace(file_path=f"file://{tmp_path}/a.parquet"), delete_files=[]
    )
    monkeypatch.setattr(table, "StaticTable", planned(lambda: [task]))
    assert audit(Directories.under(tmp_path)).complete
    task.delete_files = deletes
    report = audit(Directories.under(tmp_path))
    assert not report.complete
    (problem,) = report.problems
    assert "by /d/00-deletes.parquet. CALL system.rewrite_data_files" in problem.why

    def equality() -> list[Any]:
        raise ValueError("no equality deletes yet")

    monkeypatch.setattr(table, "StaticTable", planned(equality))
    with pytest.raises(
        OSError, match=r"lake\.e can not be read: rows are deleted .*no equality"
    ):
        list(table_files(tmp_path / "lake"))


_S3 = {
    "endpoint": "http://127.0.0.1:9000",
    "region": "eu-1",
    "access_key_id": "KEY",
    "secret_access_key": "SECRET",
}


def told(tmp_path: Path, s3: Any = None, **spark: Any) -> Access:
    path = tmp_path / "gateway.yaml"
    listener = {"name": "a", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}
    content = {"node": "gw", "data_dir": "data", "listeners": [listener]}
    content |= {"spool": {"s3": s3 or {}}, "spark": spark}
    path.write_text(yaml.safe_dump(content))
    return access_of(load(path))


def test_a_table_is_reached_as_the_spool_is(tmp_path):
    """Nothing else needs to be said where both are in one place."""
    assert told(tmp_path, _S3) == Access(**_S3)
    assert told(tmp_path) == Access()


def test_what_the_catalog_says_goes_before(tmp_path):
    """It is told of the very table; then what Hadoop is told."""
    s3a = {
        "spark.hadoop.fs.s3a.access.key": "HADOOP",
        "spark.hadoop.fs.s3a.secret.key": "OF-HADOOP",
        "spark.hadoop.fs.s3a.endpoint": "https://hadoop",
    }
    catalog = {
        "spark.sql.catalog.own.s3.endpoint": "https://catalog",
        "spark.sql.catalog.own.client.region": "eu-2",
    }
    found = told(tmp_path, _S3, sink="iceberg", table="own.a.b", conf=s3a | catalog)
    assert found == Access("https://catalog", "eu-2", "HADOOP", "OF-HADOOP")


def test_an_object_may_have_a_name_that_is_no_url():
    opened: list[str] = []
    store: Any = SimpleNamespace(open_input_file=opened.append)
    Remote("s3a://b/gate#1/what?.parquet", store).open()
    assert opened == ["b/gate#1/what?.parquet"]


def test_no_secret_is_shown():
    """Wherever it is printed."""
    assert "SECRET" not in repr(Access(**_S3))


@pytest.mark.parametrize("virtual", [False, True])
def test_each_reader_is_told_in_its_own_words(virtual):
    """What is not known is left to it."""
    access = Access(**_S3, virtual_hosted=virtual)
    assert properties(access)["s3.access-key-id"] == "KEY"
    assert storage_options(access)["AWS_ALLOW_HTTP"] == "true"
    for told_ in (properties(access), storage_options(access)):
        assert str(virtual).lower() in told_.values()
    assert set(storage_options(Access())) == {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST"}
