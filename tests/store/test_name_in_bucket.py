"""Whose a node's name in a bucket is: taken over, let go of, and gone on behind."""

from __future__ import annotations

import io
import random
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bucket_node import (
    Node,
    claimed,
    events,
    kill,
    reached,
    said,
    unclaimed,
    uploads_of,
)
from gateway.store import claim
from gateway.store.bucket import BucketError
from gateway.store.claim import Claim
from gateway.store.disk import RealDisk
from gateway.store.incarnation import KEY
from gateway.store.mark import NAME as MARK
from gateway.store.mark import Mark
from gateway.store.names import file_name
from gateway.store.statefile import StateFile
from gateway.store.word import Holder, Word, encode, name_of
from gateway_testkit.bucket import MemoryBucket
from incarnations import A, B

pytestmark = pytest.mark.usefixtures("short_pauses")


def test_what_arrives_after_the_name_was_taken_over_counts_for_nothing(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process stood still within a request, and the object is there when it goes on: it
    is not acknowledged, and stays here; the job takes what the other gateway has given."""
    monkeypatch.setattr(claim, "_ASK_AGAIN", 0.001)
    monkeypatch.setattr(claim, "PATIENCE", 0.0)
    one, two = tmp_path / "one", tmp_path / "two"
    paused = Node(one, bucket, claim=claimed(bucket, one)).start().sent(b"a")
    new: list[Node] = []

    def meanwhile(request: str, name: str) -> None:
        if request == "create" and name == file_name("gw", A, 2, 2) and not new:
            new.append(Node(two, bucket, claim=claimed(bucket, two)).start())
            new[0].sent(b"b", b"c")

    bucket.fault = meanwhile
    paused.send(b"lost")
    paused.reactor.run(lambda: uploads_of(paused).problem)
    assert paused.acknowledged == [1]
    assert new[0].acknowledged == [2, 3]
    paused.stop()
    new[0].stop()
    assert (one / "spool" / file_name("gw", A, 2, 2)).exists()


def test_who_was_taken_over_goes_on_behind_the_other_one(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started again it is another incarnation: what it gives from there on is no late one's."""
    monkeypatch.setattr(claim, "_ASK_AGAIN", 0.001)
    monkeypatch.setattr(claim, "PATIENCE", 0.0)
    one, two = tmp_path / "one", tmp_path / "two"
    Node(one, bucket, claim=claimed(bucket, one)).start().sent(b"a")
    Node(two, bucket, claim=claimed(bucket, two)).start().sent(b"b", b"c").stop()
    again = Node(one, bucket, claim=claimed(bucket, one))
    assert any("took this node's name over" in told for told in again.told)
    again.start().sent(b"d").stop()
    assert events(bucket) == {1: b"a", 2: b"b", 3: b"c", 4: b"d"}
    word = Claim(bucket, "gw", Holder.here(two, "")).read()
    assert word is not None
    (fence,) = word.fenced.values()
    assert fence == 1
    metadata = pq.read_metadata(
        io.BytesIO(
            next(data for name, data in bucket.objects.items() if "0004-" in name)
        )
    ).metadata
    assert word.last_lsn_of(metadata[KEY].decode()) is None


def test_a_directory_that_could_not_ask_gives_no_lsn_of_others(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket was away at its start; another one has had the name, and let go of it."""
    monkeypatch.setattr(claim, "_LOOK", 0.001)
    one, two = tmp_path / "one", tmp_path / "two"
    Node(one, bucket, claim=claimed(bucket, one)).start().sent(b"a").stop()
    Node(two, bucket, claim=claimed(bucket, two)).start().sent(b"b").stop()
    bucket.away()
    node = Node(one, bucket, ack="journal", claim=claimed(bucket, one))
    node.start().sent(b"c")
    bucket.back()
    node.reactor.run(lambda: uploads_of(node).conflicts)
    for told in ("has given lsns up to 2", "those behind 1"):
        assert told in str(uploads_of(node).problem)
    node.stop()
    assert events(bucket) == {1: b"a", 2: b"b"}


def test_a_gateway_whose_name_is_taken_over_stops(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more is uploaded or acknowledged, and both gateways are named."""
    monkeypatch.setattr(claim, "_LOOK", 0.001)
    mine = Claim(bucket, "gw", Holder.here(tmp_path / "one", ""))
    mine.take()
    node = Node(tmp_path / "one", bucket, claim=mine).start().sent(b"a")
    assert mine.me.incarnation
    other = Claim(bucket, "gw", Holder.here(tmp_path / "two", ""))
    bucket.replace(name_of("gw"), encode(Word(other.me)))
    uploads = node.storage.spool.uploads
    assert uploads is not None
    node.reactor.run(lambda: uploads.problem)
    for path in ("one", "two"):
        assert str(tmp_path / path) in str(uploads.problem)
    node.send(b"b")
    node.stop()
    assert node.acknowledged == [1]
    assert events(bucket) == {1: b"a"}
    assert other.read() == Word(other.me)  # the stop has left it alone


def test_a_new_disk_does_not_start_while_its_name_can_not_be_had(
    tmp_path: Path, bucket: MemoryBucket
) -> None:
    """Even if all else of the bucket answers: another gateway may give its lsns."""
    unclaimed(bucket)
    mine = claimed(bucket, tmp_path)
    with pytest.raises(BucketError, match=r"new.*who has node gw.*503"):
        Node(tmp_path, bucket, claim=mine)
    with pytest.raises(BucketError, match=r"new"):  # nor does the next one
        Node(tmp_path, bucket, claim=claimed(bucket, tmp_path))


def test_nothing_is_uploaded_before_the_name_is_had(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One failed request at the start, and another gateway may have it."""
    monkeypatch.setattr(claim, "_LOOK", 0.001)
    Node(tmp_path, bucket, claim=claimed(bucket, tmp_path)).start().sent(b"-").stop()
    unclaimed(bucket)
    mine = claimed(bucket, tmp_path)
    node = Node(tmp_path, bucket, ack="journal", claim=mine).start().sent(b"a")
    for word in ("node gw", "503"):
        assert word in str(uploads_of(node).problem)
    node.reactor.run(lambda: any((tmp_path / "spool").glob("events-*")))
    node.stop()
    assert events(bucket) == {1: b"-"}
    mine = claimed(bucket, tmp_path)
    node = Node(tmp_path, bucket, ack="journal", claim=mine).start()
    bucket.back()
    node.reactor.run(lambda: node.storage.spool.published_lsn == 2)
    assert uploads_of(node).problem is None
    node.stop()
    assert events(bucket) == {1: b"-", 2: b"a"}
    left = mine.read()
    assert left is not None
    assert left.holder is None


def test_a_lost_copy_of_what_we_have_put_there_is_nobody_elses(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog has its line, though its file is gone from this disk and the mark is a
    second old: senders are not held back for another gateway's sake."""
    monkeypatch.setattr(claim, "_LOOK", 0.001)
    mine = claimed(bucket, tmp_path)
    node = Node(tmp_path, bucket, ack="journal", claim=mine).start().sent(b"a")
    mark = tmp_path / "state/gw" / MARK
    node.stop()
    before = mark.read_bytes()
    mine = claimed(bucket, tmp_path)
    node = Node(tmp_path, bucket, ack="journal", claim=mine).start().sent(b"b")
    node.stop()
    mark.write_bytes(before)
    (tmp_path / "archive" / file_name("gw", A, 2, 2)).unlink()
    unclaimed(bucket)
    mine = claimed(bucket, tmp_path)
    node = Node(tmp_path, bucket, ack="journal", claim=mine).start()
    bucket.back()
    node.reactor.run(lambda: mine.held and not uploads_of(node).problem)
    node.sent(b"c").stop()
    assert uploads_of(node).conflicts == {}
    assert events(bucket) == {1: b"a", 2: b"b", 3: b"c"}


def test_who_has_taken_the_name_meanwhile_keeps_it(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that could not ask at its start learns of it, and uploads nothing."""
    monkeypatch.setattr(claim, "_LOOK", 0.001)
    monkeypatch.setattr(claim, "_ASK_AGAIN", 0.001)
    one = Node(tmp_path / "one", bucket, claim=claimed(bucket, tmp_path / "one"))
    one.start().sent(b"-").stop()
    other = claimed(bucket, tmp_path / "two")
    other.watch(pytest.fail)
    unclaimed(bucket)
    mine = claimed(bucket, tmp_path / "one")
    node = Node(tmp_path / "one", bucket, ack="journal", claim=mine).start().sent(b"a")
    bucket.back()
    node.reactor.run(lambda: uploads_of(node).conflicts)
    node.stop()
    assert events(bucket) == {1: b"-"}
    other.release()


@pytest.mark.parametrize("archived", [False, True])
def test_a_name_that_is_had_while_a_start_goes_on_is_looked_after(
    tmp_path: Path,
    bucket: MemoryBucket,
    monkeypatch: pytest.MonkeyPatch,
    archived: bool,
) -> None:
    """The journal was opened by what the bucket said when the name was not ours: another
    one had it since, has let go of it, and a job may have archived its files.
    """
    monkeypatch.setattr(claim, "_LOOK", 0.001)
    one, two = tmp_path / "one", tmp_path / "two"
    Node(one, bucket, claim=claimed(bucket, one)).start().sent(b"a").stop()
    unclaimed(bucket)
    mine = claimed(bucket, one)

    def others_turn() -> None:
        bucket.back()
        Node(two, bucket, claim=claimed(bucket, two)).start().sent(b"b", b"c").stop()
        for name in [*bucket.objects] if archived else ():
            if name.startswith("events-"):
                bucket.objects[f"archive/{name}"] = bucket.objects.pop(name)
        assert mine.look() is None
        assert mine.held

    node = Node(one, bucket, ack="journal", claim=mine, opened=others_turn)
    before = {name for name in bucket.objects if "events-" in name}
    node.start().sent(b"d")
    node.reactor.run(lambda: uploads_of(node).conflicts)
    for told in ("has given lsns up to 3", "those behind 1"):
        assert told in str(uploads_of(node).problem)
    node.stop()
    assert {name for name in bucket.objects if "events-" in name} == before


@pytest.mark.parametrize("lives", [True, False])
def test_files_of_another_node_go_there_unless_it_is_served(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    """A gateway that was taken over and got another `node` has files under lsns which the
    new one gives; after a mere renaming nobody answers, and they are uploaded."""
    monkeypatch.setattr(claim, "_LOOK", 0.001)
    monkeypatch.setattr(claim, "_ASK_AGAIN", 0.001)
    monkeypatch.setattr(claim, "PATIENCE", 60.0 if lives else 0.0)
    other = Claim(bucket, "old", Holder.here(tmp_path / "two", ""))
    other.take()
    if lives:
        other.watch(pytest.fail)
    spool = tmp_path / "one" / "spool"
    spool.mkdir(parents=True)
    names = [file_name("old", A, 1, 1), file_name("old", A, 2, 2)]
    for name in names:
        (spool / name).write_bytes(b"old")
    node = Node(tmp_path / "one", bucket, claim=claimed(bucket, tmp_path / "one"))
    node.start()
    node.reactor.run(lambda: not uploads_of(node)._waiting)
    node.stop()
    other.release()
    there = [name for name in names if name in bucket.objects]
    here = [name for name in names if (spool / name).exists()]
    assert (there, here) == (([], names) if lives else (names, []))


def test_the_name_stays_while_files_wait(tmp_path: Path, bucket: MemoryBucket) -> None:
    """Another gateway would give their lsns again, and it is to ask first."""
    mine = claimed(bucket, tmp_path)
    node = Node(tmp_path, bucket, ack="journal", claim=mine).start()
    bucket.objects[file_name("gw", A, 1, 1)] = b"of another one"
    node.sent(b"a")
    node.stop()
    word = mine.read()
    assert word is not None
    assert word.holder is not None
    assert word.holder.run == mine.me.run


@pytest.mark.parametrize("ack", ["spool", "journal"])
def test_a_clean_stop_lets_go_of_the_name(
    tmp_path: Path, bucket: MemoryBucket, ack: str
) -> None:
    """So that the next start need not ask; and leaves how far it was, for good."""
    mine = claimed(bucket, tmp_path / "one")
    node = Node(tmp_path / "one", bucket, ack=ack, claim=mine).start().sent(b"a", b"b")
    node.stop()
    left = reached(bucket)
    assert said(bucket).holder is None
    assert (left.lsn, left.since, left.ack, left.exact) == (2, 1, ack, True)
    assert left.incarnation == mine.me.incarnation
    again = claimed(bucket, tmp_path / "one")
    assert again.held
    assert not reached(bucket).exact, "it goes on"


@pytest.mark.parametrize("lost", ["killed", "stopped"])
@pytest.mark.parametrize(
    "gone",
    ["nothing", "the newest object", "all objects", "all, but in the archive"],
)
def test_a_new_disk_goes_on_behind_all_that_is_known(
    tmp_path: Path,
    bucket: MemoryBucket,
    monkeypatch: pytest.MonkeyPatch,
    gone: str,
    lost: str,
) -> None:
    """Objects were removed by somebody else, or archived by a job, then the disk is lost:
    no lsn is given again, and the word says how the one before ended."""
    monkeypatch.setattr(claim, "_ASK_AGAIN", 0.001)
    monkeypatch.setattr(claim, "PATIENCE", 0.0)
    one, two = tmp_path / "one", tmp_path / "two"
    node = Node(one, bucket, claim=claimed(bucket, one)).start().sent(b"a", b"b", b"c")
    before = reached(bucket)
    if lost == "stopped":
        node.stop()
    else:
        kill(node)
    names = sorted(name for name in bucket.objects if name.startswith("events"))
    for name in {"nothing": [], "the newest object": names[-1:]}.get(gone, names):
        data = bucket.objects.pop(name)
        if "archive" in gone:
            bucket.objects[f"_archive/{name}"] = data
    again = Node(two, bucket, claim=claimed(bucket, two))
    ended = said(bucket).ended[before.incarnation]
    assert (ended.acknowledged, ended.ack, ended.exact) == (3, "spool", True)
    assert ended.since == 1
    [told] = [one for one in again.told if "had acknowledged" in one]
    now = reached(bucket)
    for word in (before.incarnation, now.incarnation, "up to 3", "from lsn 4 on"):
        assert word in told
    missing = {"the newest object": "lsns 3 to 3", "all objects": "lsns 1 to 3"}
    assert missing.get(gone, "All of it is in the bucket") in told
    assert (now.since, now.lsn, now.exact) == (4, 3, False)
    again.start().sent(b"d").stop()
    assert again.acknowledged == [4]
    third = tmp_path / "three"
    assert Node(third, bucket, claim=claimed(bucket, third)).start().sent(
        b"e"
    ).acknowledged == [5]


def test_what_was_acknowledged_and_not_uploaded_is_a_named_hole(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `ack: journal`, killed, the disk lost: the log names the lsns, and the word says
    that nobody knows what was acknowledged behind them."""
    monkeypatch.setattr(claim, "_ASK_AGAIN", 0.001)
    one, two = tmp_path / "one", tmp_path / "two"
    mine = claimed(bucket, one)
    node = Node(one, bucket, ack="journal", claim=mine).start().sent(b"a")
    node.reactor.run(lambda: node.storage.spool.published_lsn == 1)

    def refuse(request: str, name: str) -> None:
        if request == "create" and name.startswith("events"):
            raise BucketError("503 SlowDown")

    bucket.fault = refuse
    node.sent(b"b", b"c")
    mine.look()
    before = reached(bucket)
    assert (before.lsn, before.ack, before.exact) == (3, "journal", False)
    node.sent(b"nobody has heard of it")
    kill(node)
    monkeypatch.setattr(claim, "PATIENCE", 0.0)
    bucket.back()
    again = Node(two, bucket, ack="journal", claim=claimed(bucket, two))
    [told] = [one for one in again.told if "had acknowledged" in one]
    assert "lsns 2 to 3 there is no file" in told
    assert "acknowledged by gw with `ack: journal` before its disk was lost" in told
    assert "not known to anybody" in told
    ended = said(bucket).ended[before.incarnation]
    assert (ended.acknowledged, ended.exact, ended.heard) == (3, False, before.at)
    assert again.start().sent(b"d").acknowledged == [4]
    again.stop()


@pytest.mark.parametrize(
    "way", ["fails", "reply lost", "killed before", "killed after"]
)
def test_with_ack_spool_the_word_never_says_less_than_was_acknowledged(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Whichever request fails or loses its reply, and whenever the disk is lost."""
    monkeypatch.setattr(claim, "PATIENCE", 0.0)
    monkeypatch.setattr(claim, "_ASK_AGAIN", 0.001)
    dice = random.Random(7)
    mine = claimed(bucket, tmp_path / "one")
    node = Node(tmp_path / "one", bucket, claim=mine).start()
    failing = True

    def fault(request: str, name: str) -> None:
        assert reached(quiet).lsn >= len(node.acknowledged)
        if failing and dice.random() < 0.4:
            raise BucketError(f"{request} {name}: 503")

    quiet = MemoryBucket()
    quiet.objects = bucket.objects
    setattr(bucket, "after" if way == "reply lost" else "fault", fault)
    for number in range(1, 15):
        if way.startswith("killed") and number == 10:
            # from here on nothing of it arrives, or one thing does without an answer
            def gone(request: str, name: str) -> None:
                bucket.fault = gone
                raise BucketError("the machine is lost")

            setattr(bucket, "fault" if way == "killed before" else "after", gone)
            node.send(b"lost")
            node.reactor.run(lambda: uploads_of(node).why)
            kill(node)
            break
        node.sent(b"%d" % number)
        assert reached(quiet).lsn >= number
    failing = False
    bucket.back()
    there = reached(bucket)
    assert there.lsn >= len(node.acknowledged)
    if not way.startswith("killed"):
        node.stop()
        assert reached(bucket).lsn == len(node.acknowledged)
        assert list(events(bucket)) == node.acknowledged
    else:
        two = tmp_path / "two"
        again = Node(two, bucket, claim=claimed(bucket, two)).start().sent(b"new")
        assert again.acknowledged[0] > max(node.acknowledged)
        assert said(bucket).ended[there.incarnation].exact


def test_an_older_copy_that_is_put_back_is_another_incarnation(
    tmp_path: Path, bucket: MemoryBucket
) -> None:
    """In its own directory, too: what the word says of its id it does not know."""
    root = tmp_path / "one"
    Node(root, bucket, claim=claimed(bucket, root)).start().sent(b"a").stop()
    before = reached(bucket).incarnation
    backup = shutil.copytree(root, tmp_path / "backup")
    Node(root, bucket, claim=claimed(bucket, root)).start().sent(b"b", b"c").stop()
    assert reached(bucket).incarnation == before
    for name in ("journal", "state", "archive", "spool"):
        for path in [*(root / name).rglob("*")]:
            if path.is_file():
                path.unlink()
    shutil.copytree(backup, root, dirs_exist_ok=True)
    for name in [name for name in bucket.objects if name.startswith("events")]:
        del bucket.objects[name]
    again = Node(root, bucket, claim=claimed(bucket, root)).start().sent(b"d")
    assert again.acknowledged == [4]
    assert reached(bucket).incarnation != before
    assert said(bucket).ended[before].acknowledged == 3
    assert any("does not know any more" in told for told in again.told)
    again.stop()
    before = reached(bucket).incarnation
    Node(root, bucket, claim=claimed(bucket, root)).start().stop()
    assert reached(bucket).incarnation == before


def test_an_older_journal_beside_its_newer_mark_ends_with_nobody_to_vouch_for_it(
    tmp_path: Path, bucket: MemoryBucket
) -> None:
    """Also where the mark is newer than the word: the word says how far it was heard of, and
    does not say that it is there still.
    """
    root = tmp_path / "one"
    node = Node(root, bucket, ack="journal", claim=claimed(bucket, root)).start()
    node.sent(b"a").stop()
    backup = shutil.copytree(root / "journal", tmp_path / "backup")
    node = Node(root, bucket, ack="journal", claim=claimed(bucket, root)).start()
    before = reached(bucket).incarnation
    kill(node.sent(b"b", b"c"))
    mark = Mark(durable=3, given=3, published=3, incarnation=before)
    StateFile(root / "state/gw" / MARK, Mark, RealDisk()).write(mark)
    for path in (root / "journal/gw").iterdir():
        path.unlink()
    shutil.copytree(backup, root / "journal", dirs_exist_ok=True)
    again = Node(root, bucket, ack="journal", claim=claimed(bucket, root)).start()
    again.sent(b"d")
    assert again.acknowledged == [4]
    assert any("nobody knows how much" in told for told in again.told)
    now = reached(bucket)
    assert now.incarnation != before
    assert before not in now.earlier
    assert not said(bucket).ended[before].exact
    again.stop()


@pytest.mark.parametrize("ack", ["spool", "journal"])
def test_a_directory_that_goes_on_vouches_for_those_before_it(
    tmp_path: Path, bucket: MemoryBucket, ack: str
) -> None:
    """Killed and started again, or moved: nothing has ended that is not known."""
    one, two = tmp_path / "one", tmp_path / "two"
    node = Node(one, bucket, ack=ack, claim=claimed(bucket, one)).start().sent(b"a")
    node.reactor.run(lambda: node.storage.spool.published_lsn == 1)
    kill(node)
    first = reached(bucket)
    Node(one, bucket, ack=ack, claim=claimed(bucket, one)).start().sent(b"b").stop()
    assert reached(bucket).incarnation == first.incarnation
    one.rename(two)
    moved = shutil.copytree(two, one)
    again = Node(moved, bucket, ack=ack, claim=claimed(bucket, moved))
    assert not [told for told in again.told if "had acknowledged" in told]
    assert said(bucket).ended == {}
    assert reached(bucket).earlier == (first.incarnation,)
    again.start().sent(b"c").stop()
    assert reached(bucket).lsn == 3


def test_from_one_way_to_acknowledge_to_the_other(
    tmp_path: Path, bucket: MemoryBucket
) -> None:
    """What was acknowledged from the journal counts, though no file has it yet."""
    mine = claimed(bucket, tmp_path)
    node = Node(tmp_path, bucket, ack="journal", claim=mine, roll_interval=3600).start()

    def refuse(request: str, name: str) -> None:
        if name.startswith("events"):
            raise BucketError("503 SlowDown")

    bucket.fault = refuse
    node.sent(b"a", b"b")
    kill(node)
    Node(tmp_path, bucket, claim=claimed(bucket, tmp_path))
    assert (reached(bucket).lsn, reached(bucket).ack) == (2, "spool")


def test_fences_are_gone_on_behind(tmp_path: Path, bucket: MemoryBucket) -> None:
    """And what came too late: its lsns were given, whatever became of them."""
    bucket.objects[name_of("gw")] = encode(Word(fenced={"5f0c": 7}))
    bucket.objects[f"_fenced/{file_name('gw', B, 8, 11)}"] = b"late"
    node = Node(tmp_path, bucket, claim=claimed(bucket, tmp_path)).start().sent(b"a")
    assert node.acknowledged == [12]
    node.stop()


def test_what_an_earlier_one_left_keeps_its_name_in_the_bucket(
    tmp_path: Path, bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that was moved with files and segments that are not uploaded yet."""
    monkeypatch.setattr(claim, "_ASK_AGAIN", 0.001)
    monkeypatch.setattr(claim, "PATIENCE", 0.0)
    one, two = tmp_path / "one", tmp_path / "two"
    node = Node(one, bucket, ack="journal", claim=claimed(bucket, one)).start()

    def refuse(request: str, name: str) -> None:
        if name.startswith("events"):
            raise BucketError("503 SlowDown")

    bucket.fault = refuse
    node.sent(b"a", b"b")
    first = reached(bucket).incarnation
    kill(node)
    shutil.copytree(one, two)
    bucket.back()
    moved = Node(two, bucket, ack="journal", claim=claimed(bucket, two))
    moved.start().sent(b"c").stop()
    found = {
        name: pq.read_metadata(io.BytesIO(data)).metadata[KEY].decode()
        for name, data in bucket.objects.items()
        if name.startswith("events")
    }
    *before, now = [found[name] for name in sorted(found)]
    assert set(before) == {first}
    assert now == reached(bucket).incarnation != first
    assert list(events(bucket)) == [1, 2, 3]
