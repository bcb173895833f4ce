"""Object storage: a name is committed once, whatever happens to requests."""

import io
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq
import pytest

from forwarded import Sent
from gateway.config import model
from gateway.config.bucket import BucketUrl
from gateway.store.names import file_name
from gateway.store.objects.bucket import (
    AlreadyThere,
    BucketError,
    Changed,
    Conflict,
    NotThere,
    Unfit,
    commit,
    probe,
)
from gateway.store.objects.s3 import S3, Missing
from gateway.store.spool.consumed import objects_of
from gateway_testkit.bucket import MemoryBucket
from gateway_testkit.settings import options_of
from incarnations import A
from small_s3 import SmallS3, small_s3


@pytest.fixture
def server() -> Iterator[SmallS3]:
    with small_s3() as server:
        yield server


def client(server: SmallS3, prefix: str = "a/b", **settings: Any) -> S3:
    chosen: dict[str, Any] = {
        "endpoint": server.url,
        "region": "us-east-1",
        "access_key_id": "KEY",
        "secret_access_key": "SECRET",
        **settings,
    }
    return S3(BucketUrl("spool", prefix), options_of(model.S3, **chosen))


def test_an_object_is_made_once(server):
    """The second PUT changes nothing."""
    bucket = client(server)
    bucket.create("x", b"one")
    with pytest.raises(AlreadyThere):
        bucket.create("x", b"two")
    assert bucket.read("x") == b"one"
    assert server.objects == {"spool/a/b/x": b"one"}
    assert set(server.keys) == {"KEY"}


@pytest.mark.parametrize("fault", [500, 503, 403, 401, 404, 0, -1])
def test_a_request_that_fails_says_so(server, fault):
    """In one line, and nothing is asked twice: who asks decides that."""
    bucket = client(server)
    server.faults = [fault]
    with pytest.raises(BucketError) as why:
        bucket.create("x", b"one")
    assert "\n" not in str(why.value)
    assert "SECRET" not in str(why.value)
    assert len(server.keys) == 1


@pytest.mark.parametrize("fault", [-1, 409])
def test_a_commit_whose_answer_was_lost_finds_its_own_object(server, fault):
    """The same name with the same bytes is success, with other bytes an error."""
    bucket = client(server)
    server.faults = [fault]
    with pytest.raises(BucketError):
        commit(bucket, "x", b"one")
    assert commit(bucket, "x", b"one") is (fault == 409)
    assert commit(bucket, "x", b"one") is False
    with pytest.raises(Conflict, match=r"s3://spool/a/b/x is there.*3 bytes.*5 bytes"):
        commit(bucket, "x", b"other")
    assert bucket.read("x") == b"one"


def test_credentials_that_are_refused_are_looked_for_afresh(server, monkeypatch):
    """They expire, and somebody renews them in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OLD")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    bucket = client(server, access_key_id=None, secret_access_key=None)
    bucket.create("x", b"one")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "NEW")
    server.faults = [403]
    with pytest.raises(BucketError):
        bucket.create("y", b"one")
    bucket.create("y", b"one")
    assert server.keys == ["OLD", "OLD", "NEW"]


@pytest.mark.parametrize("prefix", ["a/b", ""])
def test_a_nodes_files_are_listed(server, prefix):
    """Of one node, in order, over pages; what has gone to the archive is not there."""
    bucket = client(server, prefix)
    names = [file_name("gw", A, n, n) for n in range(1, 9)]
    others = [
        file_name("gw-1", A, 3, 3),
        file_name("gw0", A, 4, 4),
        "events-gw-x",
        "_archive/" + file_name("gw", A, 9, 9),
    ]
    for name in (*names, *others):
        bucket.create(name, b"data")
    assert [one.name for one in objects_of(bucket, "gw")] == names
    [first, *_] = bucket.list("events-gw_")
    assert (first.bytes, first.modified) == (4, 1795305600.0)


def test_an_object_that_is_gone_is_not_there(server):
    """And to remove it is fine."""
    bucket = client(server)
    bucket.create("x", b"one")
    bucket.remove("x")
    bucket.remove("x")
    with pytest.raises(NotThere):
        bucket.read("x")


@pytest.mark.parametrize("real", [True, False])
def test_the_end_of_an_object(server, real):
    """Without what is before it; where it has none, an error."""
    bucket = client(server) if real else MemoryBucket()
    bucket.create("x", b"0123456789")
    assert bucket.read("x", 7) == b"789"
    assert bucket.read("x", 0) == bucket.read("x") == b"0123456789"
    with pytest.raises(NotThere):
        bucket.read("y", 7)


@pytest.mark.parametrize("real", [True, False])
def test_many_are_removed_by_one_request(server, real):
    """Whichever of them are gone already; and a failure says so."""
    asked: list[str] = []
    server.before = lambda method, path: asked.append(method)
    bucket = client(server) if real else MemoryBucket()
    for number in range(5):
        bucket.create(f"x{number}", b"one")
    asked.clear()
    bucket.remove_all(["x1", "x2", "x3", "x9"])
    assert asked == (["POST"] if real else [])
    assert [one.name for one in bucket.list("x")] == ["x0", "x4"]
    server.faults = [503]
    if isinstance(bucket, MemoryBucket):
        bucket.away("503")
    with pytest.raises(BucketError):
        bucket.remove_all(["x0", "x4"])


@pytest.mark.parametrize("real", [True, False])
def test_one_of_many_that_is_refused_keeps_no_other(server, real):
    """The answer is 200 then, and names it; whoever asked hears of it."""
    bucket = client(server) if real else MemoryBucket()
    for name in ("x0", "x1", "x2"):
        bucket.create(name, b"one")

    def refuse(method: str, path: str) -> int:
        return 403 if method == "DELETE" and path.endswith("/x1") else 0

    def fault(request: str, name: str) -> None:
        if (request, name) == ("remove", "x1"):
            raise BucketError("403")

    server.refuse = refuse
    if isinstance(bucket, MemoryBucket):
        bucket.fault = fault
    with pytest.raises(BucketError):
        bucket.remove_all(["x0", "x1", "x2"])
    assert [one.name for one in bucket.list("x")] == ["x1"]
    with pytest.raises(BucketError):
        bucket.remove("x1")


def test_one_is_removed_where_many_can_not_be(server):
    """Not every server knows the request for many; and some say of one that it is gone."""
    bucket = client(server)
    bucket.create("x", b"one")
    server.refuse = lambda method, path: 501 if method == "POST" else 0
    with pytest.raises(BucketError):
        bucket.remove_all(["x"])
    assert [one.name for one in bucket.list("x")] == ["x"]
    bucket.remove("x")
    assert [*bucket.list("x")] == []
    server.refuse = lambda method, path: 404
    bucket.remove("x")


def test_an_object_is_swapped_once(server):
    """Whoever has seen the one before; not where it is another one, or gone."""
    bucket = client(server)
    bucket.create("x", b"one")
    data, tag = bucket.read_tagged("x")
    assert data == b"one"
    bucket.swap("x", b"two", tag)
    with pytest.raises(Changed):
        bucket.swap("x", b"three", tag)
    assert bucket.read("x") == b"two"
    bucket.remove("x")
    with pytest.raises(Changed):
        bucket.swap("x", b"three", tag)
    with pytest.raises(NotThere):
        bucket.read_tagged("x")


def test_the_probe_leaves_nothing(server):
    """It asks for all that is needed, and removes what it made."""
    said: list[str] = []
    probe(client(server), "gw", said.append)
    assert len(said) == 5
    assert server.objects == {}


def test_a_server_that_replaces_objects_is_found_out():
    """Older ones pass If-None-Match over: two files of one name would be one."""
    bucket = MemoryBucket()
    bucket.conditional = False
    with pytest.raises(Unfit, match="If-None-Match"):
        probe(bucket, "gw")


def test_without_the_package_the_extra_is_named(monkeypatch):
    """Nothing else needs it."""
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(Missing, match=r"s3://b/p.*pip install 'gateway\[s3\]'"):
        S3(BucketUrl("b", "p"), model.S3())


def test_the_same_events_in_other_bytes_are_there():
    """As a gateway of another version writes them: they are no other past."""
    bucket, sent = MemoryBucket(), Sent(1)
    whole, sink = pq.ParquetFile(io.BytesIO(sent.data)), io.BytesIO()
    with pq.ParquetWriter(sink, whole.schema_arrow, compression="none") as writer:
        writer.write_table(whole.read())
        writer.add_key_value_metadata(
            {k: v for k, v in whole.metadata.metadata.items() if k.startswith(b"gate")}
        )
    assert sink.getvalue() != sent.data
    assert commit(bucket, sent.name, sent.data)
    assert not commit(bucket, sent.name, sink.getvalue())
    with pytest.raises(Conflict):
        commit(bucket, sent.name, Sent(1, text="other").data)
