"""An event's name is (node, incarnation, lsn): each incarnation accounts for its own lsns, and
where nobody knows what one acknowledged at its end, the audit does not say complete."""

import json
import shutil
import time
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.audit.sites import Site
from gateway.store.directories import Directories
from gateway.store.node.incarnation import Incarnation
from gateway.store.objects import node_record
from gateway.store.readers.lake import INTERNAL, accepted_folder
from gateway_testkit.bucket import MemoryBucket
from lives import current, publish

from .accounts import accept, claimed, end, journal, ledger, look, table, told

# -- what each has to account for -------------------------------------------------------


def test_a_rebuilt_node_is_complete_only_once_its_lost_end_is_accepted(
    tmp_path, capsys
):
    """Both incarnations' rows are in the tables, under the same lsns: no double and no hole;
    but what the first acknowledged behind its last row nobody knows."""
    table(tmp_path, "a", ("aaaa", range(1, 11)))
    table(tmp_path, "b", ("bbbb", range(1, 6)))
    journal(tmp_path, Incarnation("bbbb", 1, 0))
    status, said = told(capsys, tmp_path)
    assert status == 1
    assert (
        "unknown: gw (incarnation aaaa) is known up to lsn 10, and not to bbbb" in said
    )
    assert "hole:" not in said
    assert "double:" not in said
    assert (
        "INCOMPLETE: nobody knows what else was acknowledged (gw behind lsn 10)" in said
    )
    assert accept(capsys, tmp_path, "11-")[0] == 0
    status, said = told(capsys, tmp_path)
    assert status == 0
    assert (
        "complete: 15 events, each exactly once; what gw acknowledged behind lsn 10 is"
        " accepted as lost (the disk died)"
    ) in said
    rows = [line.split() for line in said.splitlines() if line.startswith("gw")]
    assert rows == [
        ["gw", "aaaa", "1", "10", "10", "0", "0", "0", "0"],
        ["gw", "bbbb", "1", "5", "5", "0", "0", "0", "0"],
    ]


def test_one_incarnation_hides_no_hole_of_another(tmp_path):
    """Lsns that both gave, and the tables have of one alone."""
    table(tmp_path, "a", ("aaaa", [1, 2, 5]), ("bbbb", range(1, 9)))
    ledger(tmp_path, ends={"gw": {"aaaa": end(5, exact=True)}})
    journal(tmp_path, Incarnation("bbbb", 1, 0))
    report = look(tmp_path)
    [hole] = report.holes["gw"]
    assert (hole.first, hole.last, hole.incarnation) == (3, 4, "aaaa")


def test_what_was_acknowledged_and_is_in_no_table_is_a_named_hole(tmp_path, capsys):
    """The successor found how far the one before had come; accepting the hole accepts the
    end that nobody knows, and --json has all of it."""
    table(tmp_path, "a", ("aaaa", range(1, 11)), ("bbbb", range(1711, 1716)))
    ledger(tmp_path, ends={"gw": {"aaaa": end(1710)}})
    journal(tmp_path, Incarnation("bbbb", 1711, 0))
    status, said = told(capsys, tmp_path)
    assert status == 1
    assert (
        "hole: gw (incarnation aaaa) lsn 11-1710: acknowledged by gw with ack: journal,"
        " and in no file that is here: its own disk may have it"
    ) in said
    assert (
        "unknown: gw (incarnation aaaa) is known up to lsn 1710 when last heard,"
        " 1970-01-01 00:01:40 UTC, and not to bbbb, which has the name now: what it"
        " acknowledged behind that nobody knows"
    ) in said
    status, said = accept(capsys, tmp_path, "11-1710")
    assert (status, said) == (0, "accepted: gw lsn 11-1710 of incarnation aaaa\n")
    status, said = told(capsys, tmp_path)
    assert status == 0
    assert said.splitlines()[-1] == (
        "complete: 15 events, each exactly once; 1,700 accepted as lost (the disk died)"
    )
    found = json.loads(told(capsys, tmp_path, "--json")[1])
    [one] = found["accepted"]
    assert (one["first"], one["last"], one["incarnation"]) == (11, 1710, "aaaa")
    assert "@" in one["who"]
    assert one["at"] > 0
    [unknown] = found["unknown"]
    assert (unknown["last"], unknown["accepted"]) == (1710, True)
    lives = {life["incarnation"]: life for life in found["nodes"][0]["incarnations"]}
    assert lives["aaaa"]["accepted"] == [{"first": 11, "last": 1710}]
    assert lives["bbbb"]["lsns"] == [{"first": 1711, "last": 1715}]


def test_a_clean_stop_ends_an_incarnation_and_no_directory(tmp_path, capsys):
    """It may have started again while nobody was there to hear of it.  With ack: spool it
    had acknowledged what was in the bucket; and somebody may say that it did not start."""
    table(tmp_path, "a", ("aaaa", range(1, 11)), ("bbbb", range(1, 6)))
    journal(tmp_path, Incarnation("bbbb", 1, 0))
    ledger(tmp_path, ends={"gw": {"aaaa": end(10, exact=True)}})
    [unknown] = look(tmp_path).unknown
    assert (unknown.incarnation, unknown.why.name) == ("aaaa", "ENDED")
    ended = {**end(10), "ack": "spool"}
    ledger(tmp_path, ends={"gw": {"aaaa": ended}})
    assert look(tmp_path).complete
    ledger(tmp_path, ends={"gw": {"aaaa": end(10)}})
    [unknown] = look(tmp_path).unknown
    assert unknown.why.name == "REPLACED"


def test_all_of_an_incarnation_may_be_lost(tmp_path):
    """It acknowledged, and left nothing but its successor's word."""
    table(tmp_path, "a", ("bbbb", range(8, 12)))
    ledger(tmp_path, ends={"gw": {"aaaa": end(7, exact=True)}})
    journal(tmp_path, Incarnation("bbbb", 8, 0))
    report = look(tmp_path)
    [hole] = report.holes["gw"]
    assert (hole.first, hole.last, hole.incarnation) == (1, 7, "aaaa")
    assert "acknowledged by gw with ack: journal" in (hole.note or "")


def test_a_directory_that_was_moved_goes_on(tmp_path):
    """Its journal knows those before it, and from where on each gave lsns: nothing is
    unknown, and a hole is that one's."""
    table(tmp_path, "a", ("aaaa", range(1, 8)), ("bbbb", range(11, 16)))
    this = Incarnation("bbbb", 11, 0, ("aaaa",), begins=(1,))
    journal(tmp_path, this)
    report = look(tmp_path)
    assert not report.unknown
    assert [(one.first, one.last) for one in report.holes["gw"]] == [(8, 10)]
    table(tmp_path, "b", ("aaaa", [8, 9, 10]))
    assert look(tmp_path).complete


def test_rows_that_name_no_incarnation_are_one_of_their_own(tmp_path):
    """Of whoever gave them: that somebody else gave the same lsns proves nothing."""
    table(tmp_path, "a", (None, [1, 2, 5]), ("bbbb", range(1, 9)))
    journal(tmp_path, Incarnation("bbbb", 1, 0))
    report = look(tmp_path)
    assert [(one.first, one.last, one.incarnation) for one in report.holes["gw"]] == [
        (3, 4, "")
    ]
    assert [one.incarnation for one in report.unknown] == [""]


def test_a_double_is_within_an_incarnation(tmp_path, capsys):
    """And is told with it."""
    one = table(tmp_path, "a", ("aaaa", range(1, 6)), ("bbbb", range(1, 6)))
    two = table(tmp_path, "b", ("bbbb", [3, 4]))
    ledger(tmp_path, ends={"gw": {"aaaa": end(5, exact=True)}})
    journal(tmp_path, Incarnation("bbbb", 1, 0))
    report = look(tmp_path)
    [double] = report.doubles["gw"]
    assert (double.first, double.last, double.incarnation) == (3, 4, "bbbb")
    assert sorted(double.files) == [str(one), str(two)]
    assert "double: gw (incarnation bbbb) lsn 3-4" in told(capsys, tmp_path)[1]


def test_of_gateways_that_nobody_says_anything_of_one_may_be_there(tmp_path):
    """Their journals are elsewhere: what goes on from another, as files say, is no alarm; of
    two that know nothing of each other one has ended, and nobody knows where."""
    table(tmp_path, "a", ("aaaa", range(1, 8)))
    assert look(tmp_path).complete
    table(tmp_path, "b", ("bbbb", range(8, 12)))
    records = {"aaaa": [1, ""], "bbbb": [8, "aaaa"]}
    ledger(tmp_path, records={"gw": records})
    assert look(tmp_path).complete
    table(tmp_path, "c", ("cccc", range(1, 4)))
    ledger(tmp_path, records={"gw": {**records, "cccc": [1, ""]}})
    [unknown] = look(tmp_path).unknown
    assert (unknown.incarnation, unknown.last) == ("cccc", 3)


# -- beside gateways ----------------------------------------------------------------------


def test_files_that_meet_are_two_incarnations(tmp_path):
    """A rebuilt node's file waits where one of before waits, or was archived, over the same
    lsns: both are there, and none twice."""
    old, new = tmp_path / "old", tmp_path / "new"
    publish(old, b"a,b,c")
    publish(new, b"x,y", b"z")
    for path in old.glob("spool/events-*"):
        shutil.copy(path, new / "archive" / path.name)
        shutil.copy(path, new / "spool" / path.name)
    report = look(new)
    assert not report.doubles
    assert not report.holes
    assert [one.incarnation for one in report.unknown] == [current(old)]
    assert report.nodes[0].in_spool == 6
    # Of one incarnation they would be.
    one = tmp_path / "one"
    publish(one, b"a,b,c", b"w,v")
    [path] = one.glob("spool/events-gw_*04-*05.parquet")
    path.rename(path.with_name(path.name.replace("04-", "03-")))
    report = look(one, keeps=True)
    assert [list(node.doubles) for node in report.nodes] == [[(3, 3)]]


def test_what_a_gateway_has_of_others_and_can_not_bring_is_told(tmp_path, bucket):
    """By its word, until it says another one, or who goes on in its directory does."""
    left = {"old_abc": ((1, 700),)}
    say_in(bucket, "aaaa", 0, left=left)
    [problem] = look(tmp_path, bucket=bucket).problems
    assert (problem.file, problem.why) == (
        "the gateway of node gw",
        "lsn 1 to 700 of old_abc lie in its spool, and it can not bring them anywhere",
    )
    say_in(bucket, "bbbb", 0, earlier=("aaaa",))
    assert look(tmp_path, bucket=bucket).complete


def test_two_that_are_alive_are_both_complete_and_told(tmp_path):
    """Both journals are seen: each vouches for itself; that there are two is a problem."""
    one, two = tmp_path / "one", tmp_path / "two"
    publish(one, b"a,b,c")
    publish(two, b"x,y")
    report = look(one, others=[Site(Directories.under(two))])
    assert not report.unknown
    assert not report.holes
    assert (report.events, report.nodes[0].in_spool) == (5, 5)
    [problem] = report.problems
    assert "another directory has a journal of this node, too" in problem.why


def say_in(bucket: MemoryBucket, this: str, lsn: int, **more: Any) -> None:
    """A word; *ago* it was written so many seconds."""
    ago = more.pop("ago", 0.0)
    how: dict[str, Any] = {"since": 1, "at": 9.0, "ack": "journal", **more}
    name = node_record.name_of("gw", this)
    bucket.replace(
        name, msgspec.json.encode(node_record.NodeRecord(this, lsn=lsn, **how))
    )
    bucket.written[name] -= ago


SILENT = node_record.SILENT_SECONDS + 60


def test_a_word_in_the_bucket_vouches(tmp_path, bucket):
    """No journal is seen: the gateway's word says who it is, who was before it in its
    directory, and how far it is."""
    table(tmp_path, "a", ("aaaa", range(1, 8)), ("bbbb", range(8, 12)))
    say_in(bucket, "bbbb", 11, since=8, earlier=("aaaa",))
    assert look(tmp_path, bucket=bucket).complete
    # What it has acknowledged by its journal is there, it says.
    say_in(bucket, "bbbb", 15, since=8, earlier=("aaaa",))
    report = look(tmp_path, bucket=bucket)
    assert report.complete
    assert (report.nodes[0].in_journal, report.worded) == (4, ["gw"])
    # By the spool: it would be in the bucket, or in the table.
    say_in(bucket, "bbbb", 15, since=8, earlier=("aaaa",), ack="spool")
    assert list(look(tmp_path, bucket=bucket).nodes[0].holes) == [(12, 15)]
    # It does not know who was before it.
    say_in(bucket, "bbbb", 11, since=8)
    [unknown] = look(tmp_path, bucket=bucket).unknown
    assert (unknown.incarnation, unknown.last) == ("aaaa", 7)
    say_in(bucket, "aaaa", 7, ack="spool", ago=SILENT)
    assert look(tmp_path, bucket=bucket).complete


def test_of_a_gateway_that_is_silent_nobody_knows_more(tmp_path, capsys, bucket):
    """With `ack: journal`: a word vouches for five minutes, or as long as it is told to."""
    table(tmp_path, "a", ("aaaa", range(1, 8)))
    say_in(bucket, "aaaa", 20)
    assert look(tmp_path, bucket=bucket).complete
    say_in(bucket, "aaaa", 20, ago=-SILENT)
    assert not look(tmp_path, bucket=bucket).complete, "a clock was wrong"
    say_in(bucket, "aaaa", 20, ago=SILENT)
    assert look(tmp_path, bucket=bucket, silent_after=SILENT + 60).complete
    report = look(tmp_path, bucket=bucket)
    assert not report.complete
    [life] = report.nodes[0].lives
    assert (list(life.has("unverified")), life.in_journal) == ([(8, 20)], 0)
    [unknown] = report.unknown
    assert (unknown.incarnation, unknown.last) == ("aaaa", 20)
    assert unknown.why.name == "SILENT"
    # With `ack: spool` all that it acknowledged is in the bucket.
    say_in(bucket, "aaaa", 7, ago=SILENT, ack="spool")
    assert look(tmp_path, bucket=bucket).complete


def test_a_gateway_that_stopped_in_good_order_has_said_all(tmp_path, bucket):
    """It was in files then.  If that is not in the tables, somebody has removed it, whether
    the gateway has begun again or not; if it has not, nobody knows, after a while."""
    table(tmp_path, "a", ("aaaa", range(1, 8)))
    say_in(bucket, "aaaa", 7, exact=True)
    assert look(tmp_path, bucket=bucket).complete
    for ago, unknown in ((0.0, []), (SILENT, ["ENDED"])):
        say_in(bucket, "aaaa", 20, exact=True, ago=ago)
        report = look(tmp_path, bucket=bucket)
        [hole] = report.holes["gw"]
        assert (hole.first, hole.last) == (8, 20)
        assert "acknowledged by gw with ack: journal" in (hole.note or "")
        assert [one.why.name for one in report.unknown] == unknown
    say_in(bucket, "bbbb", 20, since=21, earlier=("aaaa",))
    report = look(tmp_path, bucket=bucket)
    assert [(one.first, one.last) for one in report.holes["gw"]] == [(8, 20)]
    assert not report.unknown


def test_a_decommissioned_gateway_is_not_waited_for(tmp_path, bucket):
    """Somebody has said that nothing follows; it is asked for what it had acknowledged."""
    table(tmp_path, "a", ("aaaa", range(1, 8)))
    gone = {"exact": True, "ago": SILENT, "decommissioned": "sold"}
    say_in(bucket, "aaaa", 7, **gone)
    assert look(tmp_path, bucket=bucket).complete
    say_in(bucket, "aaaa", 8, **gone)
    assert list(look(tmp_path, bucket=bucket).nodes[0].holes) == [(8, 8)]


def test_what_a_gateway_that_was_killed_left_is_with_the_next_one(tmp_path, bucket):
    """In the same directory, as long as that one is heard."""
    table(tmp_path, "a", ("aaaa", range(1, 8)))
    say_in(bucket, "aaaa", 20, ago=SILENT)
    say_in(bucket, "bbbb", 20, since=21, earlier=("aaaa",))
    assert look(tmp_path, bucket=bucket).complete
    say_in(bucket, "bbbb", 20, since=21, earlier=("aaaa",), ago=SILENT)
    report = look(tmp_path, bucket=bucket)
    lives = {
        life.incarnation: list(life.has("unverified")) for life in report.nodes[0].lives
    }
    assert lives == {"aaaa": [(8, 20)]}
    assert [one.incarnation for one in report.unknown] == ["bbbb"]


def test_a_disk_that_was_set_back_is_told_by_the_word_of_before(tmp_path, bucket):
    """Nothing on it says so: it goes on from the one before, from an lsn which that one had
    acknowledged."""
    table(tmp_path, "a", ("aaaa", range(1, 8)), ("bbbb", range(8, 10)))
    say_in(bucket, "aaaa", 20, ago=SILENT)
    say_in(bucket, "bbbb", 9, since=8, earlier=("aaaa",))
    report = look(tmp_path, bucket=bucket)
    [unknown] = report.unknown
    assert (unknown.incarnation, unknown.last) == ("aaaa", 20)
    assert [(one.first, one.last) for one in report.holes["gw"]] == [(8, 20)]


def test_a_machine_that_was_resumed_beside_it_takes_nothing_from_it(tmp_path):
    """It went on from an earlier lsn when its clocks parted, and the first one still speaks."""
    bucket, now = MemoryBucket(), time.time()
    table(tmp_path, "a", ("aaaa", range(1, 21)), ("bbbb", range(8, 10)))
    began = {"at": now, "began": now - 500}
    say_in(bucket, "aaaa", 20, **began)
    say_in(bucket, "bbbb", 9, since=8, earlier=("aaaa",), **began)
    assert look(tmp_path, bucket=bucket).complete
    say_in(bucket, "bbbb", 9, since=8, earlier=("aaaa",), at=now, began=now + 1)
    [unknown] = look(tmp_path, bucket=bucket).unknown
    assert (unknown.incarnation, unknown.why.name) == ("aaaa", "SET_BACK")


@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_starts_without_number_are_one_directory(tmp_path, order, bucket):
    """A word names the fifty before its own; each was killed, and went on from the one
    before it, whichever name sorts first."""
    starts = [f"{n:010}" for n in range(130)]
    if order == "backwards":
        starts.reverse()
    table(tmp_path, "a", *((each, [1 + at]) for at, each in enumerate(starts)))
    for at, each in enumerate(starts):
        earlier = tuple(starts[max(0, at - 50) : at])
        last = each == starts[-1]
        how = {"since": 1 + at, "earlier": earlier, "ago": 0 if last else SILENT}
        say_in(bucket, each, 1 + at, **how)
    assert look(tmp_path, bucket=bucket).complete
    # That disk is lost, and nobody knows what the last one acknowledged.
    say_in(bucket, each, 1 + at, **{**how, "ago": SILENT})
    [unknown] = look(tmp_path, bucket=bucket).unknown
    assert unknown.incarnation == starts[-1]


@pytest.mark.parametrize("data", [b"\xff", b"{}", b'{"form": 99}'])
def test_a_word_that_is_not_understood_is_a_problem(tmp_path, data, bucket):
    """Damaged, or of a newer version: it is named, and nothing is written over it."""
    table(tmp_path, "a", ("aaaa", range(1, 8)))
    name = node_record.name_of("gw", "aaaa")
    bucket.replace(name, data)
    report = look(tmp_path, bucket=bucket)
    [problem] = report.problems
    assert f"/{name}: " in problem.why
    assert bucket.read(name) == data


@pytest.mark.parametrize("content", ["{", '{"form": 2, "committed": {}}'])
def test_a_ledger_that_is_not_understood_is_a_problem(tmp_path, content):
    """It may know of ends, and of what was accepted."""
    table(tmp_path, "a", ("aaaa", range(1, 8)))
    ledger(tmp_path)
    path = tmp_path / "lake" / INTERNAL / "events.json"
    path.write_text(content)
    assert len(look(tmp_path).problems) == 1
    assert path.read_text() == content


def test_a_ledger_that_is_believed_knows_incarnations(tmp_path):
    """A function of a user has the rows: holes are by incarnation all the same."""
    ledger(tmp_path, committed={"gw": {"aaaa": [[1, 2], [5, 5]], "bbbb": [[1, 9]]}})
    claimed(tmp_path, sink="function")
    report = look(tmp_path)
    assert report.told
    assert [(one.first, one.incarnation) for one in report.holes["gw"]] == [(3, "aaaa")]


def test_ids_of_two_incarnations_under_one_lsn_are_both_found(tmp_path, capsys):
    """--acknowledged looks at both, wherever they are; one on its way is there once."""
    old, new = tmp_path / "old", tmp_path / "new"
    publish(old, b'{"event.id":"a"}')
    publish(new, b'{"event.id":"b"}')
    [before], [after] = (list(one.glob("spool/events-*")) for one in (old, new))
    rows = pq.read_table(before, columns=["node", "lsn", "payload"])
    rows = rows.append_column("incarnation", pa.repeat(current(old), 1))
    again = pq.read_table(after, columns=["node", "lsn", "payload"])
    again = again.append_column("incarnation", pa.repeat(current(new), 1))
    path = table(new, "part")
    pq.write_table(pa.concat_tables([rows, again]), path)
    ids = tmp_path / "ids"
    ids.write_text("a\nb\n")
    found = json.loads(told(capsys, new, "--json", "--acknowledged", ids)[1])
    assert found["acknowledged"]["missing"] == []
    assert found["acknowledged"]["copies"] == 0


def test_what_a_file_says_of_its_incarnation_is_asked_for(tmp_path):
    """A machine was rebuilt, and the first files of its second life vanish: equal lsns of
    the first life satisfy nobody, as the files that are left say from which lsn on.
    """
    table(tmp_path, "one.parquet", ("a" * 10, range(1, 1001)))
    table(tmp_path, "two.parquet", ("b" * 10, range(401, 1001)))
    ledger(tmp_path, records={"gw": {"a" * 10: [1, ""], "b" * 10: [1, ""]}})
    report = look(tmp_path)
    assert not report.complete
    assert [(one.incarnation, one.first, one.last) for one in report.holes["gw"]] == [
        ("b" * 10, 1, 400)
    ]


def test_an_end_that_the_next_incarnation_goes_on_from_is_asked_for(tmp_path):
    """The last file of the one before vanishes: the next one's files say where that ended."""
    table(tmp_path, "one.parquet", ("a" * 10, range(1, 301)))
    table(tmp_path, "two.parquet", ("b" * 10, range(401, 501)))
    ledger(tmp_path, records={"gw": {"a" * 10: [1, ""], "b" * 10: [401, "a" * 10]}})
    report = look(tmp_path)
    assert [(one.incarnation, one.first, one.last) for one in report.holes["gw"]] == [
        ("a" * 10, 301, 400)
    ]


# -- who vouches, and who does not ----------------------------------------------------------


def test_who_was_heard_before_another_began_may_be_gone(tmp_path, bucket):
    """Another directory has the name since: until the first one says something again, nobody
    knows whether its disk is there."""
    table(tmp_path, "a", ("aaaa", range(1, 8)), ("bbbb", range(1, 4)))
    now = time.time()
    say_in(bucket, "aaaa", 7, ago=60.0)
    say_in(bucket, "bbbb", 3, at=now, began=now - 30.0)
    [unknown] = look(tmp_path, bucket=bucket).unknown
    assert (unknown.incarnation, unknown.why.name) == ("aaaa", "REPLACED")
    say_in(bucket, "aaaa", 7)
    assert look(tmp_path, bucket=bucket).complete


def test_an_older_copy_knows_not_all(tmp_path):
    """It goes on from one that came farther, and says so."""
    table(tmp_path, "a", ("aaaa", range(1, 8)), ("bbbb", range(8, 10)))
    this = Incarnation("bbbb", 8, 0, ("aaaa",), begins=(1,), lost={"aaaa": 7})
    journal(tmp_path, this)
    [unknown] = look(tmp_path).unknown
    assert (unknown.incarnation, unknown.why.name) == ("aaaa", "COPIED")


def test_of_several_that_go_on_from_one_the_greatest_counts(tmp_path, capsys):
    """A copy went on from an earlier lsn than the directory itself: that had all, and there
    were two is told."""
    table(tmp_path, "a", ("aaaa", range(1, 8)), ("bbbb", [5, 6]), ("cccc", [8, 9]))
    journal(tmp_path, Incarnation("cccc", 8, 0, ("aaaa",), begins=(1,)))
    records = {"aaaa": [1, ""], "bbbb": [5, "aaaa"], "cccc": [8, "aaaa"]}
    ended = {"bbbb": {**end(6, since=5), "ack": "spool"}}
    ledger(tmp_path, records={"gw": records}, ends={"gw": ended})
    status, said = told(capsys, tmp_path)
    assert status == 0
    assert "note: bbbb, cccc go on from aaaa of gw: copies of one directory ran" in said


def test_unverified_events_alone_are_not_complete(tmp_path, bucket):
    """Though somebody has accepted that nobody knows what came behind them."""
    table(tmp_path, "a", ("aaaa", range(1, 8)))
    say_in(bucket, "aaaa", 20, ago=SILENT)
    path = accepted_folder(tmp_path / "lake") / "one.json"
    path.parent.mkdir(parents=True)
    one = {"node": "gw", "first": 20, "last": None, "reason": "", "who": "", "at": 1.0}
    path.write_text(json.dumps(one))
    report = look(tmp_path, bucket=bucket)
    assert [one.accepted for one in report.unknown] == [True]
    assert (report.count("unverified"), report.complete) == (12, False)


def test_with_ack_spool_what_was_only_given_is_not_asked_for(tmp_path, bucket):
    """Its successor's first lsn is behind what lay in the journal, and was in no file: nobody
    was told that it is stored, and that disk is lost."""
    how = {"ack": "spool", "ago": SILENT}
    table(tmp_path, "a", ("aaaa", range(1, 8)))
    ledger(tmp_path, records={"gw": {"aaaa": [1, ""], "bbbb": [12, "aaaa"]}})
    say_in(bucket, "aaaa", 7, **how)
    say_in(bucket, "bbbb", 11, since=12, earlier=("aaaa",), **how)
    assert look(tmp_path, bucket=bucket).complete


def test_a_beginning_that_nobody_vouches_for_is_asked_for(tmp_path):
    """Lsns of a directory begin at 1: who gave those before its first one that is known
    nobody says any more, and they are nowhere."""
    table(tmp_path, "a", ("aaaa", range(5, 8)))
    ledger(tmp_path, records={"gw": {"aaaa": [5, ""]}})
    [hole] = look(tmp_path).holes["gw"]
    assert (hole.first, hole.last, hole.incarnation) == (1, 4, "aaaa")


def test_a_derived_incarnation_accounts_for_what_it_has(tmp_path):
    """Two copies gave other events under one name: what differs the job has taken under an
    incarnation of its own, and the first one is asked for all."""
    table(tmp_path, "a", ("aaaa", range(1, 11)), ("dddd", [5, 9]))
    journal(tmp_path, Incarnation("aaaa", 1, 0))
    records = {"gw": {"aaaa": [1, ""], "dddd": [1, "", "aaaa"]}}
    ledger(tmp_path, records=records)
    report = look(tmp_path)
    assert (report.complete, report.events) == (True, 12)
    ledger(tmp_path, records=records, committed={"gw": {"dddd": [[5, 5], [9, 10]]}})
    [hole] = look(tmp_path).holes["gw"]
    assert (hole.first, hole.last, hole.incarnation) == (10, 10, "dddd")
    table(tmp_path, "b", ("dddd", [5]))
    assert [list(life.doubles) for life in look(tmp_path).nodes[0].lives] == [
        [],
        [(5, 5)],
    ]
