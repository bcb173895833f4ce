"""A node whose spool is a bucket: what is acknowledged is there, and stays so."""

from __future__ import annotations

import hashlib
import io
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from twisted.internet.defer import Deferred

from gateway.audit import audit
from gateway.audit.acknowledged import search
from gateway.config import model
from gateway.event import Batch, Origin, Rows
from gateway.store.bucket import BucketError
from gateway.store.digests import PREVIOUS_KEY
from gateway.store.directories import Directories
from gateway.store.disk import RealDisk
from gateway.store.names import file_name
from gateway.store.spool import uploads
from gateway.store.storage import Settings, Storage, StorageCallbacks
from gateway.testing.bucket import MemoryBucket
from gateway.testing.reactor import QueuedReactor
from gateway.testing.settings import options_of


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_FIRST_PAUSE_SECONDS", 0.0001)
    monkeypatch.setattr(uploads, "_LONGEST_PAUSE_SECONDS", 0.001)


class Node:
    """One life of a gateway's storage."""

    def __init__(
        self, root: Path, bucket: MemoryBucket, *, ack: str = "spool", **spool: Any
    ) -> None:
        self.reactor = QueuedReactor()
        self.root = root
        self.told: list[str] = []
        self.storage = Storage(
            Settings(
                node="gw",
                directories=Directories.under(root),
                spool=options_of(model.Spool, roll_interval=0.01, **spool),
                acknowledge_when_published=ack == "spool",
            ),
            RealDisk(),
            self.reactor,
            {"plain": lambda body: Rows([body])},
            StorageCallbacks(
                fatal=pytest.fail,
                damaged=lambda losses, repairs: self.told.extend(repairs),
                noticed=self.told.append,
            ),
            remembering=False,
            bucket=bucket,
            in_thread=self.reactor.in_thread,
        )
        self.storage.recover({})
        self.acknowledged: list[int] = []

    def start(self) -> Node:
        self.storage.start()
        self.reactor.run(lambda: self.storage.ready.called)
        return self

    def send(self, payload: bytes) -> None:
        origin = Origin("plain", "l", "s-1", "[::1]:9")
        done = self.storage.journal.submit(Batch(origin, 1, 1, payload, len(payload)))
        done.addCallback(lambda stored: self.acknowledged.append(stored.lsn))
        done.addErrback(lambda _: None)

    def sent(self, *payloads: bytes) -> Node:
        """One after the other, each acknowledged."""
        for payload in payloads:
            before = len(self.acknowledged)
            self.send(payload)
            self.reactor.run(lambda before=before: len(self.acknowledged) > before)
        return self

    def stop(self) -> None:
        self.reactor.wait(Deferred.fromCoroutine(self.storage.stop()))


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()


def events(bucket: MemoryBucket) -> dict[int, bytes]:
    """What is in the bucket's files, by lsn; each once."""
    found: dict[int, bytes] = {}
    for name, data in sorted(bucket.objects.items()):
        if name.startswith("events-"):
            table = pq.read_table(io.BytesIO(data), columns=["lsn", "payload"])
            for row in table.to_pylist():
                assert row["lsn"] not in found
                found[row["lsn"]] = row["payload"]
    return found


def test_an_acknowledgement_means_that_the_object_is_there(
    tmp_path: Path, bucket: MemoryBucket
) -> None:
    """With `ack: spool`; the machine and its disk may be gone a moment later."""
    node = Node(tmp_path / "one", bucket).start().sent(b"a", b"b")
    assert events(bucket) == {1: b"a", 2: b"b"}
    bucket.away()
    node.send(b"c")
    node.reactor.run(lambda: node.storage.spool.uploads.why)
    assert node.acknowledged == [1, 2]
    assert node.storage.spool.published_lsn == 2
    node.stop()  # it does not wait for the bucket for ever
    assert node.acknowledged == [1, 2]
    shutil.rmtree(tmp_path / "one")
    bucket.back()
    again = Node(tmp_path / "two", bucket).start().sent(b"d")
    assert again.acknowledged == [3]
    assert events(bucket) == {1: b"a", 2: b"b", 3: b"d"}
    again.stop()


def test_a_new_disk_goes_on_behind_what_is_in_the_bucket(
    tmp_path: Path, bucket: MemoryBucket
) -> None:
    """Its lsns are given once, its files go on with the chain, and the log says so."""
    Node(tmp_path / "one", bucket).start().sent(b"a", b"b").stop()
    names = [one for one in bucket.objects if one.startswith("events")]
    del bucket.objects[names[0]]  # the job has taken it
    again = Node(tmp_path / "two", bucket)
    told = " ".join(again.told)
    assert f"s3://bucket/prefix has {names[1]}, by incarnation " in told
    assert "unknown" not in told
    again.start().sent(b"c").stop()
    assert events(bucket) == {2: b"b", 3: b"c"}
    metadata = pq.read_metadata(io.BytesIO(bucket.objects[file_name("gw", 3, 3)]))
    assert (
        metadata.metadata[PREVIOUS_KEY]
        == hashlib.sha256(bucket.objects[names[1]]).hexdigest().encode()
    )


def test_a_new_disk_does_not_start_while_the_bucket_is_away(
    tmp_path: Path, bucket: MemoryBucket
) -> None:
    """It would give lsns a second time; one that was here before knows its own."""
    node = Node(tmp_path / "one", bucket, ack="journal").start().sent(b"a")
    node.stop()
    bucket.away("503 SlowDown")
    with pytest.raises(BucketError, match="503"):
        Node(tmp_path / "two", bucket)
    again = Node(tmp_path / "one", bucket, ack="journal")
    assert "can not be listed" in again.told[0]
    again.start().sent(b"b")
    assert again.acknowledged == [2]
    bucket.back()
    again.reactor.run(lambda: again.storage.spool.published_lsn == 2)
    again.stop()
    assert events(bucket) == {1: b"a", 2: b"b"}


def test_with_ack_journal_a_bucket_that_is_away_fills_the_spool(
    tmp_path: Path, bucket: MemoryBucket
) -> None:
    """Then senders are held back, as by a full disk, and go on when it is back."""
    bucket.away("500 Internal Server Error")
    with pytest.raises(BucketError):
        Node(tmp_path, bucket)
    bucket.back()
    node = Node(tmp_path, bucket, ack="journal", max_bytes=12_000).start()
    bucket.away("500 Internal Server Error")
    number = 0
    while node.storage.journal.why_full is None:
        number += 1
        node.sent(b"%d" % number)
        assert number < 100
    assert "s3://bucket/prefix" in node.storage.journal.why_full
    assert events(bucket) == {}
    bucket.back()
    node.reactor.run(lambda: node.storage.journal.why_full is None)
    node.sent(b"last")
    node.reactor.run(lambda: node.storage.spool.published_lsn == number + 1)
    node.stop()
    assert list(events(bucket)) == list(range(1, number + 2))


def test_senders_wait_until_what_was_left_is_in_the_bucket(
    tmp_path: Path, bucket: MemoryBucket
) -> None:
    """With `ack: spool`: who resumes is told how far it is, and that acknowledges it."""
    node = Node(tmp_path, bucket).start()
    bucket.away()
    node.send(b"a")
    node.reactor.run(lambda: node.storage.spool.uploads.why)
    node.stop()
    again = Node(tmp_path, bucket)
    again.storage.start()
    assert not again.storage.ready.called
    bucket.back()
    again.reactor.run(lambda: again.storage.ready.called)
    assert events(bucket) == {1: b"a"}
    again.stop()


@pytest.fixture
def spool_of_another_time(tmp_path: Path) -> Path:
    """A data directory whose spool was a directory until now."""
    node = Node(tmp_path, MemoryBucket(), ack="journal")
    node.storage.spool.uploads = None
    node.start().sent(b"a")
    node.stop()
    return tmp_path


def test_files_from_before_the_bucket_go_there(
    spool_of_another_time: Path, bucket: MemoryBucket
) -> None:
    """Who configures one moves what no job has taken yet."""
    node = Node(spool_of_another_time, bucket).start()
    node.reactor.run(lambda: node.storage.spool.published_lsn == 1)
    node.stop()
    assert events(bucket) == {1: b"a"}


def test_copies_stay_in_the_archive_for_readers(
    tmp_path: Path, bucket: MemoryBucket
) -> None:
    """Of old events, until retention or the disk's room says otherwise; with
    `spool.after: keep` too."""
    node = Node(tmp_path, bucket, after="keep").start().sent(b"a", b"b")
    node.stop()
    names = sorted(one for one in bucket.objects if one.startswith("events"))
    assert sorted(one.name for one in (tmp_path / "archive").iterdir()) == names
    assert list((tmp_path / "spool").iterdir()) == []


def test_the_audit_counts_what_is_in_the_bucket(
    tmp_path: Path, bucket: MemoryBucket
) -> None:
    """Beside what is on its way there; what is gone from both is missing."""
    Node(tmp_path, bucket).start().sent(b"a", b"b").stop()
    shutil.rmtree(tmp_path / "archive")  # those are copies
    names = sorted(one for one in bucket.objects if one.startswith("events"))
    directories = Directories.under(tmp_path)
    # a kill between the PUT and the move
    (directories.spool / names[1]).write_bytes(bucket.objects[names[1]])
    report = audit(directories, bucket=bucket, pause=lambda _: None)
    assert report.complete
    assert [(node.node, node.last, node.in_spool) for node in report.nodes] == [
        ("gw", 2, 2)
    ]
    data = bucket.objects.pop(names[0])
    report = audit(directories, bucket=bucket, pause=lambda _: None)
    assert [(one.first, one.last) for one in report.holes["gw"]] == [(1, 1)]
    bucket.objects[names[0]] = data[:-9] + bytes(9)
    report = audit(directories, bucket=bucket, pause=lambda _: None)
    assert not report.complete
    [problem] = report.problems
    assert problem.file == f"s3:/bucket/prefix/{names[0]}"


def test_the_audit_finds_acknowledged_ids_in_the_bucket(
    tmp_path: Path, bucket: MemoryBucket
) -> None:
    """What senders count on."""
    payload = b'{"event": {"id": "e-1"}}'
    Node(tmp_path, bucket).start().sent(payload).stop()
    found = search(Directories.under(tmp_path), ["e-1", "e-2"], {}, bucket)
    assert found.missing == ["e-2"]
