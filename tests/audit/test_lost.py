"""Events that a disk did not give back, or a table: the audit misses them."""

import time

import msgspec
import pytest

from gateway.audit import audit
from gateway.audit.chain import verify_chains
from gateway.audit.sites import Answer, Site
from gateway.cli import main
from gateway.event import Batch, Origin, Rows
from gateway.sdk import summed
from gateway.store.directories import Directories
from gateway.store.hub.arrivals import Record
from gateway.store.journal import segment
from gateway.store.lsns import Lsns
from gateway.store.names import SpoolFile, file_name
from gateway.store.node.catalog import Catalog
from gateway.store.node.holes import Holes
from gateway.store.node.incarnation import Incarnation
from gateway.store.objects.node_record import NodeRecord, Relay, Speaker, at_hub, hear
from gateway.store.opening import Start, open_node
from gateway.store.spool.mending import Entry
from gateway.store.system.disk import RealDisk
from gateway.store.system.machine import Machine
from incarnations import A, segment_name

from .accounts import ledger, look, table


def split(body: bytes) -> Rows:
    """A decoder: events are separated by semicolons."""
    return Rows(body.split(b";"))


def test_holes_are_told_from_the_record(tmp_path):
    """What the journal's disk did not give back is in no file, and missing until it is accepted:
    the audit says why, by the catalog, or by the gateway's word where that is all it has.
    """
    journal = tmp_path / "journal" / "gw"
    for folder in (journal, tmp_path / "arrivals"):
        folder.mkdir(parents=True)
    catalog = Catalog(journal, RealDisk())
    catalog.put(Incarnation(A, 1, 0))
    for first, last in ((1, 3), (6, 9)):
        catalog.put(Entry(first, last, file_name("gw", A, first, last)))
    catalog.put(Holes(A, Lsns([(4, 5), (10, 12)])))
    table(tmp_path, "a.parquet", (A, [1, 2, 3, 6, 7, 8, 9]))
    report = look(tmp_path)
    assert not report.complete
    assert [(one.first, one.last) for one in report.holes["gw"]] == [(4, 5), (10, 12)]
    wanted = "the disk of gw did not give them back"
    assert {one.note for one in report.holes["gw"]} == {wanted}

    said = NodeRecord(
        A, 1, 12, 0.0, "journal", published=12, holes={A: ((4, 5), (10, 12))}
    )
    (journal / "catalog").unlink()
    (tmp_path / "arrivals" / f"gw_{A}").write_bytes(msgspec.json.encode(said))
    report = look(tmp_path)
    assert [(one.first, one.last) for one in report.holes["gw"]] == [(4, 5), (10, 12)]
    assert {one.note for one in report.holes["gw"]} == {wanted}


@pytest.fixture
def hub(tmp_path):
    """A hub's directories, whose tables have lsn 1 to 3 of an edge, and what that says."""
    (tmp_path / "arrivals").mkdir()
    table(tmp_path, "a.parquet", (A, [1, 2, 3]))

    def say(holes, lsn=9, ago=0.0, **more):
        at = time.time() - ago
        said = NodeRecord(A, 1, lsn, at, "journal", published=3, holes={A: holes})
        said = msgspec.structs.replace(said, heard=at, **more)
        word = tmp_path / "arrivals" / f"gw_{A}"
        word.write_bytes(msgspec.json.encode(said))
        return Directories.under(tmp_path)

    return say


def test_a_word_does_not_vouch_for_holes(hub, capsys, tmp_path):
    """Lsn 4 to 7 wait at the edge, 8 and 9 no disk has: neither its word nor its answer says
    that they are there, nor does one that is silent since.
    """
    directories = hub(((8, 9),))
    answer = Answer("gw", 9, 3, None, A, forwards=True)
    for gateways in ((), [("edge", lambda: answer)]):
        report = audit(directories, gateways=gateways, pause=lambda _: None)
        assert not report.complete
        [life] = report.nodes[0].lives
        assert (life.in_journal, list(life.holes)) == (4, [(8, 9)])
    assert main(["audit", "--data-dir", str(tmp_path)]) == 1
    assert "the disk of gw did not give them back" in capsys.readouterr().out
    report = audit(hub(((8, 9),), ago=3600.0), pause=lambda _: None)
    [life] = report.nodes[0].lives
    assert (list(life.has("unverified")), list(life.holes)) == ([(4, 7)], [(8, 9)])


def test_what_waits_at_a_hub_between_is_not_missing(hub, tmp_path):
    """An edge says that its hub has lsn 4 to 7: that hub hands on what its own can believe."""
    between, disk = tmp_path / "between", RealDisk()
    arrivals = hub((), published=7).arrivals
    said = next(at_hub(arrivals)).record
    hear(between, "gw", said, time.time(), disk)
    waits = [SpoolFile("gw", A, 4, 7), SpoolFile("gw", "b" * 10, 1, 7)]
    for waiting, missing in ((waits, []), (waits[1:], [(4, 7)])):
        [(*_, word)] = Relay(between, disk, lambda _, all_=waiting: all_)()
        (arrivals / f"gw_{A}").write_bytes(word)
        [life] = look(tmp_path).nodes[0].lives
        assert list(life.holes) == missing
        assert list(life.places["word"]) == [(4 if not missing else 8, 9)]


def test_what_came_to_one_of_several_hubs_is_asked_for(tmp_path):
    """An edge has changed its hub, and the first one has lost a file that had come."""
    one, two = tmp_path / "one", tmp_path / "two"
    for place, last in ((one, 9), (two, 5)):
        (place / "arrivals").mkdir(parents=True)
        came = summed.encode(Record(A, {A: ((1, last),)}))
        (place / "arrivals" / "gw").write_bytes(came)
    table(one, "a.parquet", (A, range(1, 6)))
    [hole] = look(one, others=[Site(Directories.under(two))]).holes["gw"]
    assert (hole.first, hole.last) == (6, 9)


def test_a_word_with_as_many_holes_as_it_names_vouches_behind_the_first(hub):
    """There may be older ones, which it does not name."""
    holes = tuple((10 + 2 * at, 10 + 2 * at) for at in range(100))
    answer = Answer("gw", 304, 3, None, A, forwards=True)
    for named, begin in ((holes[1:], 4), (holes, 10)):
        directories = hub(named, lsn=304)
        for gateways in ((), [("edge", lambda: answer)]):
            report = audit(directories, gateways=gateways, pause=lambda _: None)
            [life] = report.nodes[0].lives
            assert life.in_journal == 305 - begin - len(named)


def test_what_is_missing_beside_a_hole_has_a_reason_of_its_own(tmp_path):
    """The disk lost lsn 4 and 5, somebody the file behind them: who accepts the hole accepts no
    more.
    """
    journal = tmp_path / "journal" / "gw"
    journal.mkdir(parents=True)
    catalog = Catalog(journal, RealDisk())
    catalog.put(Incarnation(A, 1, 0))
    catalog.put(Entry(6, 9000, gone := file_name("gw", A, 6, 9000)))
    catalog.put(Holes(A, Lsns([(4, 5)])))
    found = look(tmp_path).holes["gw"]
    published = f"the journal published {gone}, which is gone"
    assert [(one.first, one.last, one.note) for one in found[1:]] == [
        (4, 5, "the disk of gw did not give them back"),
        (6, 9000, published),
    ]


@pytest.mark.parametrize(
    ("rot", "holes", "files", "notes"),
    [
        (b"b;c", [(2, 3)], [(1, 1), (4, 4)], []),
        (b"dddd", [(4, 4)], [(1, 3)], ["lsn 4: a hole"]),
    ],
)
def test_a_chain_goes_over_holes(tmp_path, rot, holes, files, notes):
    """Between two files and at the end: nothing was removed there.  A start after it does not
    tell the loss again, and the word has it.
    """
    directories = Directories.under(tmp_path)
    start = Start("gw", directories, Machine(), {"plain": split}, remembering=False)
    opened = open_node(start)
    origin = Origin("plain", "l", "s", "p")
    for body in (b"a", b"b;c", b"dddd"):
        count = body.count(b";") + 1
        opened.log.commit([Batch(origin, 1, count, body, len(body))])
    sealed = opened.log.seal()
    assert sealed is not None
    data = sealed.path.read_bytes()
    at = data.rindex(rot)
    sealed.path.write_bytes(data[:at] + b"?" + data[at + 1 :])
    done = opened.publisher.publish(sealed)
    assert [(one.first_lsn, one.last_lsn) for one in done] == files
    opened.marker.write(opened.mark(4), now=True)
    [chain] = verify_chains(directories, pause=lambda _: None).chains
    assert (chain.problems, chain.notes) == ([], notes)
    again = open_node(start)
    assert (again.losses, again.repairs, again.first_lsn) == ([], [], 5)
    word = Speaker(None, "gw", again.lineage, "journal", lambda: 4, lambda: 4).record()
    assert word.holes == {opened.lineage.now.id: tuple(holes)}


def test_what_the_ledger_has_and_no_table(tmp_path):
    """The newest file of an incarnation is gone: what the job has committed is asked for, also
    where another incarnation has these lsns.
    """
    table(tmp_path, "a.parquet", ("a" * 10, [1]), ("b" * 10, [1, 2, 3]))
    committed = {
        "gw": {"a" * 10: [[1, 2]], "b" * 10: [[1, 5]]},
        "gone": {"c" * 10: [[1, 3]]},
    }
    ledger(tmp_path, committed=committed)
    holes = {
        life.incarnation[0]: list(life.holes)
        for one in look(tmp_path).nodes
        for life in one.lives
    }
    assert holes == {"a": [(2, 2)], "b": [(4, 5)], "c": [(1, 3)]}


def test_a_place_of_lost_events_is_told_as_what_is_missing(tmp_path):
    """A segment that only says so has no damaged bytes."""
    path = tmp_path / "journal/gw" / segment_name(2)
    path.parent.mkdir(parents=True)
    path.write_bytes(segment.place_of_lost(2, 3))
    [problem] = look(tmp_path).problems
    assert problem.why == "missing from byte 36 on"


def test_what_was_moved_aside_is_known(tmp_path, capsys):
    """A file that the Spark job could not read and wrote down is told, and is no hole;
    what it did not write down is one."""
    table(tmp_path, "a.parquet", (None, [1, 2, 9]), column=False)
    hole = {"node": "gw", "first": 3, "last": 7, "file": "f", "why": "cut", "at": 1.0}
    ledger(tmp_path, holes=[hole])
    [node] = look(tmp_path).nodes
    assert (list(node.aside), list(node.holes)) == ([(3, 7)], [(8, 8)])
    assert (node.in_lake, node.in_journal) == (3, 0)

    ledger(tmp_path, holes=[{**hole, "last": 8}])
    assert main(["audit", "--data-dir", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "moved aside: gw lsn 3-8" in said
    assert "complete: 9 events, each exactly once but for 6" in said
    (tmp_path / "lake/.gateway/events.json").write_text("{")
    [node] = look(tmp_path).nodes
    assert list(node.holes) == [(3, 8)]
