"""From a bucket to tables, with Spark."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.audit import audit
from gateway.audit.sites import Site
from gateway.config import model
from gateway.config.bucket import BucketUrl
from gateway.spark.bucket.copies import Copies
from gateway.spark.run import running
from gateway.store.directories import Directories
from gateway.store.names import file_name
from gateway.store.objects.s3 import S3
from gateway_testkit.settings import options_of
from incarnations import A
from small_s3 import SmallS3, small_s3


@pytest.fixture
def server() -> Iterator[SmallS3]:
    with small_s3() as server:
        yield server


@pytest.fixture
def in_bucket(config, server) -> SimpleNamespace:
    """The job's configuration, with its spool on that server."""
    config.spool.bucket = BucketUrl("bucket", "prefix")
    config.spool.s3 = options_of(
        model.S3,
        endpoint=server.url,
        region="us-east-1",
        access_key_id="KEY",
        secret_access_key="SECRET",
    )
    return config


def upload(server: SmallS3, *paths: Path) -> None:
    """As the gateway does, and remove them here."""
    for path in paths:
        server.objects[f"bucket/prefix/{path.name}"] = path.read_bytes()
        path.unlink()


@pytest.mark.spark
def test_from_a_bucket_to_tables(server, spool, in_bucket, run_once, lake_events):
    """Each event is in one table, once; again nothing happens."""
    upload(
        server,
        spool.events("gw-1", 1, 50),
        spool.events("gw-1", 51, 10),
        spool.events("gw-2", 1, 20),
    )
    run_once()
    assert lake_events() == spool.produced
    files = sorted(name for name in server.objects if name.endswith(".parquet"))
    assert files == [
        f"bucket/prefix/_archive/{file_name('gw-1', A, 1, 50)}",
        f"bucket/prefix/_archive/{file_name('gw-1', A, 51, 60)}",
        f"bucket/prefix/_archive/{file_name('gw-2', A, 1, 20)}",
    ]
    assert list((in_bucket.data_dir / "inbox").iterdir()) == []
    run_once()
    assert lake_events() == spool.produced


@pytest.mark.spark
@pytest.mark.long
def test_nodes_whose_clocks_are_a_day_off(
    server, spool, in_bucket, run_once, lake_events
):
    """One ahead, one behind, one that was set back between two files: they are in other
    days' folders, and each event is there once, says the audit.
    """
    now, day = int(time.time() * 1e6), 86_400_000_000
    times = {
        "ahead": (now + day, now + day + 1),
        "behind": (now - day, now - day + 1),
        "set-back": (now + day, now - day),
    }
    data = in_bucket.data_dir
    for at in (0, 1):
        for node, both in times.items():
            path = spool.events(node, 1 + at * 10, 10, received_at=both[at])
            server.objects[f"bucket/prefix/{path.name}"] = path.read_bytes()
            path.unlink()
        run_once()
    assert lake_events(data / "lake") == spool.produced
    folders = {path.name for path in (data / "lake" / "events").glob("*/date=*")}
    assert len(folders) == 2
    bucket = S3(in_bucket.spool.bucket, in_bucket.spool.s3)
    report = audit(Site(Directories.under(data), bucket=bucket))
    assert report.complete
    assert {one.node: one.in_lake for one in report.nodes} == dict.fromkeys(times, 20)


@pytest.mark.spark
def test_a_backlog_larger_than_the_disk_is_read_at_once(
    server, spool, in_bucket, run_once, lake_events, monkeypatch
):
    """`--once` fetches some batches, puts them into tables, and goes on until all that
    was there is."""
    monkeypatch.setattr(running, "_INBOX_BATCHES", 2)
    paths = [spool.events("gw", 1 + n * 10, 10) for n in range(3)]
    upload(server, *paths)
    size = len(server.objects[f"bucket/prefix/{paths[0].name}"])
    in_bucket.spark.max_bytes_per_trigger = size // 2
    folder = in_bucket.data_dir / "inbox"
    most = [0]
    fetch = Copies.fetch

    def fetched(copies: Copies, one: Any) -> bool:
        came = fetch(copies, one)
        most[0] = max(most[0], len(list(folder.iterdir())))
        return came

    monkeypatch.setattr(Copies, "fetch", fetched)
    run_once()
    assert lake_events() == spool.produced
    assert most[0] <= 2
