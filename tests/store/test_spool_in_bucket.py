"""A node whose spool is a bucket: what is acknowledged is there, and stays so."""

import random
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bucket_node import Node, events, named, words
from checkpoints import Words
from gateway.audit import audit
from gateway.audit.acknowledged import search
from gateway.audit.sites import Site
from gateway.config import model
from gateway.config.bucket import BucketUrl
from gateway.event import Batch, Origin
from gateway.store.directories import Directories
from gateway.store.journal import Segment
from gateway.store.names import file_name
from gateway.store.node.catalog import Catalog
from gateway.store.node.removal_clock import Seen
from gateway.store.objects.bucket import BucketError
from gateway.store.objects.s3 import S3
from gateway.store.readers.consumers import ObjectMarks
from gateway.store.readers.job_word import JobBacklog, JobWriter
from gateway.store.system.disk import RealDisk
from gateway_testkit.bucket import MemoryBucket
from gateway_testkit.settings import options_of
from incarnations import A
from small_s3 import small_s3

pytestmark = pytest.mark.usefixtures("short_pauses")


def test_an_acknowledgement_means_that_the_object_is_there(tmp_path, bucket):
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
    assert again.acknowledged == [1]
    assert [*named(bucket).values()] == [b"a", b"b", b"d"]
    again.stop()


def test_a_new_disk_begins_anew_under_another_name(tmp_path, bucket):
    """It asks nobody where to begin: its files take no other one's place, and nothing waits."""
    Node(tmp_path / "one", bucket).start().sent(b"a", b"b").stop()
    before = len(bucket.requests)
    again = Node(tmp_path / "two", bucket)
    asked = sorted(request for request, _ in bucket.requests[before:])
    assert asked == ["list", "replace"], "its word, and who else there is"
    assert again.told == []
    again.start().sent(b"c").stop()
    assert again.acknowledged == [1]
    assert [*named(bucket).values()] == [b"a", b"b", b"c"]
    assert audit(Site(Directories.under(tmp_path / "two"), bucket=bucket)).complete


def test_what_each_incarnation_says_of_itself(tmp_path, bucket):
    """Before it gives an lsn, and at its end: how far it came, and that this is all."""
    node = Node(tmp_path, bucket).start()
    [word] = words(bucket).values()
    assert (word.since, word.lsn, word.exact, word.ack) == (1, 0, False, "spool")
    node.sent(b"a", b"b").stop()
    [word] = words(bucket).values()
    assert (word.lsn, word.exact) == (2, True)
    Node(tmp_path, bucket, ack="journal").start().stop()
    first, second = sorted(words(bucket).values(), key=lambda word: word.since)
    assert first == word
    assert (second.since, second.lsn, second.exact) == (3, 2, True)
    assert second.earlier == (first.incarnation,)


def test_a_disk_that_is_lost_leaves_no_holes(tmp_path, bucket):
    """A file on its way was told nobody; those behind it are not there before it."""
    node = Node(tmp_path / "one", bucket).start().sent(b"a")
    asked = threading.Event()
    second = file_name("gw", A, 2, 2)

    def fault(request: str, name: str) -> None:
        if request == "create" and name == second:
            asked.set()
            raise BucketError("it is lost on the way")

    bucket.fault = fault
    node.send(b"b")
    node.reactor.run(asked.is_set)
    for number, payload in enumerate((b"c", b"d"), 3):
        node.send(payload)
        made = tmp_path / "one" / "spool" / file_name("gw", A, number, number)
        node.reactor.run(made.exists)
    node.stop()
    bucket.back()
    shutil.rmtree(tmp_path / "one")
    Node(tmp_path / "two", bucket).start().sent(b"e").stop()
    assert [*named(bucket).values()] == [b"a", b"e"]
    assert node.acknowledged == [1]
    assert audit(Site(Directories.under(tmp_path / "two"), bucket=bucket)).complete


def test_a_new_disk_does_not_start_while_the_bucket_is_away(tmp_path, bucket):
    """If that were lost, too, nobody could miss what it had acknowledged.  One that was here
    before is known of.
    """
    node = Node(tmp_path / "one", bucket, ack="journal").start().sent(b"a")
    node.stop()
    bucket.away("503 SlowDown")
    with pytest.raises(BucketError, match="503"):
        Node(tmp_path / "two", bucket)
    again = Node(tmp_path / "one", bucket, ack="journal")
    again.start().sent(b"b")
    assert again.acknowledged == [2]
    bucket.back()
    again.reactor.run(lambda: again.storage.spool.published_lsn == 2)
    again.stop()
    assert events(bucket) == {1: b"a", 2: b"b"}


def test_with_ack_journal_a_bucket_that_is_away_fills_the_spool(tmp_path, bucket):
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


@pytest.mark.parametrize(("files", "rolls"), [(4, 1), (80, 10), (100_000, 60)])
def test_files_grow_while_the_job_is_behind(tmp_path, bucket, files, rolls):
    """As it says in the bucket, up to a bound: what is not there goes with a lost disk."""
    JobWriter(bucket)({"gw": files, "other": 1000})
    node = Node(tmp_path, bucket, ack="journal").start().sent(b"a")
    node.reactor.run(lambda: node.storage.journal.roll_factor == rolls)
    node.stop()


def test_a_silent_job_is_behind_by_what_came_since(bucket):
    """One that ended says nothing; nothing counts before that is sure."""
    now, uploaded = 0.0, 5
    backlog = JobBacklog(bucket, "gw", lambda: uploaded, lambda: now)
    JobWriter(bucket, wall_clock=lambda: 1.0)({"gw": 2})
    backlog.look()
    now, uploaded = 59.0, 64
    backlog.look()
    assert backlog.files == 2
    now, uploaded = 61.0, 66
    backlog.look()
    assert backlog.files == 2 + 61
    JobWriter(bucket, wall_clock=lambda: 2.0)({"gw": 3})
    backlog.look()
    assert backlog.files == 3
    bucket.objects[".gateway-job"] = b"of another version"
    backlog.look()
    assert backlog.files == 0


def test_a_clock_that_has_leapt_removes_no_object(tmp_path, bucket):
    """Which consumers have read, and which stays for `spool.retention` all the same."""
    disk, name = RealDisk(), file_name("gw", A, 1, 1)
    journal = Directories.under(tmp_path).journal_of("gw")
    disk.make_directory(journal)
    Catalog(journal, disk).put(Seen(1.0))
    ours: Any = {"ack": "journal", "after": "keep", "consumers": ["mine"]}
    node = Node(tmp_path, bucket, **ours).start()
    for lsn, payload in enumerate((b"a", b"b"), 1):
        node.sent(payload)
        node.reactor.run(lambda lsn=lsn: node.storage.spool.published_lsn == lsn)
    ObjectMarks(bucket, "mine").change(lambda mark: mark.with_done([name]))
    assert node.storage._consumed is not None
    assert node.storage._consumed.look() == 0
    node.stop()
    Catalog(journal, disk).put(Seen(time.time()))
    node = Node(tmp_path, bucket, **ours).start()
    node.reactor.run(lambda: name not in bucket.objects)
    node.stop()
    assert events(bucket) == {2: b"b"}


def test_senders_wait_until_what_was_left_is_in_the_bucket(tmp_path, bucket):
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


def test_what_waits_for_the_bucket_is_remembered_by_the_journal(
    tmp_path, bucket, monkeypatch
):
    """Checkpoints go on while the bucket is away, and lack what is not acknowledged: its
    segments stay until they have it, whatever became of the daemon meanwhile.
    """
    memory = Words()
    node = Node(tmp_path, bucket, memory=memory).start()
    storage = node.storage

    def send(payload: bytes) -> None:
        origin = Origin("plain", "l", "s-1", "[::1]:9")
        done = storage.journal.submit(Batch(origin, 1, 1, payload, len(payload)))
        done.addCallback(lambda stored: memory.words.append(stored.batch.body))
        done.addErrback(lambda _: None)

    send(b"before")
    node.reactor.run(lambda: memory.words)
    bucket.away()
    made: list[int] = []
    done = storage.spool._observer.done

    def note(sealed: Segment) -> None:
        done(sealed)
        made.append(sealed.last_lsn)

    monkeypatch.setattr(storage.spool._observer, "done", note)
    for lsn, payload in ((2, b"a"), (3, b"b")):
        send(payload)
        node.reactor.run(lambda lsn=lsn: lsn in made)
    checkpoint = storage.checkpoint
    node.reactor.advance(600)
    node.reactor.run(lambda: checkpoint.saved > 1 and not checkpoint.kept_bytes)
    assert storage.journal_bytes > 0
    copied = tmp_path.with_name("after a power cut")
    shutil.copytree(tmp_path, copied)
    left = Words()
    Node(copied, bucket, memory=left)
    assert left.words == [b"before", b"a", b"b"]
    bucket.back()
    node.reactor.run(lambda: memory.words == [b"before", b"a", b"b"])
    node.reactor.advance(600)
    node.reactor.run(
        lambda: not (checkpoint.kept_bytes or storage._handing.untold_bytes)
    )
    node.stop()


@pytest.fixture
def spool_of_another_time(tmp_path) -> Path:
    """A data directory whose spool was a directory until now."""
    node = Node(tmp_path, MemoryBucket(), ack="journal")
    node.storage.spool.uploads = None
    node.start().sent(b"a")
    node.stop()
    return tmp_path


def test_files_from_before_the_bucket_go_there(spool_of_another_time, bucket):
    """Who configures one moves what no job has taken yet."""
    node = Node(spool_of_another_time, bucket).start()
    node.reactor.run(lambda: node.storage.spool.published_lsn == 1)
    node.stop()
    assert events(bucket) == {1: b"a"}


def test_copies_stay_in_the_archive_for_readers(tmp_path, bucket):
    """Of old events, until retention or the disk's room says otherwise; with
    `spool.after: keep` too."""
    node = Node(tmp_path, bucket, after="keep").start().sent(b"a", b"b")
    node.stop()
    names = sorted(one for one in bucket.objects if one.startswith("events"))
    assert sorted(one.name for one in (tmp_path / "archive").iterdir()) == names
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_storm_of_faults_loses_and_doubles_nothing(tmp_path, monkeypatch):
    """500, 503, hung up on before an object was stored and after, and credentials that
    end and are renewed later: what is acknowledged is in the bucket, once, and the audit
    says that all is there."""
    dice = random.Random(13)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OLD")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    with small_s3() as server:
        server.valid = {"OLD"}
        settings = options_of(model.S3, endpoint=server.url, region="us-east-1")
        bucket = S3(BucketUrl("bucket", "prefix"), settings)
        node = Node(tmp_path, bucket).start()
        payloads = [b"%d" % number for number in range(40)]
        for number, payload in enumerate(payloads):
            faults = [dice.choice((500, 503, 0, -1, -1)) for _ in range(4)]
            server.faults = faults[: dice.randrange(5)]
            if number == 20:
                server.valid = {"NEW"}
                node.send(b"waits")
                node.reactor.run(lambda: node.storage.spool.uploads.why)
                assert len(node.acknowledged) == 20
                monkeypatch.setenv("AWS_ACCESS_KEY_ID", "NEW")
                node.reactor.run(lambda: len(node.acknowledged) == 21)
            node.sent(payload)
        node.stop()
        report = audit(Site(Directories.under(tmp_path), bucket=bucket))
        stored = MemoryBucket()
        stored.objects = {
            name.removeprefix("bucket/prefix/"): data
            for name, data in server.objects.items()
        }
    assert node.acknowledged == list(range(1, 42))
    assert list(events(stored)) == node.acknowledged
    assert [*events(stored).values()] == [*payloads[:20], b"waits", *payloads[20:]]
    assert report.complete
    assert [one.in_spool for one in report.nodes] == [41]
    assert server.keys[-1] == "NEW"


def test_files_from_before_the_bucket_are_not_taken_for_copies(tmp_path, bucket):
    """With `spool.after: keep` they went to the archive and are nowhere else: a disk that
    is short takes what is in the bucket."""
    node = Node(tmp_path, None, ack="journal", after="keep").start().sent(b"a")
    archive = tmp_path / "archive"
    node.reactor.run(lambda: any(archive.iterdir()))
    node.stop()
    kept = {path.name for path in archive.iterdir()}
    node = Node(tmp_path, bucket).start().sent(b"b")
    node.stop()
    assert events(bucket) == {2: b"b"}
    assert {path.name for path in archive.iterdir()} == kept | {
        name for name in bucket.objects if name.startswith("events")
    }
    again = Node(tmp_path, bucket)
    again.storage.spool._expiry.make_room(lambda: False)
    assert {path.name for path in archive.iterdir()} == kept


def test_the_audit_counts_what_is_in_the_bucket(tmp_path, bucket):
    """Beside what is on its way there; what is gone from both is missing."""
    Node(tmp_path, bucket).start().sent(b"a", b"b").stop()
    shutil.rmtree(tmp_path / "archive")  # those are copies
    names = sorted(one for one in bucket.objects if one.startswith("events"))
    directories = Directories.under(tmp_path)
    # a kill between the PUT and the move
    (directories.spool / names[1]).write_bytes(bucket.objects[names[1]])
    place = Site(directories, bucket=bucket)
    report = audit(place, pause=lambda _: None)
    assert report.complete
    assert [(node.node, node.last, node.in_spool) for node in report.nodes] == [
        ("gw", 2, 2)
    ]
    data = bucket.objects.pop(names[0])
    report = audit(place, pause=lambda _: None)
    assert [(one.first, one.last) for one in report.holes["gw"]] == [(1, 1)]
    bucket.objects[names[0]] = data[:-9] + bytes(9)
    report = audit(place, pause=lambda _: None)
    assert not report.complete
    [problem] = report.problems
    assert problem.file == f"s3:/bucket/prefix/{names[0]}"


def test_the_audit_finds_acknowledged_ids_in_the_bucket(tmp_path, bucket):
    """What senders count on."""
    payload = b'{"event": {"id": "e-1"}}'
    Node(tmp_path, bucket).start().sent(payload).stop()
    place = Site(Directories.under(tmp_path), bucket=bucket)
    found = search(place, ["e-1", "e-2"], {})
    assert found.missing == ["e-2"]
