"""Segments that are missing, damaged or put back: told, holes in the record, kept."""

import shutil

import pytest

from gateway.audit import audit
from gateway.event import Batch, Origin
from gateway.store.node.mark import Mark
from gateway.store.opening import MissingJournal
from gateway.store.spool import file_name
from incarnations import A, segment_name
from losses import damage, losses

from .conftest import public, publish_all, store, two_of_three_unpublished


def test_a_journal_that_is_missing_stops_the_start(start, directories, tmp_path):
    """Its disk is not mounted, say; with it everything is there, as if nothing was."""
    two_of_three_unpublished(start)
    journal = directories.journal_of("gw")
    away = journal.rename(tmp_path / "away")
    for _ in range(2):
        with pytest.raises(
            MissingJournal, match=r"lsn 2 to 3 .* mount its disk"
        ) as why:
            start("plain")
        assert f"make an empty file {journal}/catalog" in str(why.value)
        assert list(journal.iterdir()) == []
    journal.rmdir()
    away.rename(journal)
    opened = start("plain")
    assert opened.losses == []
    assert [(one.first_lsn, one.last_lsn) for one in opened.unpublished] == [(2, 3)]


@pytest.mark.parametrize("what", ["the journal", "its last segment"])
@pytest.mark.parametrize("remembering", [True, False])
def test_what_is_a_hole_and_comes_back_is_kept(
    start, directories, tmp_path, what, remembering
):
    """The start did without; what is put back is the only copy, so it is set aside."""
    two_of_three_unpublished(start)
    journal = directories.journal_of("gw")
    [path] = journal.glob("*2-*.journal")
    whole = path.read_bytes()
    if what == "the journal":
        away = journal.rename(tmp_path / "away")
        journal.mkdir()
        (journal / "catalog").touch()
    else:
        path.unlink()
    opened = start("plain", remembering=remembering)
    assert losses(opened) == [(2, 2)]
    publish_all(opened)
    if what == "the journal":
        shutil.rmtree(journal)
        away.rename(journal)
    else:
        path.write_bytes(whole)
    for _ in range(2):  # as long as a memory needs it
        opened = start("plain", remembering=remembering)
        aside = path.with_name(f"{path.name}.damaged")
        assert any(str(aside.name) in repair for repair in opened.repairs)
        assert (opened.unpublished, opened.losses) == ([], [])
        if not remembering:
            break
        assert path.read_bytes() == whole
    for each in opened.segments:
        opened.publisher.remove(each)
        opened.publisher.remove(each)
    assert aside.read_bytes() == whole
    assert list(journal.glob("*.journal")) == []
    opened = start("plain", remembering=remembering)
    assert [one for one in opened.repairs if "set aside" in one] == []
    assert (opened.losses, opened.first_lsn) == ([], 4)


@pytest.mark.parametrize("back", [["journal"], ["journal", "state"]])
def test_what_gave_lsns_that_were_given_again_is_kept(
    start, directories, tmp_path, back
):
    """Journal and state were away for a start, and its file has the same lsns: the segment
    that comes back is the only copy of other events.
    """
    two_of_three_unpublished(start)
    there = {
        "journal": directories.journal_of("gw"),
        "state": directories.state_of("gw"),
    }
    for name, path in there.items():
        path.rename(tmp_path / f"away-{name}")
    opened = start("plain")
    assert (opened.first_lsn, opened.losses) == (2, [])
    store(opened, "plain", b"x", b"y")
    publish_all(start("plain"))
    files = public(directories)
    for name in back:
        shutil.rmtree(there[name])
        (tmp_path / f"away-{name}").rename(there[name])
    [path] = there["journal"].glob("*2-*.journal")
    whole, aside = path.read_bytes(), path.with_name(f"{path.name}.damaged")
    opened = start("plain")
    assert any(aside.name in repair for repair in opened.repairs)
    assert (opened.unpublished, opened.first_lsn) == ([], 4)
    assert aside.read_bytes() == whole
    assert public(directories) == files


def test_a_segment_that_is_missing_between_others_is_a_hole(opened, start, directories):
    """Its events are in no file; put back, it is kept and not published again."""
    for bodies in ((b"a",), (b"b", b"c"), (b"d",)):
        store(opened, "plain", *bodies)
    path = directories.journal_of("gw") / segment_name(2)
    whole = path.read_bytes()
    path.unlink()
    opened = start("plain")
    assert losses(opened) == [(2, 2)]
    publish_all(opened)
    files = [directories.spool / name for name in public(directories)]
    assert [path.name for path in files] == [
        file_name("gw", A, 1, 1),
        file_name("gw", A, 4, 4),
    ]
    assert [*opened.lineage.holes[A]] == [(2, 3)]
    assert start("plain").losses == []
    path.write_bytes(whole)
    opened = start("plain")
    assert (opened.unpublished, opened.losses) == ([], [])
    assert path.with_name(f"{path.name}.damaged").read_bytes() == whole
    assert opened.first_lsn == 5


def test_holes_of_two_incarnations_are_in_the_record_of_each(start, directories):
    """All segments are gone: the audit misses each event once, and of the one that gave it."""
    for bodies in ((b"a", b"b"), (b"c", b"d")):
        opened = start("plain")
        store(opened, "plain", *bodies)
        opened.marker.write(opened.mark(opened.log.next_lsn - 1), now=True)
    for path in directories.journal_of("gw").glob("*.journal"):
        path.unlink()
    opened = start("plain")
    assert losses(opened) == [(1, 4)]
    publish_all(opened)
    first, second = [*opened.lineage.now.began][:2]
    wanted = {first: [(1, 2)], second: [(3, 4)]}
    assert {by: [*lsns] for by, lsns in opened.lineage.holes.items()} == wanted
    found = audit(directories, pause=lambda _: None).holes["gw"]
    assert {one.incarnation: [(one.first, one.last)] for one in found} == wanted
    assert len(found) == 2


@pytest.mark.parametrize("durable", [0, 2])
@pytest.mark.parametrize("starts", [1, 3])
def test_what_nobody_was_given_is_no_hole(opened, start, directories, durable, starts):
    """A damaged segment kept a lsn for each of its bytes, was removed by hand, and the
    daemon killed before what lies behind it was published: a hole is what the mark called
    durable."""
    store(opened, "plain", b"a", b"b")
    opened.marker.write(Mark(durable, durable), now=True)
    [path] = directories.journal_of("gw").glob("*.journal")
    whole = path.read_bytes()
    damage(path)
    for n in range(starts):
        opened = start("plain")
        assert opened.first_lsn == 1 + len(whole) + n
        if n:  # else it is killed within the second
            given = opened.first_lsn - 1
            opened.marker.write(opened.mark(given), now=True)
        store(opened, "plain", b"c")
    path.with_name(path.name + ".damaged").unlink()
    opened = start("plain")
    assert losses(opened) == [(1, len(whole))]
    assert sum(each.lost for each in opened.unpublished) == durable
    assert sum(each.events for each in opened.unpublished) == durable + starts
    publish_all(opened)
    holes = [*opened.lineage.holes.get(A, ())]
    assert holes == ([(1, durable)] if durable else [])
    opened.marker.write(opened.mark(opened.first_lsn - 1), now=True)
    assert opened.marker.read()[0].left_out == ()
    assert start("plain").losses == []


@pytest.mark.parametrize("fault", ["damaged", "cut"])
def test_a_damaged_segment_is_kept_after_a_crash_too(opened, start, directories, fault):
    """The power went when its file was public, and it was not set aside; of one that is
    cut nothing is left to keep."""
    opened.log.commit([Batch(Origin("plain", "l", "s", "p"), 1, 1, b"a" * 40, 40)])
    whole = opened.log.bytes
    store(opened, "plain", b"b" * 40)
    path = directories.journal_of("gw") / segment_name(1)
    data = path.read_bytes()
    opened.marker.write(Mark(2, 2, 0), now=True)
    if fault == "damaged":
        path.write_bytes(data.replace(b"aaa", b"aab", 1))
    else:
        path.write_bytes(data[:whole])
    opened = start("plain")
    left = path.read_bytes()
    publish_all(opened)
    path.write_bytes(left)
    path.with_name(f"{path.name}.damaged").unlink(missing_ok=True)
    opened = start("plain")
    assert (opened.unpublished, opened.repairs) == ([], [])
    aside = [left] if fault == "damaged" else []
    there = directories.journal_of("gw").glob("*.journal*")
    assert [each.read_bytes() for each in there] == aside


@pytest.mark.parametrize("remembering", [True, False])
def test_damaged_metadata_is_told_and_keeps_no_lsns(start, directories, remembering):
    """It has no events: a file that is set aside would hold a lsn for each of its bytes."""
    opened = start("plain", remembering=remembering)
    store(opened, "plain", b"m" * 40, b"n" * 40, count=0)
    [path] = directories.journal_of("gw").glob("*.journal")
    path.write_bytes(path.read_bytes().replace(b"mmm", b"mmn", 1))
    opened = start("plain", remembering=remembering)
    assert losses(opened) == [(1, 0)]
    for each in opened.segments:
        opened.publisher.remove(each)
    opened = start("plain", remembering=remembering)
    assert (opened.losses, opened.first_lsn) == ([], 1)
