"""A gateway without threads and network, and what must be true after any crash."""

import contextlib
import functools
import hashlib
import itertools
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import Clock

from gateway.event import Batch, Origin, Rows, Stored
from gateway.store import digests, opening
from gateway.store.checkpoint import Checkpoint
from gateway.store.directories import Directories
from gateway.store.journal import log
from gateway.store.node import incarnation
from gateway.store.opening import Start, open_node
from gateway.store.spool import parquet, parse_file_name
from gateway.store.spool.mending import Entry
from gateway.store.system.machine import Machine
from gateway_testkit.crashes import crashes
from gateway_testkit.disk import Fault, RecordingDisk
from samples import some_of

T = TypeVar("T")
DIRECTORIES = Directories.under(Path("/gw"))
JOURNAL, SPOOL, ARCHIVE = (
    DIRECTORIES.journal_of("gw"), DIRECTORIES.spool, DIRECTORIES.archive
)  # fmt: skip
REMEMBERS = "a mark: the node has a memory"
SHARE = some_of(1, 15)
"""Where a crash comes on top of something else that went wrong, or the scenario is long, one
of so many steps is looked at, in each life others; `STATES=all`, which CI has, looks at all."""
STEP = some_of(1, 9)
"""The same of a crash in a first life, where nothing else went wrong."""


class Acknowledged(NamedTuple):
    """A mark: this batch's commit returned."""

    lsn: int
    body: bytes
    count: int


class Read(NamedTuple):
    """A mark: Spark may have read this file."""

    name: str
    content: bytes
    taken: bool
    """Spark has its rows in its tables."""


class Ledger:
    """A memory: which batches there were, and how many events each had."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def restore(self, data: bytes) -> None:
        assert not self.counts
        words = map(int, data.split())
        self.counts = dict(zip(words, words, strict=True))

    def replay(self, stored: Stored) -> None:
        number = number_of(stored.batch.body)
        if number > max(self.counts, default=0):
            self.counts[number] = stored.batch.count

    def start(self) -> None:
        """Nothing to submit."""

    def stop(self) -> None:
        """Nothing to stop."""

    def snapshot(self) -> Deferred[bytes]:
        return succeed(b" ".join(b"%d %d" % pair for pair in self.counts.items()))


class Senders:
    """Makes batches, and notes which of them are acknowledged."""

    def __init__(self, disk: RecordingDisk, ledger: Ledger, *, life: int = 1) -> None:
        self.disk = disk
        self.ledger = ledger
        self.origin = Origin("plain", "l", f"s-{life}", "[::1]:9")
        self._numbers = itertools.count(life * 100)

    def batch(self, count: int, size: int = 20) -> Batch:
        """Every event of it tells the batch and its place in it; none is metadata."""
        number = next(self._numbers)
        body = b",".join(
            b"%d/%d/%d/%s" % (number, n, count, b"x" * size)
            for n in range(max(1, count))
        )
        return Batch(self.origin, 5_000_000, count, body, len(body))

    def acknowledge(self, stored: Stored) -> None:
        """It is durable: whoever sent it is told, and remembered."""
        batch = stored.batch
        self.ledger.replay(stored)
        self.disk.mark(Acknowledged(stored.lsn, batch.body, batch.count))


class Gateway:
    """One life of the daemon without its threads; *tries* before it gives up.

    It remembers if the disk is marked so.
    """

    def __init__(self, disk: RecordingDisk, *, life: int = 1, tries: int = 1) -> None:
        self.disk = disk
        self.tries = tries
        self.ledger = Ledger()
        remembers = REMEMBERS in disk.marks
        opened = open_node(
            Start(
                "gw",
                DIRECTORIES,
                Machine(disk, clock=clock),
                {"plain": split},
                remembering=remembers,
                compression="none",
            )
        )
        assert opened.losses == []
        self._opened = opened
        self.log, self.publisher = opened.log, opened.publisher
        self.sealed = list(opened.unpublished)
        self.clock = Clock()
        self.checkpoint = Checkpoint(
            DIRECTORIES.state_of("gw"),
            {"ledger": self.ledger} if remembers else {},
            disk,
            self.clock,
            maybeDeferred,
            opened.publisher.remove,
        )
        self.checkpoint.recover(opened.segments, self.sealed)
        self.checkpoint.start()
        self.senders = Senders(disk, self.ledger, life=life)

    def commit(self, *counts: int, size: int = 20) -> None:
        """A group of batches of so many events, acknowledged when this returns."""
        batches = [self.senders.batch(count, size) for count in counts]
        lsn = self._insist(lambda: self.log.commit(batches))
        self.sealed += self.log.abandoned()
        for batch in batches:
            self.senders.acknowledge(Stored(batch, lsn))
            lsn += batch.count

    def mark(self) -> None:
        """Say how far it has come, as the spool's thread does; that may fail."""
        with contextlib.suppress(OSError):
            mark = self._opened.mark(self.log.next_lsn - 1)
            self._opened.marker.write(mark, now=True)

    def roll(self) -> None:
        """Seal the open segment; the mark has been beside it."""
        self.mark()
        sealed = self.log.seal()
        self.sealed += self.log.abandoned()
        if sealed is not None:
            self.sealed.append(sealed)

    def publish(self) -> None:
        """Everything that is sealed."""
        while self.sealed:
            self._insist(lambda: self.publisher.publish(self.sealed[0]))
            self.checkpoint.published(self.sealed.pop(0))

    def to_spool(self, *counts: int, size: int = 20) -> None:
        """All that is acknowledged, batches of these sizes too: sealed and published."""
        if counts:
            self.commit(*counts, size=size)
        self.roll()
        self.publish()

    def save(self) -> None:
        """A checkpoint, if there is anything to let go of."""
        for _ in range(self.tries):
            self.clock.advance(60)

    def take(self, *, keep: bool) -> None:
        """Spark commits what it sees, and archives or deletes it."""
        for name, content in public(self.disk).items():
            self.disk.mark(Read(name, content, taken=True))
            if keep:
                self.disk.rename(SPOOL / name, ARCHIVE / name)
            else:
                self.disk.unlink(SPOOL / name)

    def _insist(self, do: Callable[[], T]) -> T:
        for _ in range(self.tries - 1):
            with contextlib.suppress(OSError):
                return do()
        return do()


def new_disk(fault: Fault | None = None, *, remembers: bool = False) -> RecordingDisk:
    """Empty, with the directories of one node, which *remembers* or does not."""
    SALTS.begin()
    disk = RecordingDisk(fault)
    for path in (JOURNAL, SPOOL, ARCHIVE):
        disk.make_directory(path)
    if remembers:
        disk.mark(REMEMBERS)
    return disk


class Salts:
    """In place of `secrets`: the same numbers again on each new disk, so that two
    lives that did the same leave the same bytes, which are checked once.
    """

    def begin(self, life: int = 1) -> None:
        """Start over; each life has numbers of its own."""
        self._numbers = itertools.count(life << 24)

    def randbits(self, bits: int) -> int:
        """See `secrets`."""
        return next(self._numbers) % (1 << bits)

    def token_hex(self, size: int) -> str:
        """See `secrets`."""
        return f"{next(self._numbers):0{2 * size}x}"


SALTS = Salts()


def write_lines(
    batches: Iterable[Stored],
    sink: Any,
    *,
    decoder: Any,
    previous: Callable[[], str] = str,
    **_: Any,
) -> parquet.Written:
    """In place of Parquet where thousands of files are made; as easy to find torn."""
    rows = [
        (stored.lsn + n, payload)
        for stored in batches
        if stored.batch.count
        for n, payload in enumerate(decoder.rows(stored).payloads)
    ]
    lines = b"".join(b"%d %s\n" % row for row in rows)
    before = previous()
    sink.write(b"%bend %b" % (lines, before.encode()))
    digest = hashlib.sha256(lines).hexdigest()
    return parquet.Written(len(rows), digest=digest, previous=before)


def clock() -> float:
    return 1_763_700_000.0


def number_of(body: bytes) -> int:
    return int(body.partition(b"/")[0])


def split(body: bytes) -> Rows:
    return Rows(body.split(b","), content_type="text/plain")


def public(disk: RecordingDisk) -> dict[str, bytes]:
    return {
        name: disk.read(SPOOL / name)
        for name in disk.names(SPOOL)
        if parse_file_name(name)
    }


@functools.lru_cache(maxsize=4096)
def rows_of(content: bytes) -> dict[int, bytes]:
    """lsn to payload."""
    if not content.startswith(b"PAR1"):
        *lines, end = content.split(b"\n")
        assert len(end) == len(f"end {digests.NOTHING}"), "a torn file is public"
        return {int(lsn): payload for lsn, payload in map(bytes.split, lines)}
    table = pq.read_table(
        pa.BufferReader(content), columns=["lsn", "payload"], use_threads=False
    )
    lsns, payloads = (column.to_pylist() for column in table.columns)
    assert len(set(lsns)) == len(lsns)
    return dict(zip(lsns, payloads, strict=True))


def previous_of(content: bytes) -> str:
    """What a file says of the one before it."""
    if not content.startswith(b"PAR1"):
        return content.rpartition(b" ")[2].decode()
    metadata = pq.read_metadata(pa.BufferReader(content)).metadata
    return str(metadata[digests.PREVIOUS_KEY].decode())


def link_in(content: bytes) -> str:
    """Of a file."""
    if content.startswith(b"PAR1"):
        return digests.link_said(digests.metadata_of(pa.BufferReader(content)))
    lines, _, before = content.rpartition(b"end ")
    return digests.link_of(hashlib.sha256(lines).hexdigest(), before.decode())


def _link_of(newest: Entry, data: bytes) -> digests.Link:
    return digests.Link(newest.last, link_in(data))


def assert_chained(files: Mapping[str, bytes]) -> None:
    """Each file has the digest of the one before it, whatever happened in between."""
    link = digests.NOTHING
    for name, content in by_lsn(files):
        assert previous_of(content) == link, f"the chain is broken before {name}"
        link = link_in(content)


def by_lsn(files: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    """In the order in which they were made."""
    parsed = [(parse_file_name(name), name) for name in files]
    ordered = sorted((file.first, name) for file, name in parsed if file is not None)
    return [(name, files[name]) for _, name in ordered]


def check(disk: RecordingDisk) -> None:
    """Start on what a crash left, and hold it against all that was promised."""
    disk.records = False  # nobody cuts this life short
    marks = disk.marks
    read = [mark for mark in marks if isinstance(mark, Read)]
    taken = {mark.name: mark.content for mark in read if mark.taken}
    seen = {mark.name: mark.content for mark in read if not mark.taken}
    before = Gateway(disk)
    gateway = Gateway(disk, life=9)
    next_lsn, left = gateway.log.next_lsn, gateway.sealed
    assert before.log.next_lsn == next_lsn, "recovery changes its mind"
    assert before.sealed == left, "recovery changes its mind"
    remembered = dict(gateway.ledger.counts)
    assert before.ledger.counts == remembered, "recovery changes its mind"
    assert gateway.publisher.recover(left) == left
    gateway.publish()
    gateway.save()
    gateway.publisher.spares.give_room()

    files = public(disk)
    assert disk.names(SPOOL) == sorted(files), "hidden files are left"
    assert disk.names(JOURNAL) == ["catalog"], "segments are left"
    for name, content in seen.items():
        assert files.get(name, taken.get(name)) == content, f"{name} changed"
    for name, content in taken.items():
        assert files.get(name, content) == content, f"{name} changed"
    rows: dict[int, bytes] = {}
    for name, content in (files | taken).items():
        parsed = parse_file_name(name)
        first, last = (parsed.first, parsed.last) if parsed else (0, 0)
        inside = rows_of(content)
        assert sorted(inside) == list(range(first, last + 1)), f"{name} holds other"
        assert not rows.keys() & inside.keys(), f"{name} doubles what another has"
        rows |= inside
    assert sorted(rows) == list(range(1, next_lsn)), "a hole, or an lsn given twice"
    assert_chained(files | taken)
    for mark in marks:
        if isinstance(mark, Acknowledged) and mark.count:
            there = range(mark.lsn, mark.lsn + mark.count)
            whole = b",".join(rows.get(lsn, b"(lost)") for lsn in there)
            assert whole == mark.body, f"acknowledged batch at {mark.lsn} is not there"
    batches = assert_whole([rows[lsn] for lsn in sorted(rows)])
    if REMEMBERS in marks:
        assert_remembered(remembered, batches, marks)
        assert Gateway(disk).ledger.counts == remembered, "a checkpoint forgets"

    gateway.to_spool(0, 2)
    *_, (_, newest) = by_lsn(public(disk))
    assert rows_of(newest).keys() == {next_lsn, next_lsn + 1}
    assert disk.wrong == []


def assert_remembered(
    remembered: dict[int, int], published: list[int], marks: Iterable[object]
) -> None:
    """The memory has what was acknowledged, and agrees with the files."""
    for mark in marks:
        if isinstance(mark, Acknowledged):
            number = number_of(mark.body)
            assert remembered.get(number) == mark.count, f"{mark.body!r} is forgotten"
    data = [number for number, count in remembered.items() if count]
    assert data == published, "the memory and the files do not agree"


def assert_whole(payloads: list[bytes]) -> list[int]:
    """No batch is there in part, or twice; which are there."""
    batches: list[bytes] = []
    rest = iter(payloads)
    for payload in rest:
        number, _, count, _ = payload.split(b"/")
        batches.append(number)
        for n in range(1, int(count)):
            following = next(rest, b"nothing").split(b"/")
            assert following[:2] == [number, b"%d" % n], f"{payload!r} is torn"
    assert len(set(batches)) == len(batches), "a batch is there twice"
    return [int(number) for number in batches]


def crashed(
    disk: RecordingDisk,
    *,
    most: int = 48,
    every: int = 1,
    begin: int = 0,
    seen: set[Hashable] | None = None,
) -> Iterator[tuple[str, RecordingDisk]]:
    """What kill -9 and power cuts leave after every step of the last life, each state
    once; none that is *seen* already.
    """
    seen = set() if seen is None else seen
    for moment in disk.moments[begin::every]:
        files = public(RecordingDisk.after_kill(moment))
        reads = (Read(name, content, taken=False) for name, content in files.items())
        read = replace(moment, marks=(*moment.marks, *reads))
        killed = RecordingDisk.after_kill(read)
        # Not the same as a power cut that kept all: the next one may take it still.
        state = "killed", killed.fingerprint(), read.marks
        if state not in seen:
            seen.add(state)
            yield f"kill -9 after step {moment.number} ({moment.step})", killed
        yield from crashes(read, most=most, seen=seen)


def second_lives(
    disk: RecordingDisk, *, most: int
) -> Iterator[tuple[str, RecordingDisk]]:
    """What crashes during and after the recovery from a crash leave; a sample."""
    seen: set[Hashable] = set()
    first = enumerate(crashed(disk, most=most))
    # 5 and 12 have no common divisor: each step of a second life has its turn.
    for turn, (story, left) in itertools.islice(first, 0, None, SHARE):
        SALTS.begin(2)
        live_on(left)
        then_crashed = crashed(left, most=most, every=12, begin=turn % 12, seen=seen)
        for then, again in then_crashed:
            yield f"{story}; then {then}", again


def live_on(disk: RecordingDisk) -> None:
    """Recover, take more, publish, be read."""
    gateway = Gateway(disk, life=2)
    gateway.commit(1, 0, 2)
    gateway.publish()
    gateway.take(keep=True)
    gateway.save()
    gateway.roll()
    gateway.commit(0, 1)
    gateway.publish()


def check_all(states: Iterable[tuple[str, RecordingDisk]]) -> int:
    """Check them all; returns how many there were."""
    count = 0
    failures: dict[str, list[str]] = {}
    for count, (story, disk) in enumerate(states, 1):  # noqa: B007 - it is returned
        try:
            check(disk)
        except Exception as why:
            where = traceback.extract_tb(why.__traceback__)[-1]
            what = f"{type(why).__name__}: {why} ({where.filename}:{where.lineno})"
            failures.setdefault(what, []).append(story)
    report = [
        f"{len(stories)} states: {what}\n    first {stories[0]}"
        for what, stories in failures.items()
    ]
    if report:
        pytest.fail(f"of {count} states\n" + "\n".join(report), pytrace=False)
    return count


@pytest.fixture
def fixed_salts(monkeypatch) -> None:
    """The same bytes in every run."""
    SALTS.begin()
    monkeypatch.setattr(log, "secrets", SALTS)
    monkeypatch.setattr(incarnation, "secrets", SALTS)


@pytest.fixture
def quick_files(monkeypatch) -> None:
    """Files of lines instead of Parquet: the steps on the disk are the same."""
    monkeypatch.setattr(parquet, "write", write_lines)
    monkeypatch.setattr(opening, "_link_in", _link_of)


@pytest.fixture
def crash(fixed_salts) -> SimpleNamespace:
    """All of the above, for tests in several files."""
    return SimpleNamespace(
        Gateway=Gateway,
        Ledger=Ledger,
        Senders=Senders,
        clock=clock,
        directories=DIRECTORIES,
        journal=JOURNAL,
        spool=SPOOL,
        split=split,
        check=check,
        new_disk=new_disk,
        check_all=check_all,
        crashed=crashed,
        second_lives=second_lives,
        share=SHARE,
        step=STEP,
    )
