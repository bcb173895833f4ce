"""Files of other gateways, where the spool is a bucket: they go there as our own do, and who
brings them is told when the hub's own senders would be.
"""

from __future__ import annotations

import contextlib
import errno
import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bucket_node import Node, uploads_of
from forwarded import Sent
from gateway.sdk.forwarding import Life
from gateway.store.hub.arrivals import Arrivals
from gateway.store.system.disk import RealDisk
from gateway_testkit.bucket import MemoryBucket
from incarnations import A

pytestmark = pytest.mark.usefixtures("short_pauses")


def arrivals_of(node: Node) -> Arrivals:
    return node.storage._opened.arrivals


def bring(node: Node, *files: Sent, by: str = A) -> None:
    bringing = arrivals_of(node).bring(Life("edge", by))
    for one in files:
        if bringing.begin(one.at(0)):
            bringing.write([one.data])
            bringing.finish()
    bringing.close()


def bring_when_settled(node: Node, *files: Sent) -> bool:
    """Whether they were taken: what came before is in the bucket."""
    with contextlib.suppress(BlockingIOError):
        bring(node, *files)
        return True
    return False


def has(bucket: MemoryBucket, *files: Sent) -> bool:
    return all(bucket.objects.get(one.name) == one.data for one in files)


@pytest.mark.parametrize("ack", ["journal", "spool"])
def test_files_go_on_to_the_bucket(
    tmp_path: Path, bucket: MemoryBucket, ack: str
) -> None:
    """As they came, beside the hub's own; copies are in its archive."""
    node = Node(tmp_path, bucket, ack=ack).start()
    files = Sent(1, 200), Sent(201), Sent(204)
    bring(node, *files)
    node.sent(b"a")
    node.reactor.run(lambda: uploads_of(node).uploaded == 4)
    assert has(bucket, *files)
    assert all((tmp_path / "archive" / one.name).exists() for one in files)
    assert all(arrivals_of(node).is_settled(one.name) for one in files)
    assert len([*bucket.list("events-gw_")]) == 1
    node.stop()


def test_nobody_is_told_before_it_is_in_the_bucket(
    tmp_path: Path, bucket: MemoryBucket
) -> None:
    """With `ack: spool`: not of a file, nor by the position of a connection that comes."""
    node = Node(tmp_path, bucket).start()
    bucket.away()
    bring(node, Sent(1))
    node.reactor.run(lambda: uploads_of(node).why)
    assert not arrivals_of(node).is_settled(Sent(1).name)
    with pytest.raises(BlockingIOError, match="not in the bucket yet"):
        arrivals_of(node).bring(Life("edge", A))
    bucket.back()
    node.reactor.run(lambda: arrivals_of(node).is_settled(Sent(1).name))
    assert has(bucket, Sent(1))
    assert arrivals_of(node).bring(Life("edge", A)).last == {A: 3}
    node.stop()


def test_a_file_that_the_disk_gives_no_name(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on its way to the bucket once it has one, and told then, and by itself."""
    node = Node(tmp_path, bucket).start()
    full = True
    rename = RealDisk.rename

    def renamed(disk: RealDisk, old: Path, new: Path) -> None:
        if full and new.name == Sent(1).name:
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(disk, old, new)

    monkeypatch.setattr(RealDisk, "rename", renamed)
    bring(node, Sent(1))
    assert not arrivals_of(node).is_settled(Sent(1).name)
    with pytest.raises(OSError, match="No space"):
        arrivals_of(node).bring(Life("edge", A))
    full = False
    node.reactor.run(lambda: arrivals_of(node).is_settled(Sent(1).name))
    assert has(bucket, Sent(1))
    node.stop()


def test_a_bucket_that_is_away(tmp_path: Path, bucket: MemoryBucket) -> None:
    """With `ack: journal` the hub's disk is what its own senders have: files are told then,
    as far as its spool has room, and go to the bucket later, also after a kill.
    """
    node = Node(tmp_path, bucket, ack="journal", max_bytes=Sent(1).file.bytes).start()
    bucket.away()
    bring(node, Sent(1))
    assert arrivals_of(node).is_settled(Sent(1).name)
    node.reactor.run(lambda: arrivals_of(node).why_not(1))
    node.stop()
    bucket.back()
    again = Node(tmp_path, bucket, ack="journal").start()
    again.reactor.run(lambda: has(bucket, Sent(1)))
    bring(again, Sent(1))
    assert not (tmp_path / "spool" / Sent(1).name).exists()
    again.stop()


def test_a_kill_before_it_has_its_name(tmp_path: Path, bucket: MemoryBucket) -> None:
    """The start places it, and it goes on."""
    node = Node(tmp_path, bucket, ack="journal").start()
    bucket.away()
    bring(node, Sent(1))
    node.stop()
    record = arrivals_of(node).nodes["edge"]
    spool = tmp_path / "spool"
    (spool / Sent(1).name).rename(spool / record.placing)
    bucket.back()
    again = Node(tmp_path, bucket, ack="journal").start()
    again.reactor.run(lambda: has(bucket, Sent(1)))
    again.stop()


def test_two_hubs_in_one_bucket(tmp_path: Path, bucket: MemoryBucket) -> None:
    """What came to both is there once, so that a job has each event once, whichever of them
    has its file first.
    """
    one = Node(tmp_path / "one", bucket, ack="journal").start()
    other = Node(tmp_path / "other", bucket, ack="journal").start()
    bring(one, Sent(1), Sent(4))
    one.reactor.run(lambda: uploads_of(one).uploaded == 2)
    bring(other, Sent(1), Sent(4), Sent(7))
    other.reactor.run(lambda: uploads_of(other).uploaded == 3)
    assert uploads_of(other).problem is None
    assert [each.name for each in bucket.list("events-")] == [
        Sent(lsn).name for lsn in (1, 4, 7)
    ]
    one.stop()
    other.stop()


def test_the_rows_are_the_edges(tmp_path: Path, bucket: MemoryBucket) -> None:
    """What is in the bucket says whose it is; nothing of the hub's name is in it."""
    node = Node(tmp_path, bucket).start()
    bring(node, Sent(1))
    node.reactor.run(lambda: has(bucket, Sent(1)))
    rows = pq.read_table(io.BytesIO(bucket.objects[Sent(1).name])).to_pylist()
    assert [(row["node"], row["lsn"]) for row in rows] == [
        ("edge", 1), ("edge", 2), ("edge", 3),
    ]  # fmt: skip
    node.stop()
