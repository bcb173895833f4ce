"""Files of other gateways, where the spool is a bucket: they go there as our own do, and who
brings them is told when the hub's own senders would be.
"""

import errno
from pathlib import Path

import pytest

from bucket_node import Node, uploads_of
from forwarded import Sent
from gateway.sdk.arrivals import Unwelcome
from gateway.store.hub.arrivals import Arrivals
from gateway.store.system.disk import RealDisk
from gateway_testkit.bucket import MemoryBucket
from incarnations import A

pytestmark = pytest.mark.usefixtures("short_pauses")


def arrivals_of(node: Node) -> Arrivals:
    return node.storage._opened.arrivals


def bring(node: Node, *files: Sent) -> list[Sent]:
    """Those that were there, and need not be brought."""
    there = []
    for one in files:
        try:
            bringing = arrivals_of(node).bring(one.file, 0)
        except Unwelcome as why:
            if why.code != 412:
                raise
            there.append(one)
        else:
            bringing.write([one.data])
            bringing.finish()
    return there


def has(bucket: MemoryBucket, *files: Sent) -> bool:
    return all(bucket.objects.get(one.name) == one.data for one in files)


@pytest.mark.parametrize("ack", ["journal", "spool"])
def test_files_go_on_to_the_bucket(tmp_path, bucket, ack):
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


def test_nobody_is_told_before_it_is_in_the_bucket(tmp_path, bucket):
    """With `ack: spool`: not of a file that was brought, nor of what is here."""
    node = Node(tmp_path, bucket).start()
    bucket.away()
    bring(node, Sent(1))
    node.reactor.run(lambda: uploads_of(node).why)
    assert not arrivals_of(node).is_settled(Sent(1).name)
    assert arrivals_of(node).known("edge").lsns == {}
    with pytest.raises(Unwelcome, match="not in the bucket yet") as why:
        bring(node, Sent(1))
    assert why.value.code == 503
    bucket.back()
    node.reactor.run(lambda: arrivals_of(node).is_settled(Sent(1).name))
    assert has(bucket, Sent(1))
    assert arrivals_of(node).known("edge").lsns == {A: ((1, 3),)}
    [there] = bring(node, Sent(1))
    assert there.name == Sent(1).name
    node.stop()


def test_a_file_that_the_disk_gives_no_name(tmp_path, bucket, monkeypatch):
    """It comes again, and is on its way to the bucket once it has one."""
    node = Node(tmp_path, bucket).start()
    full = True
    rename = RealDisk.rename

    def renamed(disk: RealDisk, old: Path, new: Path) -> None:
        if full and new.name == Sent(1).name:
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(disk, old, new)

    monkeypatch.setattr(RealDisk, "rename", renamed)
    with pytest.raises(OSError, match="No space"):
        bring(node, Sent(1))
    assert arrivals_of(node).known("edge").lsns == {}
    full = False
    assert bring(node, Sent(1)) == []
    node.reactor.run(lambda: arrivals_of(node).is_settled(Sent(1).name))
    assert has(bucket, Sent(1))
    node.stop()


def test_a_bucket_that_is_away(tmp_path, bucket):
    """With `ack: journal` the hub's disk is what its own senders have: files are told then,
    as far as its spool has room, and go to the bucket later, also after a kill.
    """
    node = Node(tmp_path, bucket, ack="journal", max_bytes=Sent(1).file.size).start()
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


def test_a_kill_before_it_is_recorded(tmp_path, bucket):
    """It goes on from the spool, and is known again when it is asked for."""
    node = Node(tmp_path, bucket, ack="journal").start()
    bucket.away()
    bring(node, Sent(1))
    node.stop()
    (tmp_path / "arrivals/edge").unlink()
    bucket.back()
    again = Node(tmp_path, bucket, ack="journal").start()
    again.reactor.run(lambda: has(bucket, Sent(1)))
    [there] = bring(again, Sent(1))
    assert there.name == Sent(1).name
    assert arrivals_of(again).known("edge").lsns == {A: ((1, 3),)}
    again.stop()


def test_two_hubs_in_one_bucket(tmp_path, bucket):
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
