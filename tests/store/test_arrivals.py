"""Files that other gateways bring: each is taken once, whatever happens."""

from __future__ import annotations

import errno
import hashlib
import io
import random
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from forwarded import Sent
from gateway.event import SCHEMA_VERSION_KEY
from gateway.sdk.arrivals import Bringing, Unwelcome
from gateway.sdk.disk import Disk
from gateway.sdk.forwarding import File, Life
from gateway.sdk.protocol import Unusable
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


def bring(bringing: Bringing, sent: Sent, *, at: int = 0) -> bool:
    if not bringing.begin(sent.at(at)):
        return False
    bringing.write([sent.data[at:]])
    bringing.finish()
    return True


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    found = Directories.under(tmp_path)
    found.spool.mkdir()
    return found


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def make(directories: Directories, told: list[str]) -> Callable[..., Arrivals]:
    """A hub that starts; on the disk of the one before."""

    def make(disk: Disk | None = None) -> Arrivals:
        made = Arrivals("hub", directories, disk or RealDisk(), told.append)
        made.recover()
        return made

    return make


def public(directories: Directories) -> list[str]:
    return sorted(
        each.name for each in directories.spool.iterdir() if each.name[0] != "."
    )


def test_a_file_arrives_as_it_was(
    make: Callable[..., Arrivals], directories: Directories
) -> None:
    """Under its name, byte for byte; and it is counted."""
    hub, sent = make(), Sent(1)
    assert not hub.has("edge")
    bringing = hub.bring(Life("edge", A))
    assert dict(bringing.last) == {A: 0}
    assert bring(bringing, sent)
    assert public(directories) == [sent.name]
    assert (directories.spool / sent.name).read_bytes() == sent.data
    assert dict(bringing.last) == {A: 3}
    assert (hub.files, hub.bytes, hub.events) == (1, len(sent.data), 3)
    assert hub.has("edge")
    owners = Owners("hub", directories, RealDisk(), arrives=hub.has)
    assert owners.is_ours("edge")
    assert not owners.is_ours("stranger")


def test_its_time_is_the_hubs(directories: Directories, told: list[str]) -> None:
    """The edge's clock may be a month off: a reader goes by when it became public here."""
    hub = Arrivals("hub", directories, RealDisk(), told.append, lambda: 1_700_000_000.5)
    bring(hub.bring(Life("edge", A)), Sent(1))
    assert RealDisk().modified(directories.spool / Sent(1).name) == 1_700_000_000.5


def test_what_is_there_is_not_taken_again(
    make: Callable[..., Arrivals], directories: Directories
) -> None:
    """Whoever reads the spool may have taken it meanwhile, and the hub have started again."""
    bring(make().bring(Life("edge", A)), Sent(1))
    (directories.spool / Sent(1).name).unlink()
    bringing = make().bring(Life("edge", A))
    assert dict(bringing.last) == {A: 3}
    assert not bring(bringing, Sent(1))
    assert public(directories) == []
    assert bring(bringing, Sent(4))
    assert public(directories) == [Sent(4).name]


def test_a_part_goes_on_where_it_is(
    make: Callable[..., Arrivals], directories: Directories
) -> None:
    """Over connections, and over a start of the hub; nobody sees it before it is whole."""
    sent = Sent(1, 100)
    hub = make()
    first = hub.bring(Life("edge", A))
    assert first.begin(sent.file)
    first.write([sent.data[:100], sent.data[100:150]])
    first.close()
    assert public(directories) == []
    second = make().bring(Life("edge", A))
    begun = second.begun
    assert begun is not None
    assert (begun.name, begun.sha256, begun.at) == (sent.name, sent.file.sha256, 150)
    assert bring(second, sent, at=begun.at)
    assert (directories.spool / sent.name).read_bytes() == sent.data
    assert second.begun is None


def test_a_part_that_nobody_goes_on_with(
    directories: Directories, told: list[str]
) -> None:
    """It goes after a day, over starts of the hub; an edge that comes then begins anew."""
    sent, hours, begun = Sent(1, 100), [0.0], time.time()

    def start() -> Arrivals:
        def clock() -> float:
            return begun + 3600 * hours[0]

        hub = Arrivals("hub", directories, RealDisk(), told.append, clock)
        hub.recover()
        hub.open()
        return hub

    hub = start()
    bringing = hub.bring(Life("edge", A))
    assert bringing.begin(sent.file)
    bringing.write([sent.data[:100]])
    hours[0] = 48
    hub.look()
    assert bringing.begun is not None, "it is being brought"
    bringing.close()
    assert hub._spool_lock is not None
    hub._spool_lock.release()
    hub, hours[0] = start(), 23
    hub.look()
    assert len([*directories.spool.glob(".arriving-*")]) == 1
    hours[0] = 25
    hub.look()
    assert [*directories.spool.glob(".arriving-*")] == []
    bringing = hub.bring(Life("edge", A))
    assert bringing.begun is None
    assert bring(bringing, sent)


def test_a_part_that_another_gateway_has(
    directories: Directories, told: list[str]
) -> None:
    """One that only sees what comes knows a part as it was once: by now that may have come
    whole, and its edge was told.
    """
    earlier, sent = Sent(1, text="earlier"), Sent(1, by=B)
    ahead = 0.0

    def start() -> Arrivals:
        made = Arrivals(
            "hub", directories, RealDisk(), told.append, lambda: time.time() + ahead
        )
        made.recover()
        return made

    hub = start()
    hub.open()
    bring(hub.bring(Life("edge", A)), earlier)
    bringing = hub.bring(Life("edge", B))
    bringing.begin(sent.file)
    other = start()
    bringing.write([sent.data])
    bringing.finish()
    bringing.close()
    ahead = 48 * 3600
    for each in (other, hub):
        each.look()
    (directories.spool / earlier.name).unlink()
    hub.look()
    assert (directories.spool / sent.name).read_bytes() == sent.data


def test_what_comes_to_another_gateway_stays(
    directories: Directories, tmp_path: Path, told: list[str]
) -> None:
    """One that shares the spool directory, and starts, leaves what has not its name yet."""
    hidden = [
        directories.spool / f".arriving-{A}-{one.file.sha256}-{one.name}"
        for one in (Sent(1), Sent(4))
    ]
    for path in hidden:
        path.touch()
    other = replace(directories, arrivals=tmp_path / "other")
    Arrivals("other", other, RealDisk(), told.append).recover()
    assert all(path.exists() for path in hidden)
    assert public(directories) == told == []


def test_two_hubs_in_one_spool(make: Callable[..., Arrivals]) -> None:
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


def test_another_file_takes_the_place_of_a_part(
    make: Callable[..., Arrivals], directories: Directories
) -> None:
    """As when an edge had to write it anew; nothing is left of the part."""
    bringing = make().bring(Life("edge", A))
    bringing.begin(Sent(1, 2).file)
    bringing.write([Sent(1, 2).data[:50]])
    assert bring(bringing, Sent(1, 3))
    assert [each.name for each in directories.spool.iterdir()] == [Sent(1, 3).name]


def test_it_goes_on_nowhere_else(make: Callable[..., Arrivals]) -> None:
    """A part of another file, or another place, is refused, and the file comes anew."""
    sent = Sent(1)
    bringing = make().bring(Life("edge", A))
    with pytest.raises(Unwelcome, match="can not go on at byte 7") as why:
        bringing.begin(sent.at(7))
    assert why.value.code == 409
    assert bring(bringing, sent)


def altered(data: bytes) -> bytes:
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


def test_bytes_that_are_not_those_announced(
    make: Callable[..., Arrivals], directories: Directories
) -> None:
    """As after a power cut in the middle of a part: it goes, and comes anew."""
    sent = Sent(1)
    bringing = make().bring(Life("edge", A))
    bringing.begin(sent.file)
    bringing.write([altered(sent.data)])
    with pytest.raises(Unwelcome, match="not those that were announced") as why:
        bringing.finish()
    assert why.value.code == 409
    assert not list(directories.spool.iterdir())
    assert bringing.begun is None
    assert bring(bringing, sent)


def wrong(data: bytes, name: str = "", by: str = A) -> File:
    digest = hashlib.sha256(data).hexdigest()
    return File(name or file_name("edge", A, 1, 3), by, len(data), digest)


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
def test_what_is_no_file_of_that_node(
    make: Callable[..., Arrivals],
    directories: Directories,
    made: Callable[[], bytes],
    name: str,
    why: str,
) -> None:
    """A reader of the spool relies on what a name says: what does not keep to it never gets
    there.
    """
    data = made()
    bringing = make().bring(Life("edge", A))
    bringing.begin(wrong(data, name))
    bringing.write([data])
    with pytest.raises(Unwelcome, match=why) as refused:
        bringing.finish()
    assert refused.value.code == 422
    assert not list(directories.spool.iterdir())


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (wrong(b"x", file_name("other", A, 1, 3)), "no file of node edge"),
        (wrong(b"x", "../../etc/passwd"), "no file of node edge"),
        (
            wrong(b"x", file_name("edge", A, 1, (1 << 28) + 1)),
            "more than 268435456 events",
        ),
        (wrong(b"x", by=B), "is not of incarnation"),
        (File(file_name("edge", A, 1, 3), A, 0, "0" * 64), "without a size"),
        (File(file_name("edge", A, 1, 3), A, 9, "../x"), "without a digest"),
    ],
)
def test_a_file_that_is_none_from_the_beginning(
    make: Callable[..., Arrivals], directories: Directories, file: File, why: str
) -> None:
    """Nothing is written for it."""
    bringing = make().bring(Life("edge", A))
    with pytest.raises(Unwelcome, match=why) as refused:
        bringing.begin(file)
    assert refused.value.code == 422
    assert not list(directories.spool.iterdir())


def of_a_thousand_groups() -> bytes:
    sink = io.BytesIO()
    rows = envelope("edge", 1, [b"event"] * 1000)
    with open_writer(sink, "zstd") as writer:
        writer.add_key_value_metadata({SCHEMA_VERSION_KEY: b"1", KEY: A.encode()})
        writer.write_table(rows, row_group_size=1)
    return sink.getvalue()


def test_pages_without_end(
    make: Callable[..., Arrivals], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are counted over all groups, which may all have the same ones."""
    monkeypatch.setattr(arrivals, "MOST_PAGES", 1500)
    data = of_a_thousand_groups()
    bringing = make().bring(Life("edge", A))
    bringing.begin(wrong(data, file_name("edge", A, 1, 1000)))
    bringing.write([data])
    with pytest.raises(Unwelcome, match="its columns have more than 1500 pages"):
        bringing.finish()


def test_a_large_footer_that_a_gateway_writes(make: Callable[..., Arrivals]) -> None:
    """As a large segment makes one: with a thousand groups of rows."""
    data, name = of_a_thousand_groups(), file_name("edge", A, 1, 1000)
    assert len(data) > 1 << 20
    bringing = make().bring(Life("edge", A))
    bringing.begin(wrong(data, name))
    bringing.write([data])
    assert bringing.finish() == 1000


def test_more_bytes_than_announced(make: Callable[..., Arrivals]) -> None:
    """They are not written."""
    sent = Sent(1)
    bringing = make().bring(Life("edge", A))
    bringing.begin(sent.file)
    with pytest.raises(Unwelcome, match="more bytes than were announced"):
        bringing.write([sent.data, b"x"])


# Whose a name is


@pytest.mark.parametrize("node", ["hub", "neighbour"])
def test_a_node_of_this_machine(
    make: Callable[..., Arrivals], directories: Directories, node: str
) -> None:
    """It gives its own lsns here, or did."""
    directories.journal_of("neighbour").mkdir(parents=True)
    with pytest.raises(Unwelcome, match="has its journal on this machine"):
        make().bring(Life(node, A))


@pytest.mark.parametrize(
    "life",
    [
        Life("../x", A),
        Life("..", A),
        Life(".edge", A),
        Life("e" * 101, A),
        Life("edge", "../x"),
        Life("edge", "a" * 17),
        Life("edge", A, ("not hex",)),
    ],
)
def test_names_that_are_none(make: Callable[..., Arrivals], life: Life) -> None:
    """They become no paths."""
    with pytest.raises(Unwelcome) as why:
        make().bring(life)
    assert why.value.code == 422


def test_the_longest_names(make: Callable[..., Arrivals]) -> None:
    """Fit into a file system's names, a part's too."""
    sent = Sent(1, node="e" * 100)
    bringing = make().bring(Life("e" * 100, A))
    assert bring(bringing, sent)


def test_each_incarnation_brings_its_own(
    make: Callable[..., Arrivals], told: list[str]
) -> None:
    """An edge that was rebuilt on an empty disk brings its events, whatever lsns they have,
    and so does the old one, if it still runs; both are told of.
    """
    hub = make()
    old = hub.bring(Life("edge", A))
    bring(old, Sent(1))
    new = hub.bring(Life("edge", B))
    [notice] = told
    assert f"incarnation {B} knows nothing of {A}, of which all up to lsn 3" in notice
    with pytest.raises(Unwelcome, match="by a newer connection"):
        old.begin(Sent(4).file)
    assert bring(new, Sent(4, 2, by=B))
    again = make().bring(Life("edge", A))
    assert bring(again, Sent(4))
    assert dict(again.last) == {A: 6, B: 5}


def test_a_copy_goes_on_behind_what_is_here(
    make: Callable[..., Arrivals], told: list[str], directories: Directories
) -> None:
    """An edge that was restored from a copy says whose life it goes on with: what its
    earlier one had forwarded is not taken again, what it left is, and nobody is alarmed.
    """
    bring(make().bring(Life("edge", A)), Sent(1))
    bringing = make().bring(Life("edge", B, (A,)))
    assert not told
    assert not bring(bringing, Sent(1))
    assert bring(bringing, Sent(4, by=A))
    assert bring(bringing, last := Sent(7, by=B))
    assert dict(bringing.last) == {A: 6, B: 9}
    assert public(directories) == [Sent(1).name, Sent(4).name, last.name]


def test_of_one_life_the_newest_connection_goes_on(
    make: Callable[..., Arrivals],
) -> None:
    """What the one before had in hand goes on with it."""
    hub, sent = make(), Sent(1)
    before = hub.bring(Life("edge", A))
    before.begin(sent.file)
    before.write([sent.data[:60]])
    after = hub.bring(Life("edge", A))
    with pytest.raises(Unwelcome, match="by a newer connection") as why:
        before.write([sent.data[60:]])
    assert why.value.code == 409
    before.close()
    assert hub.bringing == 1
    assert after.begun is not None
    assert bring(after, sent, at=60)
    after.close()
    assert hub.bringing == 0


def test_an_older_hub_is_brought_what_it_lacks(
    make: Callable[..., Arrivals], directories: Directories
) -> None:
    """One that was restored from a backup says what it has, and takes the rest again."""
    hub = make()
    bringing = hub.bring(Life("edge", A))
    bring(bringing, Sent(1))
    backup = (directories.arrivals / "edge").read_bytes()
    bring(bringing, Sent(4))
    (directories.arrivals / "edge").write_bytes(backup)
    (directories.spool / Sent(4).name).unlink()
    bringing = make().bring(Life("edge", A))
    assert dict(bringing.last) == {A: 3}
    assert bring(bringing, Sent(4))


def test_a_damaged_record_is_told(
    make: Callable[..., Arrivals], directories: Directories, told: list[str]
) -> None:
    """It says nothing, and all that an edge still has comes again."""
    bring(make().bring(Life("edge", A)), Sent(1))
    (directories.arrivals / "edge").write_bytes(b"nonsense\n")
    bringing = make().bring(Life("edge", A))
    assert dict(bringing.last) == {A: 0}
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
    hub.recover()
    return hub


FILES = (Sent(1), Sent(4), Sent(7))


def all_of(disk: RecordingDisk, hub: Arrivals) -> None:
    bringing = hub.bring(Life("edge", A))
    for sent in FILES:
        begun = bringing.begun
        at = begun.at if begun is not None and begun.name == sent.name else 0
        try:
            bring(bringing, sent, at=at)
        except Unwelcome as why:
            if why.code != 409:
                raise
            bring(bringing, sent)  # what a power cut left of it was not what was sent
        disk.mark(sent.name)


def test_no_power_cut_loses_or_doubles_a_file() -> None:
    """Whatever a cut leaves of the disk, at each step: what was acknowledged is public or
    is made so by the start; all of it is there once when the edge has gone on, with the
    bytes that were sent; and nothing is there that was not whole.
    """
    directories = Directories.under(Path("/hub"))
    disk = RecordingDisk()
    disk.make_directory(directories.spool)
    all_of(disk, on_recording(disk, directories))
    whole = {sent.name: sent.data for sent in FILES}
    looked = 0
    for moment in disk.moments:
        for story, left in crashes(moment, most=40):
            if not left.exists(directories.spool):
                continue
            hub = on_recording(left, directories)
            for name in moment.marks:
                assert left.read(directories.spool / str(name)) == whole[str(name)], (
                    story
                )
            all_of(left, hub)
            names = [n for n in left.names(directories.spool) if n[0] != "."]
            assert names == [*whole], story
            for name, data in whole.items():
                assert left.read(directories.spool / name) == data, story
            looked += 1
    assert looked > 50


@pytest.mark.parametrize(
    "call", ["write", "create", "rename", "sync", "sync_directory"]
)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_disk_that_fails_is_asked_again(call: str, number: int) -> None:
    """Nothing is acknowledged meanwhile, and nothing is lost or doubled."""
    directories = Directories.under(Path("/hub"))
    disk = RecordingDisk(Fault(number, errno.ENOSPC, calls=frozenset((call,))))
    disk.make_directory(directories.spool)
    hub = on_recording(disk, directories)

    def patiently(do: Callable[..., Any], *arguments: Any) -> Any:
        for _ in range(5):
            try:
                return do(*arguments)
            except OSError:
                continue
        raise AssertionError

    bringing = patiently(hub.bring, Life("edge", A))
    for sent in FILES:
        while True:
            assert patiently(bringing.begin, sent.file)
            patiently(bringing.write, [sent.data])
            try:
                patiently(bringing.finish)
            except Unwelcome as why:
                if why.code != 503:
                    raise
                continue  # a sync failed: what the disk has is not known
            break
    hub = on_recording(disk, directories)
    for sent in FILES:
        assert disk.read(directories.spool / sent.name) == sent.data


def test_a_write_that_can_not_be_taken_back() -> None:
    """The disk fails in the middle of it, and to cut that off again: it goes on behind what
    is there, and no octets are in the file twice.
    """
    directories = Directories.under(Path("/hub"))
    calls = frozenset(("write", "truncate"))
    disk = RecordingDisk(Fault(2, errno.EIO, times=2, calls=calls, short=True))
    disk.make_directory(directories.spool)
    hub, sent = on_recording(disk, directories), Sent(1)
    bringing = hub.bring(Life("edge", A))
    bringing.begin(sent.file)
    with pytest.raises(Unwelcome, match="could not be written") as why:
        bringing.write([sent.data[:200]])
    assert why.value.code == 503
    bringing = hub.bring(Life("edge", A))
    assert bringing.begun is not None
    assert bringing.begun.at == 100
    assert bring(bringing, sent, at=100)
    assert disk.read(directories.spool / sent.name) == sent.data
