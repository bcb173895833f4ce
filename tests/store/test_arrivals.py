"""Files that other gateways bring: each is taken once, whatever happens."""

import errno
import hashlib
import io
import random
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from forwarded import Sent, announced
from gateway.event import SCHEMA_VERSION_KEY
from gateway.sdk.arrivals import Announced, Unwelcome
from gateway.sdk.disk import Disk
from gateway.sdk.protocol import Unusable
from gateway.store.digests import EVENTS_KEY
from gateway.store.directories import Directories
from gateway.store.hub import arrivals
from gateway.store.hub.arrivals import Arrivals
from gateway.store.names import file_name
from gateway.store.node.incarnation import KEY
from gateway.store.node.owners import Owners
from gateway.store.spool.parquet import open_writer
from gateway.store.system.disk import RealDisk
from gateway_testkit.crashes import crashes
from gateway_testkit.disk import Fault, RecordingDisk
from incarnations import A, B
from spools import envelope


def bring(hub: Arrivals, sent: Sent) -> bool:
    """Whether it was taken; it goes on where it is."""
    try:
        at = hub.look(sent.file)
        bringing = hub.bring(sent.file, at)
    except Unwelcome as why:
        if why.code != 412:
            raise
        return False
    bringing.write([sent.data[at:]])
    bringing.finish()
    return True


def lsns(hub: Arrivals, node: str = "edge") -> dict[str, list[tuple[int, int]]]:
    return {by: [*some] for by, some in hub.known(node).lsns.items()}


@pytest.fixture
def directories(tmp_path) -> Directories:
    found = Directories.under(tmp_path)
    found.spool.mkdir()
    found.archive.mkdir()
    return found


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def make(directories, told) -> Callable[..., Arrivals]:
    """A hub that starts; on the disk of the one before."""

    def make(disk: Disk | None = None, ahead: float = 0.0) -> Arrivals:
        made = Arrivals(
            "hub", directories, disk or RealDisk(), told.append,
            lambda: time.time() + ahead, by=lambda: B,
        )  # fmt: skip
        made.find_parts()
        return made

    return make


def public(directories: Directories) -> list[str]:
    return sorted(
        each.name for each in directories.spool.iterdir() if each.name[0] != "."
    )


def test_a_file_arrives_as_it_was(make, directories):
    """Under its name, byte for byte; and it is counted."""
    hub, sent = make(), Sent(1)
    assert not hub.has("edge")
    assert lsns(hub) == {}
    assert bring(hub, sent)
    assert public(directories) == [sent.name]
    assert (directories.spool / sent.name).read_bytes() == sent.data
    assert lsns(hub) == {A: [(1, 3)]}
    assert hub.known("edge").incarnation == B
    assert (hub.files, hub.bytes, hub.events) == (1, len(sent.data), 3)
    assert hub.has("edge")
    owners = Owners("hub", directories, RealDisk(), arrives=hub.has)
    assert owners.is_ours("edge")
    assert not owners.is_ours("stranger")


def test_its_time_is_the_hubs(directories, told):
    """The edge's clock may be a month off: a reader goes by when it became public here."""
    hub = Arrivals("hub", directories, RealDisk(), told.append, lambda: 1_700_000_000.5)
    bring(hub, Sent(1))
    assert RealDisk().modified(directories.spool / Sent(1).name) == 1_700_000_000.5


@pytest.mark.parametrize("where", ["spool", "archive"])
@pytest.mark.parametrize("record", [True, False])
def test_what_is_there_is_not_taken_again(make, directories, where, *, record):
    """Also if the hub has started again, or its record is lost; that is written anew."""
    bring(make(), Sent(1))
    if where == "archive":
        (directories.spool / Sent(1).name).rename(directories.archive / Sent(1).name)
    if not record:
        (directories.arrivals / "edge").unlink()
    hub = make()
    assert not bring(hub, Sent(1))
    assert lsns(make()) == {A: [(1, 3)]}
    assert bring(hub, Sent(4))


@pytest.mark.parametrize("where", ["spool", "archive"])
def test_a_damaged_file_that_is_there_is_brought_again(make, directories, where):
    """It can not say which events it has, and so is not told to be there: what comes takes
    its place.
    """
    hub, sent = make(), Sent(1)
    bring(hub, sent)
    path = directories.spool / sent.name
    path.write_bytes(sent.data[:-9] + b"damaged!!")
    if where == "archive":
        path.rename(directories.archive / sent.name)
    assert hub.look(sent.file) == 0
    assert bring(hub, sent)
    assert path.read_bytes() == sent.data
    assert not bring(hub, sent)


def test_of_whoever_only_asks_nothing_is_kept(make):
    """Any number of names, with no file of theirs here."""
    hub = make()
    for number in range(100):
        assert not hub.known(f"node-{number}").lsns
        assert hub.look(Sent(1, node=f"node-{number}").file) == 0
    assert not hub._nodes
    assert bring(hub, Sent(1))
    assert [*hub._nodes] == ["edge"]


def test_what_is_there_in_part_is_taken(make, directories):
    """Files come in any order, and their bounds may be others: what is here is a set."""
    hub = make()
    for sent in (Sent(7), Sent(1), Sent(2, 4), Sent(20, by=B)):
        assert bring(hub, sent)
    assert lsns(make()) == {A: [(1, 5), (7, 9)], B: [(20, 22)]}
    assert len(public(directories)) == 4


def test_a_file_of_other_events_is_told(make):
    """Under the name of one that is there: with the digest of those that are."""
    hub, sent = make(), Sent(1)
    bring(hub, sent)
    with pytest.raises(Unwelcome, match="is there") as why:
        hub.bring(Sent(1, text="other").file, 0)
    assert (why.value.code, why.value.events) == (412, sent.file.events)


def test_a_file_that_moves_to_the_archive_meanwhile(directories, told):
    """The events that it has are told all the same: the edge may have others."""
    sent = Sent(1)

    def moves(path: Path) -> io.BytesIO:
        if path.parent == directories.spool and path.name == sent.name:
            path.rename(directories.archive / path.name)
        return io.BytesIO(path.read_bytes())

    bring(Arrivals("hub", directories, RealDisk(), told.append), sent)
    hub = Arrivals("hub", directories, RealDisk(), told.append, reader=moves)
    with pytest.raises(Unwelcome) as caught:
        hub.look(sent.file)
    assert (caught.value.code, caught.value.events) == (412, sent.file.events)


def test_a_part_that_can_not_be_read(directories, told):
    """It goes, and the file comes anew."""
    sent, broken = Sent(1), True

    def reader(path: Path) -> io.BytesIO:
        if broken and "arriving" in path.name:
            raise OSError(errno.EIO, "Input/output error")
        return io.BytesIO(path.read_bytes())

    hub = Arrivals("hub", directories, RealDisk(), told.append, reader=reader)
    begun = hub.bring(sent.file, 0)
    begun.write([sent.data[:100]])
    begun.close()
    with pytest.raises(OSError, match="Input"):
        hub.bring(sent.file, hub.look(sent.file))
    broken = False
    assert hub.look(sent.file) == 0
    assert bring(hub, sent)


def test_a_part_goes_on_where_it_is(make, directories):
    """Over connections, and over a start of the hub; nobody sees it before it is whole."""
    sent, other = Sent(1, 100), Sent(101)
    hub = make()
    first = hub.bring(sent.file, 0)
    first.write([sent.data[:100], sent.data[100:150]])
    first.close()
    assert public(directories) == []
    hub = make()
    assert hub.look(sent.file) == 150
    assert hub.look(Sent(1, 100, text="other").file) == 0
    assert bring(hub, other)
    with pytest.raises(Unwelcome, match="can not go on at byte 7") as why:
        hub.bring(sent.file, 7)
    assert why.value.code == 409
    assert bring(hub, sent)
    assert (directories.spool / sent.name).read_bytes() == sent.data
    assert [*directories.spool.glob(".arriving-*")] == []


def test_a_part_that_nobody_goes_on_with(make, directories):
    """It goes after a day, or when many come after it; not while it is being brought."""
    sent = Sent(1, 100)
    hub = make(ahead=0.0)
    bringing = hub.bring(sent.file, 0)
    bringing.write([sent.data[:100]])
    hub.open()
    ahead = 48 * 3600.0
    hub._clock = lambda: time.time() + ahead
    hub.look_after_parts()
    assert hub.look(sent.file) == 100
    bringing.close()
    ahead = 72 * 3600.0
    hub.look_after_parts()
    assert hub.look(sent.file) == 0
    for number in range(40):
        hub.bring(Sent(1 + 3 * number).file, 0).close()
    assert len([*directories.spool.glob(".arriving-*")]) == 16


def test_a_clock_that_was_wrong(make, directories):
    """What was written, or heard, by a clock that is set back since goes like all else."""
    ahead = 1e8
    hub = Arrivals("hub", directories, RealDisk(), print, lambda: time.time() + ahead)
    hub.open()
    hub.bring(Sent(1).file, 0).close()
    (part,) = (each for each in directories.spool.iterdir() if "arriving" in each.name)
    RealDisk().set_times(part, time.time() + ahead)
    assert hub.comes("edge")
    ahead = 0
    hub.look_after_parts()
    assert not part.exists()
    assert not hub.comes("edge")


def test_two_hubs_in_one_spool(make):
    """Each would take what the other has half, and put it out of place: the second one is
    refused, and takes its place once the first one is gone.
    """
    first, second = make(), make()
    first.open()
    first.open()  # as after a reload that could not open its port
    with pytest.raises(Unusable, match=r"is in use by gateway hub, pid .*other's way"):
        second.open()
    assert first._spool_lock is not None
    first._spool_lock.release()
    second.open()


def test_the_newest_connection_goes_on(make):
    """What the one before had in hand goes on with it."""
    hub, sent = make(), Sent(1)
    before = hub.bring(sent.file, 0)
    before.write([sent.data[:60]])
    after = hub.bring(sent.file, 60)
    with pytest.raises(Unwelcome, match="by a newer connection") as why:
        before.write([sent.data[60:]])
    assert why.value.code == 409
    before.close()
    assert hub.comes("edge")
    after.write([sent.data[60:]])
    assert after.finish() == 3


def test_bytes_that_are_not_those_announced(make, directories):
    """As after a power cut in the middle of a part: it goes, and comes anew."""
    sent = Sent(1)
    hub = make()
    bringing = hub.bring(sent.file, 0)
    bringing.write([sent.data[:40] + bytes([sent.data[40] ^ 1]) + sent.data[41:]])
    with pytest.raises(Unwelcome, match="not those that were announced") as why:
        bringing.finish()
    assert why.value.code == 409
    assert not list(directories.spool.iterdir())
    assert bring(hub, sent)


def wrong(data: bytes, name: str = "") -> Announced:
    """An announcement of what may be no file, and is not read for it."""
    digest = hashlib.sha256(data).hexdigest()
    return Announced(name or file_name("edge", A, 1, 3), len(data), digest, "0" * 64)


def inflated() -> bytes:
    """A file of which one value, packed into little, takes 64 MiB."""
    table = envelope("e" * (64 << 20), 1, [b"event"] * 3)
    sink = io.BytesIO()
    said = {SCHEMA_VERSION_KEY: b"1", KEY: A.encode()}
    pq.write_table(table.replace_schema_metadata(said), sink, compression="zstd")
    return sink.getvalue()


def with_a_large_footer(size: int) -> bytes:
    sink = io.BytesIO()
    said = {"x": random.Random(1).randbytes(size // 2).hex()}
    pq.write_table(
        envelope("edge", 1, [b"event"] * 3).replace_schema_metadata(said), sink
    )
    return sink.getvalue()


def with_many_columns(number: int) -> bytes:
    """Each has three bytes in the footer, and a reader takes 700 for it."""
    assert number % 100_000 == 0
    column = b"\x26\x00\x00"
    group = b"\x19\xfc\xa0\x8d\x06" + column * 100_000 + b"\x16\x00\x16\x00\x00"
    groups = b"\x19\xfc" + bytes([number // 100_000]) + group * (number // 100_000)
    schema = b"\x19\x1c\x48\x00\x00"
    footer = b"\x15\x02" + schema + b"\x16\x00" + groups + b"\x00"
    return b"PAR1" + footer + struct.pack("<I4s", len(footer), b"PAR1")


def with_fewer_rows_than_it_says() -> bytes:
    """Its footer has three, and its only group two."""
    data = Sent(1, 2).data
    for at in range(len(data)):
        if data[at : at + 2] == b"\x16\x04":
            lies = data[: at + 1] + b"\x06" + data[at + 2 :]
            found = pq.read_metadata(io.BytesIO(lies))
            if (found.num_rows, found.row_group(0).num_rows) == (3, 2):
                return lies
    raise AssertionError


@pytest.mark.parametrize(
    ("made", "name", "why"),
    [
        (inflated, "", "a page of its column node has more than 8388608 bytes"),
        (
            lambda: with_a_large_footer(8 << 20),
            "",
            "its footer has more than 8388608 bytes",
        ),
        (
            lambda: with_a_large_footer(1 << 15),
            "",
            "its footer has a string of 32768 bytes",
        ),
        (lambda: with_many_columns(2_700_000), "", "its footer has more in its lists"),
        (with_fewer_rows_than_it_says, "", "its lsns end with 2"),
        (lambda: b"short", "", "can not be read|too small|size"),
        (
            lambda: b"no Parquet at all",
            "",
            "Parquet magic bytes not found|can not be read",
        ),
        (lambda: Sent(2).data, "", "where lsn 1 should be, it has 2"),
        (lambda: Sent(1, 2).data, "", "it has 2 events"),
        (lambda: Sent(1, node="other").data, "", "it has events of other nodes"),
        (lambda: Sent(1, by=B).data, "", "does not say that incarnation a"),
    ],
)
def test_what_is_no_file_of_that_node(make, directories, made, name, why):
    """A reader of the spool relies on what a name says: what does not keep to it never gets
    there.
    """
    data = made()
    bringing = make().bring(wrong(data, name), 0)
    bringing.write([data])
    with pytest.raises(Unwelcome, match=why) as refused:
        bringing.finish()
    assert refused.value.code == 422
    assert not list(directories.spool.iterdir())


def test_a_digest_of_other_events(make):
    """The one that is announced is the one that the file says."""
    sent = Sent(1)
    bringing = make().bring(wrong(sent.data), 0)
    bringing.write([sent.data])
    with pytest.raises(Unwelcome, match="another digest") as refused:
        bringing.finish()
    assert refused.value.code == 422


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (wrong(b"x", "../../etc/passwd"), "no spool file"),
        (wrong(b"x", "events-../x_aaaaaaaaaa-1-2.parquet"), "no spool file"),
        (wrong(b"x", file_name(".edge", A, 1, 3)), "no node's name"),
        (wrong(b"x", file_name("e" * 101, A, 1, 3)), "no node's name"),
        (wrong(b"x", file_name("edge", A, 1, (1 << 28) + 1)), "more than 268435456"),
        (wrong(b""), "without a size"),
        (wrong(b"x")._replace(sha256="../x"), "without digests"),
        (wrong(b"x")._replace(events=""), "without digests"),
    ],
)
def test_a_file_that_is_none_from_the_beginning(make, directories, file, why):
    """Nothing is written for it."""
    with pytest.raises(Unwelcome, match=why) as refused:
        make().bring(file, 0)
    assert refused.value.code == 422
    assert not list(directories.spool.iterdir())


def of_a_thousand_groups() -> bytes:
    sink = io.BytesIO()
    rows = envelope("edge", 1, [b"event"] * 1000)
    with open_writer(sink, "zstd") as writer:
        said = {SCHEMA_VERSION_KEY: b"1", KEY: A.encode(), EVENTS_KEY: b"0" * 64}
        writer.add_key_value_metadata(said)
        writer.write_table(rows, row_group_size=1)
    return sink.getvalue()


def test_pages_without_end(make, monkeypatch):
    """They are counted over all groups, which may all have the same ones."""
    monkeypatch.setattr(arrivals, "MOST_PAGES", 1500)
    data = of_a_thousand_groups()
    bringing = make().bring(wrong(data, file_name("edge", A, 1, 1000)), 0)
    bringing.write([data])
    with pytest.raises(Unwelcome, match="its columns have more than 1500 pages"):
        bringing.finish()


def test_a_large_footer_that_a_gateway_writes(make):
    """As a large segment makes one: with a thousand groups of rows."""
    data, name = of_a_thousand_groups(), file_name("edge", A, 1, 1000)
    assert len(data) > 1 << 20
    bringing = make().bring(announced(data, name), 0)
    bringing.write([data])
    assert bringing.finish() == 1000


def test_more_bytes_than_announced(make):
    sent = Sent(1)
    bringing = make().bring(sent.file, 0)
    with pytest.raises(Unwelcome, match="more bytes than were announced"):
        bringing.write([sent.data, b"x"])


@pytest.mark.parametrize("node", ["hub", "neighbour"])
def test_a_node_of_this_machine(make, directories, node):
    """It gives its own lsns here, or did."""
    directories.journal_of("neighbour").mkdir(parents=True)
    for do in (lambda: make().known(node), lambda: bring(make(), Sent(1, node=node))):
        with pytest.raises(Unwelcome, match="has its journal on this machine") as why:
            do()
        assert why.value.code == 403


def test_the_longest_names(make):
    """Fit into a file system's names, a part's too."""
    assert bring(make(), Sent(1, node="e" * 100))


def test_a_damaged_record_is_told(make, directories, told):
    """It says nothing, and all that an edge still has comes again."""
    bring(make(), Sent(1))
    (directories.arrivals / "edge").write_bytes(b"nonsense\n")
    assert lsns(make()) == {}
    assert "is damaged" in told[0]


# The disk


def on_recording(
    disk: RecordingDisk, directories: Directories, told: Sequence[str] = ()
) -> Arrivals:
    hub = Arrivals(
        "hub",
        directories,
        disk,
        list(told).append,
        reader=lambda path: io.BytesIO(disk.read(path)),
    )
    hub.find_parts()
    return hub


FILES = (Sent(1), Sent(4), Sent(7))


def all_of(disk: RecordingDisk, hub: Arrivals) -> None:
    for sent in FILES:
        try:
            bring(hub, sent)
        except Unwelcome as why:
            if why.code != 409:
                raise
            bring(hub, sent)  # what a power cut left of it was not what was sent
        disk.mark(sent.name)


def test_no_power_cut_loses_or_doubles_a_file():
    """Whatever a cut leaves of the disk, at each step: what was acknowledged is public; all
    of it is there once when the edge has gone on, with the bytes that were sent; and nothing
    is there that was not whole.
    """
    directories = Directories.under(Path("/hub"))
    disk = RecordingDisk()
    for each in (directories.spool, directories.archive):
        disk.make_directory(each)
    all_of(disk, on_recording(disk, directories))
    whole = {sent.name: sent.data for sent in FILES}
    looked = 0
    for moment in disk.moments:
        for story, left in crashes(moment, most=40):
            if not left.exists(directories.archive):
                continue
            hub = on_recording(left, directories)
            for name in moment.marks:
                found = left.read(directories.spool / str(name))
                assert found == whole[str(name)], story
            spans = hub.known("edge").lsns.get(A, ())
            there = [n for n in left.names(directories.spool) if n[0] != "."]
            assert sum(last - first + 1 for first, last in spans) <= 3 * len(there)
            all_of(left, hub)
            names = [n for n in left.names(directories.spool) if n[0] != "."]
            assert names == [*whole], story
            for name, data in whole.items():
                assert left.read(directories.spool / name) == data, story
            looked += 1
    assert looked > 50


def test_no_power_cut_after_a_kill_loses_a_file():
    """A gateway that is killed at any step, and starts, tells of no file whose name a cut
    may still take.
    """
    directories = Directories.under(Path("/hub"))
    disk = RecordingDisk()
    for each in (directories.spool, directories.archive, directories.arrivals):
        disk.make_directory(each)
    hub = on_recording(disk, directories)
    bring(hub, FILES[0])
    disk.mark(FILES[0].name)
    bring(hub, FILES[1])
    for moment in disk.moments:
        if not moment.marks:
            continue
        left = RecordingDisk.after_kill(moment)
        bring(on_recording(left, directories), FILES[1])
        for story, found in crashes(left.moments[-1], most=40):
            for sent in FILES[:2]:
                assert found.exists(directories.spool / sent.name), (moment.step, story)


@pytest.mark.parametrize(
    "call", ["write", "create", "rename", "sync", "sync_directory"]
)
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("short", [True, False])
def test_a_disk_that_fails_is_asked_again(call, number, *, short):
    """Nothing is acknowledged meanwhile, and nothing is lost or doubled."""
    directories = Directories.under(Path("/hub"))
    fault = Fault(number, errno.ENOSPC, calls=frozenset((call,)), short=short)
    disk = RecordingDisk(fault)
    for each in (directories.spool, directories.archive):
        while not disk.exists(each):
            try:
                disk.make_directory(each)
            except OSError:
                continue
    hub = on_recording(disk, directories)
    for sent in FILES:
        for _ in range(5):
            try:
                bring(hub, sent)
            except OSError:
                continue
            break
        else:
            raise AssertionError
    assert hub.files == len(FILES)
    hub = on_recording(disk, directories)
    for sent in FILES:
        assert disk.read(directories.spool / sent.name) == sent.data
    assert lsns(hub) == {A: [(1, 9)]}
