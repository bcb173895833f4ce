"""What an incarnation says of itself, in a bucket."""

import msgspec

from gateway.store.lsns import Lsns
from gateway.store.names import file_name
from gateway.store.node import incarnation
from gateway.store.node.catalog import Catalog
from gateway.store.node.holes import Holes
from gateway.store.node.incarnation import Incarnation
from gateway.store.node.lineage import Lineage
from gateway.store.node.lives import Heard, Lives, Reason
from gateway.store.objects import node_record
from gateway.store.objects.node_record import (
    NodeRecord,
    Relay,
    Speaker,
    at_hub,
    forget_some,
    hear,
    name_of,
    read_all,
)
from gateway.store.system.disk import RealDisk
from gateway_testkit.bucket import MemoryBucket


def test_another_gateway_of_this_name_is_noticed(tmp_path):
    """By its word that is newer than our first one; not one that was killed before, nor those
    of this directory.
    """
    bucket = MemoryBucket()

    def passes(seconds: float) -> None:
        for name in bucket.written:
            bucket.written[name] -= seconds

    def speaker(this: Incarnation) -> Speaker:
        lineage = Lineage(this, Catalog(tmp_path, RealDisk()))
        return Speaker(bucket, "gw", lineage, "journal", lambda: 0, lambda: 0)

    def says(own: Speaker) -> str:
        for _ in range(5):
            own.say()
        return own.twin

    killed, earlier = Incarnation("killed", 1, 0), Incarnation("earlier", 1, 0)
    speaker(killed).say()
    passes(10)
    own = speaker(Incarnation("own", 1, 0, (earlier.id,)))
    assert says(own) == ""
    passes(10)
    speaker(earlier).say()
    assert says(own) == ""
    passes(10)
    speaker(Incarnation("another", 1, 0)).say()
    assert says(own) == "another"
    passes(1000)
    assert says(own) == ""


def numbered(at: int) -> str:
    """An id."""
    return f"{at:010}".translate(str.maketrans("0123456789", "abcdefghij"))


def test_records_do_not_grow_with_each_start(tmp_path, monkeypatch):
    """Of a directory fifty stay, one of each five hundred (here: fifty), and those that came farther than
    the directory knows; though all files stay in the bucket, each end is vouched for."""
    monkeypatch.setattr(node_record, "_STAYS", 50)
    monkeypatch.setattr(incarnation, "_MOST_EARLIER", 100)
    bucket = MemoryBucket()
    catalog = Catalog(tmp_path, RealDisk())
    starts: list[Incarnation] = []
    for at in range(230):
        this = Incarnation.new(1 + at, (7, 0), starts[-1] if starts else None)
        this = msgspec.structs.replace(this, id=numbered(at + 1))
        starts.append(this)
        acknowledged = 1 + at if at != 3 else 99
        Speaker(
            bucket,
            "gw",
            Lineage(this, catalog),
            "journal",
            lambda acknowledged=acknowledged: acknowledged,
            lambda: 0,
        ).say()
        for name in bucket.written:
            bucket.written[name] -= 1
    stranger = Incarnation("z" * 10, 1, 8)
    Speaker(
        bucket, "gw", Lineage(stranger, catalog), "journal", lambda: 0, lambda: 0
    ).say()
    said = [heard.record for heard in read_all(bucket, "gw") if heard.record]
    ids = [each.id for each in starts]
    stay = {ids[3], *ids[49::50], stranger.id, *ids[-51:]}
    assert {each.incarnation for each in said} == stay
    heard = [Heard(each, 1.0, lately=each.incarnation == ids[-1]) for each in said]
    lives = Lives("gw", heard)
    lives.node_records(heard)
    lives.settle()
    found = [lives.reason(each, 1 + at) for at, each in enumerate(ids)]
    assert set(found) == {Reason.CONTINUED, Reason.HEARD}
    assert lives.reason(ids[3], 99) is Reason.SET_BACK


def test_whoever_reads_a_word_has_those_that_it_was_said_behind(tmp_path):
    """What others have said to it goes first."""
    bucket = MemoryBucket()
    lineage = Lineage(Incarnation("a" * 10, 1, 8), Catalog(tmp_path, RealDisk()))
    edge = name_of("edge", "b" * 10)
    Speaker(
        bucket, "gw", lineage, "journal", lambda: 0, lambda: 0,
        relay=lambda: iter([("edge", "b" * 10, b"{}")]),
    ).say()  # fmt: skip
    put = [name for request, name in bucket.requests if name.startswith(".gateway")]
    assert put[:2] == [edge, name_of("gw", "a" * 10)]


def test_a_record_of_very_many_holes_has_the_newest(tmp_path):
    """It says up to which lsn there may be others, and is no longer than a hub takes."""
    ids, far = [numbered(at) for at in range(200)], 2**52
    catalog = Catalog(tmp_path, RealDisk())
    for at, each in enumerate(ids):
        first = far + 1000 * at
        catalog.put(Holes(each, Lsns((first + n, first + n) for n in range(0, 400, 2))))
    lineage = Lineage(Incarnation("z" * 10, far * 2, 8), catalog)
    said = Speaker(None, "gw", lineage, "journal", lambda: 0, lambda: 0).record()
    first = far + 199_000 + 200
    newest = tuple((first + n, first + n) for n in range(0, 200, 2))
    assert (said.holes, said.unnamed) == ({ids[-1]: newest}, first - 1)
    catalog.replace(Holes, [Holes(each, Lsns([(far, far)])) for each in ids])
    said = Speaker(None, "gw", lineage, "journal", lambda: 0, lambda: 0).record()
    assert len(said.holes) == 100
    assert len(msgspec.json.encode(said)) < 8192
    catalog.replace(Holes, [Holes(ids[0], Lsns([(5, 6)]))])
    said = Speaker(None, "gw", lineage, "journal", lambda: 0, lambda: 0).record()
    assert (said.holes, said.unnamed) == ({ids[0]: ((5, 6),)}, 0)


def test_what_a_kill_left_of_one_is_none(tmp_path):
    """A hidden file is no word of a node, and is handed on to nobody."""
    word = NodeRecord("aaaaaaaaaa", 1, 9, 1.0, "journal")
    assert hear(tmp_path, "gw", word, 1.0, RealDisk())
    hidden = tmp_path / ".gw_aaaaaaaaaa"
    hidden.write_bytes((tmp_path / "gw_aaaaaaaaaa").read_bytes())
    assert [one.node for one in at_hub(tmp_path)] == ["gw"]
    assert [node for node, *_ in Relay(tmp_path, RealDisk())()] == ["gw"]


def test_nor_do_they_at_a_hub(tmp_path):
    """Likewise of an edge."""
    folder, spool, disk = tmp_path / "arrivals", tmp_path / "spool", RealDisk()
    spool.mkdir()
    ids = [numbered(at) for at in range(130)]
    (spool / file_name("gw", ids[3], 4, 4)).touch()
    lost = NodeRecord("zzzzzzzzzz", 1, 9, 1.0, "journal")
    assert hear(folder, "gw", lost, 1.0, disk)
    assert hear(folder, "gw-1", NodeRecord(ids[0], 1, 9, 1.0, "journal"), 1.0, disk)
    for at, this in enumerate(ids):
        word = NodeRecord(
            this, 1 + at, at, 9.0, "journal", earlier=tuple(ids[max(0, at - 50) : at])
        )
        assert hear(folder, "gw", word, 2.0 + at, disk)
        assert not hear(folder, "gw", word, 2.5 + at, disk)
        forget_some(folder, spool, "gw", disk)
    there = {one.record.incarnation for one in at_hub(folder, "gw") if one.record}
    assert {ids[3], "zzzzzzzzzz", *ids[-48:]} <= there
    assert len(there) <= 52
    assert len([*at_hub(folder, "gw-1")]) == 1
