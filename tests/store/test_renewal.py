"""An lsn whose write failed is given again under another incarnation, and so is one where
the machine's clocks parted: a copy of the disk, or of the machine, may have its first use.
"""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gateway.event import Batch, Origin, Rows
from gateway.store.directories import Directories
from gateway.store.journal import segment
from gateway.store.names import parse_file_name
from gateway.store.node.catalog import Catalog, look
from gateway.store.node.incarnation import Incarnation
from gateway.store.node.lineage import Lineage
from gateway.store.objects.node_record import Speaker, read_all
from gateway.store.opening import Opened, Start, open_node
from gateway.store.system.disk import RealDisk
from gateway.store.system.machine import Machine
from gateway_testkit.bucket import MemoryBucket


def batch(body: bytes) -> Batch:
    origin = Origin("plain", "l", "s-1", "[::1]:9")
    return Batch(origin, 1, body.count(b",") + 1, body, len(body))


class Failing(RealDisk):
    """A disk that fails in one call on a segment when that is due, and first tells of it."""

    def __init__(self) -> None:
        self.due = ""
        self.when_due: Callable[[], object] = lambda: None

    def create(self, path: Path) -> object:  # type: ignore[override]
        made, disk = super().create(path), self

        class File:
            def __getattr__(self, name: str) -> object:
                return getattr(made, name)

            def write(self, chunks: object) -> None:
                made.write(chunks)  # all of it is there, whatever is said of it
                disk.fail("write", path)

            def sync(self) -> None:
                made.sync()
                disk.fail("sync", path)

        return File()

    def fail(self, call: str, path: Path) -> None:
        if call == self.due and path.suffix == ".journal":
            self.due = ""
            self.when_due()
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def start(data: Path, machine: Machine | None = None) -> Opened:
    decoders = {"plain": lambda body: Rows(body.split(b","))}
    directories = Directories.under(data)
    machine = machine or Machine()
    return open_node(Start("gw", directories, machine, decoders, remembering=False))


def publish(opened: Opened) -> None:
    """Whatever it has, as a daemon that ends does."""
    sealed = opened.log.seal()
    left = [*opened.unpublished, *opened.log.abandoned(), *([sealed] if sealed else [])]
    for each in left:
        opened.publisher.publish(each)


def rows(data: Path) -> set[tuple[str, int, bytes]]:
    """Incarnation, lsn and payload of each event in the spool's files."""
    found = set()
    for path in data.glob("spool/events-*"):
        named = parse_file_name(path.name)
        assert named is not None
        table = pq.read_table(path, columns=["lsn", "payload"]).to_pylist()
        found |= {(named.incarnation, row["lsn"], row["payload"]) for row in table}
    return found


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_copy_of_a_group_that_failed_takes_nobodys_name(tmp_path, call):
    """The disk was copied as it failed; the sender went away, another one's event came."""
    disk, data, copy = Failing(), tmp_path / "data", tmp_path / "copy"
    opened = start(data, Machine(disk))
    opened.log.commit([batch(b"a")])
    disk.when_due = lambda: shutil.copytree(data, copy)
    disk.due = call
    with pytest.raises(OSError, match="Input/output"):
        opened.log.commit([batch(b"withdrawn")])
    assert opened.log.commit([batch(b"b")]) == 2
    publish(opened)
    publish(start(copy))
    names: dict[tuple[str, int], set[bytes]] = {}
    for incarnation, lsn, payload in rows(data) | rows(copy):
        names.setdefault((incarnation, lsn), set()).add(payload)
    assert all(len(payloads) == 1 for payloads in names.values())
    assert {(lsn, payload) for _, lsn, payload in rows(data)} == {(1, b"a"), (2, b"b")}


def test_files_say_who_goes_on_from_whom(tmp_path):
    disk = Failing()
    opened = start(tmp_path, Machine(disk))
    first = opened.lineage.now
    opened.log.commit([batch(b"a")])
    for _ in range(3):  # those in between give no lsn, and nobody hears of them
        disk.due = "write"
        with pytest.raises(OSError, match="Input/output"):
            opened.log.commit([batch(b"b")])
    opened.log.commit([batch(b"b")])
    now = opened.lineage.now
    assert (now.earlier, now.since) == ((first.id,), 2)
    assert look(tmp_path / "journal/gw").newest(Incarnation) == now
    publish(opened)
    footer = pq.read_metadata(max(tmp_path.glob("spool/events-*"), key=_last)).metadata
    assert footer[b"gateway.first"] == b"2"
    assert footer[b"gateway.continues"] == first.id.encode()
    since = start(tmp_path)
    assert since.notice is None
    assert since.lineage.now.earlier == (first.id, now.id)


def _last(path: Path) -> int:
    named = parse_file_name(path.name)
    return named.last if named else 0


class Clocks:
    """A machine's; `resume` is what a hypervisor does that sets only one of them."""

    wall, ran = 1_700_000_000.0, 50.0

    def machine(self) -> Machine:
        return Machine(RealDisk(), lambda: self.wall, lambda: self.ran)

    def pass_time(self, wall: float, ran: float) -> None:
        self.wall += wall
        self.ran += ran


@pytest.mark.parametrize(
    ("wall", "ran", "renewed"),
    [
        (5.0, 5.0, False),
        (3_600.0, 3_602.0, False),  # slewed by NTP
        (90.0, 0.0, True),  # resumed from a snapshot of its memory
        (-90.0, 0.1, True),  # set back
        (0.1, 90.0, True),
    ],
)
def test_where_the_clocks_part_another_incarnation_begins(tmp_path, wall, ran, renewed):
    """Before the group that was synced then is acknowledged."""
    clocks = Clocks()
    opened = start(tmp_path, clocks.machine())
    first = opened.lineage.now.id
    assert opened.log.commit([batch(b"a")]) == 1
    clocks.pass_time(wall, ran)
    assert opened.log.commit([batch(b"b,c")]) == 2
    assert opened.log.commit([batch(b"d")]) == 4
    now = opened.lineage.now.id
    assert (now != first) is renewed
    publish(opened)
    assert rows(tmp_path) == {
        (first, 1, b"a"),
        (now, 2, b"b"),
        (now, 3, b"c"),
        (now, 4, b"d"),
    }


def test_a_resumed_machine_gives_no_name_that_the_other_gave(tmp_path):
    """Both go on from one moment; the clocks of one tell that it stood."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    clocks, resumed = Clocks(), Clocks()
    opened = start(data, clocks.machine())
    opened.log.commit([batch(b"a")])
    shutil.copytree(data, copy)
    # What its memory has: the same incarnation, the same next lsn.
    twin = start(copy, resumed.machine())
    twin.log.incarnation = opened.log.incarnation
    resumed.pass_time(600.0, 0.0)
    opened.log.commit([batch(b"b")])
    twin.log.commit([batch(b"c")])
    assert segment.incarnation_of(twin.log.synced.name) != opened.log.incarnation


def test_a_word_is_said_of_who_has_acknowledged(tmp_path):
    """Of one whose first group has failed nothing is said; behind it the word names all."""
    first = Incarnation("a" * 10, 1, 0)
    lineage, bucket = Lineage(first, Catalog(tmp_path, RealDisk())), MemoryBucket()
    acknowledged = 4
    speaker = Speaker(bucket, "gw", lineage, "journal", lambda: acknowledged, lambda: 0)
    lineage.renew(5)
    now = lineage.renew(5)
    speaker.say()
    assert [one.record.incarnation for one in read_all(bucket) if one.record] == [
        first.id
    ]
    acknowledged = 5
    speaker.say()
    words = {
        one.record.incarnation: one.record for one in read_all(bucket) if one.record
    }
    assert words.keys() == {first.id, now}
    assert words[now].goes_on_from(words[first.id])
