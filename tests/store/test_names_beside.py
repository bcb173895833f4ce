"""Nodes whose names begin alike, beside each other in one bucket and at one hub."""

import time

import msgspec
import pytest

from forwarded import Sent
from gateway.audit import audit
from gateway.audit.sites import Site
from gateway.spark.bucket import listing as module
from gateway.spark.bucket.listing import Listing
from gateway.store.directories import Directories
from gateway.store.hub.arrivals import Arrivals
from gateway.store.names import file_name, parse_file_name
from gateway.store.objects.bucket import commit
from gateway.store.objects.node_record import NodeRecord, at_hub, listed, name_of
from gateway.store.system.disk import RealDisk
from gateway_testkit.bucket import MemoryBucket
from incarnations import A, B

COUNTS = {"gw-1": 1, "gw-1.eu": 2, "gw-1-a": 3, "gw-10": 4}
"""How many events each has, all from lsn 1 on, of incarnations of one id."""


def record(lsn: int) -> NodeRecord:
    return NodeRecord(A, 1, lsn, time.time(), "journal", published=lsn)


@pytest.fixture
def hub(tmp_path):
    directories = Directories.under(tmp_path)
    for folder in (directories.spool, directories.archive):
        folder.mkdir()
    taker = Arrivals("hub", directories, RealDisk(), lambda _: None)
    for node, count in COUNTS.items():
        sent = Sent(1, count, node=node)
        bringing = taker.bring(sent.file, 0)
        bringing.write([sent.data])
        bringing.finish()
        taker.hear(node, A, msgspec.json.encode(record(count)))
    return taker, directories


def counted(report):
    return {one.node: one.events for one in report.nodes if one.events}


def test_at_a_hub(hub):
    taker, directories = hub
    for node, count in COUNTS.items():
        assert taker.known(node).lsns == {A: ((1, count),)}
        [heard] = at_hub(directories.arrivals, node)
        assert heard.record is not None
        assert (heard.node, heard.record.lsn) == (node, count)
    assert sorted(COUNTS) == taker.all_nodes()
    report = audit(directories, pause=lambda _: None)
    assert (report.complete, counted(report)) == (True, COUNTS)


def test_in_a_bucket(tmp_path):
    bucket = MemoryBucket()
    for node, count in COUNTS.items():
        sent = Sent(1, count, node=node)
        assert commit(bucket, sent.name, sent.data)
        bucket.replace(name_of(node, A), msgspec.json.encode(record(count)))
    listing = Listing(bucket, time.monotonic)
    assert listing.newest() == COUNTS
    found = [one.file for one in listing.files()]
    assert {file.node: file.last for file in found} == COUNTS
    for node in COUNTS:
        assert [one.name for one in listed(bucket, node)] == [name_of(node, A)]
        [own] = bucket.list(f"events-{node}_")
        named = parse_file_name(own.name)
        assert named is not None
        assert named.node == node
    (tmp_path / "lake").mkdir()
    place = Site(Directories.under(tmp_path), bucket=bucket)
    report = audit(place, pause=lambda _: None)
    assert (report.complete, counted(report)) == (True, COUNTS)


def test_a_leap_is_over_one_incarnation(monkeypatch):
    """What is known of the next one of its node says nothing of this one's new files."""
    monkeypatch.setattr(module, "LEAP_OBJECTS", 3)
    bucket = MemoryBucket()
    names = [file_name("gw-1", by, at, at) for by in (A, B) for at in range(1, 6)]
    bucket.objects = dict.fromkeys(names, b"")
    listing = Listing(bucket, lambda: 0.0)
    assert len([*listing.files()]) == 10
    bucket.objects[file_name("gw-1", A, 6, 6)] = b""
    assert len([*listing.files()]) == 11
