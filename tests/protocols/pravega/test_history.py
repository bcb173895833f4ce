"""Bytes of a channel, read back from the journal, the spool and the archive."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow.parquet as pq
import pytest
from twisted.internet.defer import Deferred, succeed

from gateway.event import Batch, Origin
from gateway.protocols.pravega import history as history_module
from gateway.protocols.pravega import journal_runs, records
from gateway.protocols.pravega.history import History
from gateway.protocols.pravega.runs import FileIndex, RowGroup
from gateway.protocols.pravega.segments import Segments
from gateway.protocols.pravega.wire import NEVER
from gateway.store import finder
from gateway.store.directories import Directories
from gateway.store.disk import RealDisk
from gateway.store.finder import Gone
from gateway.store.journal import log, segment
from gateway.store.names import file_name, parse_kept_name
from gateway.store.opening import open_node
from gateway.store.spool import columns
from gateway.store.spool.retained import Retained

from .conftest import W

ORIGIN = Origin("pravega", "p", "1", "192.0.2.1:1")
OTHER = Origin("other", "o", "1", "192.0.2.1:1")


def at_once(call: Callable[..., bytes], *args: Any) -> Deferred[bytes]:
    return succeed(call(*args))


class Places:
    """A journal that is written, published and archived by hand."""

    def __init__(self, root: Path) -> None:
        self.disk = RealDisk()
        self.root = root
        self.directories = Directories.under(root)
        self.journal = self.directories.journal_of("n")
        self.open()
        self.state = Segments()
        for name in ("s", "t"):
            self.commit(self.state.create(name, 0))
        self.bytes = {"s": b"", "t": b""}
        self.numbers = {"s": NEVER, "t": NEVER}

    def open(self, *, remembering: bool = False) -> None:
        decoders = {"pravega": records.decode, "other": records.decode}
        opened = open_node(
            "n", self.directories, self.disk, decoders, remembering=remembering
        )
        self.log, self.publisher = opened.log, opened.publisher

    def commit(self, change: Any, origin: Origin = ORIGIN) -> None:
        batch = Batch(origin, 0, change.count, change.body, change.payload_bytes)
        lsn = self.log.commit([batch])
        if origin is ORIGIN:
            list(self.state.stored(change.body, lsn))

    def append(self, data: bytes, name: str = "s") -> None:
        last = self.numbers[name]
        self.numbers[name] = max(last, 0) + 1
        self.commit(
            self.state.append(
                name, W, self.numbers[name], data, 0, claimed=1, last=last
            )
        )
        self.bytes[name] += data

    def publish(self) -> Path:
        sealed = self.log.seal()
        assert sealed is not None
        published = self.publisher.publish(sealed)
        assert published is not None
        return published.path

    def archive(self) -> None:
        """Publish, and let the Spark job take it."""
        path = self.publish()
        path.rename(self.directories.archive / path.name)

    def retained(self) -> Retained:
        made = Retained(
            "n",
            self.directories.retained_of("n"),
            self.directories.archive,
            self.disk,
        )
        made.needed = {"pravega": self.state.needed}
        return made

    def expire(self, retained: Retained | None = None) -> None:
        """Every file leaves the archive."""
        names = sorted(self.directories.archive.iterdir())
        for path in (retained or self.retained()).keep(names):
            self.disk.unlink(path)

    def kept(self) -> list[Path]:
        return sorted(self.directories.retained_of("n").iterdir())

    def history(self) -> History:
        return History(
            "n",
            self.directories,
            protocol="pravega",
            in_thread=at_once,
        )

    def whole(self, history: History, name: str, *, size: int = 37) -> bytes:
        """A segment, read from its beginning in small pieces."""
        got = b""
        found = self.state.find(name)
        while len(got) < found.readable:
            lsn = found.lsn_near(len(got))
            assert lsn is not None
            more = history.fetch(name, len(got), size, lsn)
            assert 0 < len(more) <= size
            got += more
        return got


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def events(*payloads: bytes) -> bytes:
    return b"".join(len(each).to_bytes(8) + each for each in payloads)


def fill(places: Places) -> None:
    for n in range(20):
        places.append(events(b"%d" % n * n, b"", b"x"))
        places.append(b"raw bytes %d" % n if n % 3 == 0 else events(b"t"), "t")


@pytest.mark.parametrize("published", [0, 1, 2])
def test_wherever_it_lies(places: Places, published: int) -> None:
    """Journal, spool, archive, or all three: the bytes are the bytes."""
    paths = []
    for _ in range(3):
        fill(places)
        if len(paths) < published:
            paths.append(places.publish())
        else:
            places.log.seal()
    fill(places)
    if paths:
        paths[0].rename(places.root / "archive" / paths[0].name)
    history = places.history()
    for name in ("s", "t"):
        assert places.whole(history, name) == places.bytes[name]


@pytest.mark.parametrize("lost", [False, True])
def test_segments_that_stay_though_they_are_published(
    places: Places, *, lost: bool
) -> None:
    """With metadata alone in some of them: the bytes are the bytes, each once; even if
    a file has gone before its segment."""
    places.open(remembering=True)
    for n in range(3):
        places.commit(places.state.create(f"m{n}", 0))
        places.log.seal()
        places.commit(places.state.create(f"n{n}", 0))
        fill(places)
        path = places.publish()
        if lost and n == 1:
            path.unlink()
    fill(places)
    history = places.history()
    for name in ("s", "t"):
        assert places.whole(history, name) == places.bytes[name]
    for path in sorted((places.journal).glob("*.journal"))[:-1]:
        path.unlink()
    history.refresh()
    if not lost:
        assert places.whole(history, "s") == places.bytes["s"]


@pytest.mark.parametrize("published", [False, True])
def test_large_batches(places: Places, *, published: bool) -> None:
    """Many events in a batch, of one size or of many, with others between them."""
    for n in range(3):
        places.append(events(*(b"%09d" % at for at in range(n, 200))))
        places.append(events(*(b"x" * at for at in range(n, 100))), "t")
        places.append(b"raw bytes %d" % n, "t")
        places.append(events(*(b"y" * (at % 7) for at in range(n, 100))))
    if published:
        places.publish()
    history = places.history()
    for name in ("s", "t"):
        assert places.whole(history, name, size=500) == places.bytes[name]


def test_files_that_move_meanwhile(places: Places) -> None:
    """What was in the journal a moment ago is found in the spool, then the archive."""
    fill(places)
    history = places.history()
    assert places.whole(history, "s") == places.bytes["s"]
    path = places.publish()
    assert places.whole(history, "s") == places.bytes["s"]
    path.rename(places.root / "archive" / path.name)
    assert places.whole(history, "t") == places.bytes["t"]


def test_a_file_that_moves_while_we_look(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is published between two looks is seen by one of them."""
    fill(places)
    names, looked = finder.list_names, []

    def and_then_publish(directory: Path) -> list[str]:
        found = names(directory)
        looked.append(directory)
        if len(looked) == 1:
            places.publish()
            for path in (places.journal).glob("*.journal"):
                path.unlink()
        return found

    monkeypatch.setattr(finder, "list_names", and_then_publish)
    assert places.history().first_lsn == 1
    assert len(looked) == 4


def test_what_is_gone(places: Places) -> None:
    """A file that was deleted takes its bytes along; the first lsn says so."""
    fill(places)
    path = places.publish()
    first = len(places.bytes["s"])
    fill(places)
    history = places.history()
    assert history.first_lsn == 1
    path.unlink()
    with pytest.raises(Gone):
        history.fetch("s", 0, 10, 1)
    assert (
        history.first_lsn
        == segment.parse_name(min(p.name for p in (places.journal).glob("*.journal")))[
            0
        ]
    )  # type: ignore[index]
    place = places.state.find("s").lsn_near(first)
    assert place is not None
    assert (
        history.fetch("s", first, 8, history.first_lsn)
        == places.bytes["s"][first : first + 8]
    )


def test_nothing_at_all(tmp_path: Path) -> None:
    """Without any file everything is gone, as soon as somebody asks for it."""
    places = Places(tmp_path)
    for path in places.journal.glob("*.journal"):
        path.unlink()
    history = places.history()
    with pytest.raises(Gone):
        history.fetch("s", 0, 10, 7)
    assert history.first_lsn == 8


def test_the_first_files_of_all(places: Places) -> None:
    """Who began before there was any file does not take what came later for gone."""
    for path in (places.journal).glob("*.journal"):
        path.unlink()
    history = places.history()
    assert history.first_lsn <= 1
    places.log = log.Log(places.journal, places.disk, 1)
    fill(places)
    assert places.whole(history, "s") == places.bytes["s"]


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of a few events."""
    monkeypatch.setattr(columns, "GROUP_ROWS", 4)


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("size", [3, 37, 10_000])
def test_many_pieces(places: Places, size: int) -> None:
    """Row groups are joined as if there were none, whatever a reader asks for."""
    for _ in range(3):
        fill(places)
        places.publish()
    history = places.history()
    for name in ("s", "t"):
        assert places.whole(history, name, size=size) == places.bytes[name]


@pytest.mark.parametrize("size", [3, 40, 10_000])
@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_small_pieces_of_the_journal(
    places: Places, monkeypatch: pytest.MonkeyPatch, size: int, piece: int
) -> None:
    """However an append is cut, and whatever is read at once, also while it grows."""
    monkeypatch.setattr(journal_runs, "_PIECE_BYTES", piece)
    monkeypatch.setattr(journal_runs, "_WINDOW_BYTES", 2 * piece)
    history = places.history()
    for _ in range(3):
        fill(places)
        for name in ("s", "t"):
            assert places.whole(history, name, size=size) == places.bytes[name]
        places.publish()


def test_a_journal_segment_with_other_bytes(places: Places, tmp_path: Path) -> None:
    """What a failed write left may be written again in the same place."""
    other = Places(tmp_path / "other")
    fill(places)
    other.append(events(b"something else"), "t")
    fill(other)
    history = places.history()
    assert places.whole(history, "s") == places.bytes["s"]
    [mine], [theirs] = (one.journal.glob("*.journal") for one in (places, other))
    mine.write_bytes(theirs.read_bytes())
    assert other.whole(history, "s") == other.bytes["s"]
    assert other.whole(history, "t") == other.bytes["t"]


@pytest.mark.usefixtures("small_groups")
def test_who_reads_on(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece is read once for each reader that reads on, and not from the mark."""
    fill(places)
    places.publish()
    opened: list[tuple[Path, int]] = []
    read = pq.ParquetFile.read_row_group

    def counted(self: Any, number: int, **options: Any) -> Any:
        if "payload" in options["columns"]:
            opened.append((self, number))
        return read(self, number, **options)

    monkeypatch.setattr(history_module, "_RUN_BYTES", 1)
    monkeypatch.setattr(history_module, "_GROUP_BYTES", 1)
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    history = places.history()
    assert places.whole(history, "s", size=10_000) == places.bytes["s"]
    numbers = [number for _, number in opened]
    assert numbers == sorted(set(numbers))


def test_a_little_of_a_piece(places: Places) -> None:
    """Whoever reads a small segment does not keep what lies around it in memory."""
    places.append(events(b"small"))
    places.append(events(b"x" * 1000), "t")
    path = places.publish()
    with pq.ParquetFile(path) as file:
        group = RowGroup(file, 0, "pravega")
    for name in ("s", "t"):
        data = group.run(name).data
        assert bytes(data) == places.bytes[name]
        whole = data if isinstance(data, bytes) else data.obj
        assert memoryview(whole).nbytes == len(data)


@pytest.mark.parametrize("published", [False, True])
def test_a_name_used_twice(places: Places, *, published: bool) -> None:
    """A segment that was deleted and made again has none of its old bytes."""
    places.append(events(b"old" * 9, b"old, too"))
    places.commit(places.state.delete("s", 0))
    places.commit(places.state.create("s", 0))
    places.bytes["s"], places.numbers["s"] = b"", NEVER
    places.append(events(b"new", b"and so on", b"to the end of it"))
    if published:
        places.publish()
    for size in (5, 1000):
        assert places.whole(places.history(), "s", size=size) == places.bytes["s"]


def test_a_name_used_again_behind_what_was_read(places: Places) -> None:
    """Nor does one who has read the old bytes miss the new ones, which are fewer."""
    history = places.history()
    places.append(events(b"old" * 900, b"old, too"))
    assert places.whole(history, "s", size=1000) == places.bytes["s"]
    places.commit(places.state.delete("s", 0))
    places.commit(places.state.create("s", 0))
    places.bytes["s"], places.numbers["s"] = b"", NEVER
    places.append(events(b"new"))
    assert places.whole(history, "s") == places.bytes["s"]


def test_who_reads_on_in_a_large_event_looks_at_no_later_file(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else was stored since."""
    looked_at: list[str] = []
    index = history_module._Published._index

    def noted(self: Any, file: Any) -> Any:
        looked_at.append(file.path.name)
        return index(self, file)

    monkeypatch.setattr(history_module._Published, "_index", noted)
    places.append(events(b"x" * 10_000))
    first = places.publish()
    for turn in range(4):
        places.append(events(b"later %d" % turn), "t")
        places.publish()
    assert places.whole(places.history(), "s", size=900) == places.bytes["s"]
    assert looked_at == [first.name]


def test_a_tail_that_was_written_again(places: Places) -> None:
    """What a failed sync left in a file counts for nothing where another begins."""
    fill(places)
    first = places.log.next_lsn
    state, numbers = places.state, dict(places.numbers)
    begin = dict(places.bytes)
    places.append(events(b"never acknowledged"))
    abandoned = places.log
    places.log = log.Log(places.journal, places.disk, first)
    places.state, places.numbers, places.bytes = Segments(), numbers, begin
    length = len(begin["s"])
    places.state = restored(state, length)
    places.append(events(b"stored instead of it"))
    assert abandoned.next_lsn == places.log.next_lsn
    place = places.state.find("s").lsn_near(length)
    assert place == first
    found = places.history().fetch("s", length, 1000, first)
    assert found == events(b"stored instead of it")


def restored(before: Segments, length: int) -> Segments:
    """A state whose segment `s` ends at *length*, like that of *before* did once."""
    state = Segments()
    state.create("s", 0)
    segment = state.find("s")
    segment.length = segment.readable = length
    segment.writers[W] = before.find("s").number_of(W) - 1
    return state


def test_flipped_bits(places: Places) -> None:
    """A file that does not have the bytes that were written to it gives none."""
    places.append(events(bytes(range(256)) * 8))
    path = places.publish()
    data = bytearray(path.read_bytes())
    at = (
        pq.ParquetFile(path)
        .metadata.row_group(0)
        .column(_column(path))
        .data_page_offset
    )
    data[at + 60] ^= 1
    path.write_bytes(data)
    with pytest.raises(OSError, match="CRC"):
        places.history().fetch("s", 0, 10_000, 1)


def _column(path: Path) -> int:
    names = [each.path for each in pq.ParquetFile(path).schema]
    return names.index("payload")


def test_other_protocols_are_not_ours(places: Places) -> None:
    """A channel of the same name in another protocol is another channel."""
    change = Segments().create("s", 0)
    state = Segments()
    state.create("s", 0)
    other = state.append("s", W, 1, events(b"not ours"), 0, claimed=1, last=NEVER)
    places.commit(other, OTHER)
    places.append(events(b"ours"))
    assert places.whole(places.history(), "s") == events(b"ours")
    places.publish()
    assert places.whole(places.history(), "s") == events(b"ours")
    assert change.count == 0


def test_in_a_thread(places: Places) -> None:
    """`read` is `fetch`, somewhere else."""
    places.append(events(b"abc"))
    got: list[bytes] = []
    places.history().read("s", 8, 100, 1).addCallback(got.append)
    assert got == [b"abc"]


def test_a_few_reads_at_a_time(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads are few, and others need them; each read has its turn."""
    places.append(b"abcdef")
    monkeypatch.setattr(history_module, "_MOST_THREADS", 2)
    history = places.history()
    begun: list[tuple[Deferred[bytes], Any]] = []

    def in_thread(*call: Any) -> Deferred[bytes]:
        begun.append((Deferred(), call))
        return begun[-1][0]

    history._in_thread = in_thread
    got: list[bytes] = []
    for offset in range(5):
        history.read("s", offset, 1, 1).addCallback(got.append)
    for number in range(5):
        assert len(begun) == min(number + 2, 5)
        done, (fetch, *where) = begun[number]
        done.callback(fetch(*where))
    assert got == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.usefixtures("small_groups")
def test_readers_in_parallel(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two row groups are decoded at the same time; and one of them once, for all who
    wait for it.
    """
    fill(places)
    path = places.publish()
    history, begun = places.history(), Barrier(2)
    decoded: list[int] = []

    class Slow(RowGroup):
        def __init__(self, file: Any, number: int, protocol: str) -> None:
            begun.wait(60)
            decoded.append(number)
            super().__init__(file, number, protocol)

    monkeypatch.setattr(history_module, "RowGroup", Slow)
    with pq.ParquetFile(path) as file:
        index = FileIndex(file, "pravega")
    first, *_, last = index.spans("s", 1)
    assert first.group != last.group
    offsets = [first.first, last.first] * 3
    with ThreadPoolExecutor(len(offsets)) as pool:
        got = list(pool.map(lambda at: history.fetch("s", at, 8, 1), offsets))
    assert got == [places.bytes["s"][at : at + 8] for at in offsets]
    assert sorted(decoded) == [first.group, last.group]


@pytest.mark.usefixtures("small_groups")
def test_a_quiet_stream_among_busy_ones(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Payloads are read where it has events, and nowhere else; of other row groups a few
    small columns, once; of those with other protocols alone nothing.
    """
    places.append(events(b"first"))
    other = Segments()
    other.create("s", 0)
    for n in range(30):
        places.append(events(*(b"busy" for _ in range(5))), "t")
        for at in range(n * 5, n * 5 + 5):
            last = at - 1 if at else NEVER
            change = other.append("s", W, at, events(b"x"), 0, claimed=1, last=last)
            places.commit(change, OTHER)
        if n % 10 == 9:
            places.publish()
    places.append(events(b"last"))
    places.publish()
    reads: list[tuple[str, int, bool]] = []
    read = pq.ParquetFile.read_row_group

    def counted(self: Any, number: int, **options: Any) -> Any:
        table = read(self, number, **options)
        lsn = self.metadata.row_group(number).column(1).statistics.min
        reads.append((lsn, number, "payload" in options["columns"]))
        return table

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    history = places.history()
    assert places.whole(history, "s", size=1000) == places.bytes["s"]
    groups = sum(
        pq.read_metadata(path).num_row_groups
        for path in places.directories.spool.glob("*.parquet")
    )
    assert sum(payload for *_, payload in reads) == 2
    looked = [each for each in reads if not each[2]]
    assert len(looked) == len(set(looked)) < groups
    before = len(reads)
    assert places.whole(history, "s", size=5) == places.bytes["s"]
    assert len(reads) == before


def test_what_is_needed_outlives_its_file(places: Places) -> None:
    """When files leave the archive, what is needed of them is kept: every byte of the
    streams can be read, those of other protocols are gone.
    """
    for _ in range(3):
        fill(places)
        other = Segments()
        other.create("s", 0)
        change = other.append("s", W, 1, events(b"x"), 0, claimed=1, last=NEVER)
        places.commit(change, OTHER)
        places.archive()
    places.expire()
    assert not [*places.directories.archive.iterdir()]
    [kept] = places.kept()
    channels = pq.read_table(kept)["protocol"].to_pylist()
    assert {*channels} == {"pravega"}
    fill(places)
    history = places.history()
    assert history.first_lsn == 1
    for name in ("s", "t"):
        assert places.whole(history, name) == places.bytes[name]


def test_truncated_it_is_let_go(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is truncated leaves the disk, what is not stays; a deleted segment leaves
    nothing, also of a file that others need.
    """
    monkeypatch.setattr("gateway.protocols.pravega.segment.MARK_BYTES", 1)
    fill(places)
    places.archive()
    retained = places.retained()
    places.expire(retained)
    before = places.kept()[0].stat().st_size
    state = places.state
    half = state.find("s").mark_offsets[10]  # type: ignore[index]
    for name in ("s", "t"):
        places.commit(
            state.truncate(name, half if name == "s" else state.find(name).length, 0)
        )
    assert retained.tidy()
    [kept] = places.kept()
    assert kept.stat().st_size < before
    rows = pq.read_table(kept)
    assert {*rows["channel"].to_pylist()} == {"s"}
    assert min(rows["seq"].to_pylist()) == half
    history = places.history()
    assert (
        history.fetch("s", half, 10, state.find("s").lsn_near(half))
        == places.bytes["s"][half : half + 10]
    )
    places.commit(state.delete("s", 0))
    assert retained.tidy()
    assert places.kept() == []
    assert retained.files == 0


def test_a_change_that_is_not_durable_lets_nothing_go(places: Places) -> None:
    """A truncation or deletion may be undone by a crash, as long as it is not durable."""
    fill(places)
    state = places.state
    before = state.needed("s"), state.needed("t")
    cut = state.truncate("s", state.find("s").length, 0)
    gone = state.delete("t", 0)
    assert (state.needed("s"), state.needed("t")) == before == (1, 4)
    list(state.stored(cut.body, 0))
    list(state.stored(gone.body, 0))
    assert (state.needed("s"), state.needed("t")) == (None, None)


def test_one_event_of_a_quiet_stream(places: Places) -> None:
    """One event beside very many that nobody needs takes the room of one event; small
    files become few.
    """
    retained = places.retained()
    for n in range(40):
        places.append(events(b"%d" % n))
        for _ in range(20):
            places.append(events(bytes(1000)), "t")
        length = places.state.find("t").length
        places.commit(places.state.truncate("t", length, 0))
        places.archive()
        places.expire(retained)
        retained.tidy()
    kept = places.kept()
    assert len(kept) < 16
    assert sum(len(pq.read_table(path)) for path in kept) == 40
    assert retained.bytes == sum(path.stat().st_size for path in kept)
    assert places.whole(places.history(), "s") == places.bytes["s"]


def _emptied(places: Places, retained: Any) -> None:
    """A start that has room lets the archive go, and keeps no row twice."""
    retained.recover()
    places.expire(retained)
    retained.tidy()
    assert not [*places.directories.archive.iterdir()]
    rows = [
        lsn for path in places.kept() for lsn in pq.read_table(path)["lsn"].to_pylist()
    ]
    assert len(rows) == len({*rows})


@pytest.mark.parametrize("step", range(8))
def test_a_crash_while_files_are_kept(
    places: Places, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Whatever is done when it comes, nothing is lost, and the next start clears up."""
    monkeypatch.setattr("gateway.store.spool.retained._SMALL", 2)
    fill(places)
    places.archive()
    places.expire()
    fill(places)
    places.archive()
    fill(places)
    places.archive()
    calls = 0

    def dies(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        for name in ("unlink", "rename", "sync_directory"):
            real = getattr(places.disk, name)
            patch.setattr(
                places.disk, name, lambda *args, real=real: (dies(), real(*args))
            )
        try:
            retained = places.retained()
            places.expire(retained)
            retained.tidy()
        except KeyboardInterrupt:
            pass
    for name in ("s", "t"):
        assert places.whole(places.history(), name) == places.bytes[name]
    retained = places.retained()
    _emptied(places, retained)
    for name in ("s", "t"):
        assert places.whole(places.history(), name) == places.bytes[name]


class _Written:
    """A file whose writes are told before they are done."""

    def __init__(self, file: Any, before: Callable[[], None]) -> None:
        self._file, self._before = file, before

    def write(self, chunks: Any) -> None:
        self._before()
        self._file.write(chunks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize(
    ("moved", "step"),
    [
        *(pytest.param(1, step, id=f"moved, {step}") for step in range(10)),
        *(pytest.param(1 << 40, step, id=f"written anew, {step}") for step in range(4)),
    ],
)
def test_a_full_disk_while_files_are_kept(
    places: Places, monkeypatch: pytest.MonkeyPatch, step: int, moved: int
) -> None:
    """From whatever step on it has no room, every byte can be read all the while, also by
    who has looked before; with room again the archive is emptied, and no row is twice.
    """
    monkeypatch.setattr("gateway.store.spool.retained._MOVED_BYTES", moved)
    monkeypatch.setattr("gateway.store.spool.retained._SMALL", 2)
    for _ in range(4):
        fill(places)
        places.archive()
    before, calls = places.history(), count()

    def all_is_there() -> None:
        for history in (before, places.history()):
            for name in ("s", "t"):
                assert places.whole(history, name, size=997) == places.bytes[name]

    def takes(*_: Any) -> None:
        if next(calls) >= step:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    retained = places.retained()
    with monkeypatch.context() as full:
        for name in ("make_directory", "rename"):
            real = getattr(places.disk, name)
            full.setattr(
                places.disk, name, lambda *args, real=real: (takes(), real(*args))[1]
            )
        create = places.disk.create
        full.setattr(
            places.disk,
            "create",
            lambda path: (takes(), _Written(create(path), takes))[1],
        )
        for work in (lambda: places.expire(retained), retained.tidy) * 2:
            with contextlib.suppress(OSError):
                work()
            all_is_there()
    assert next(calls) > step, "it had room for everything"
    _emptied(places, retained)
    all_is_there()


def test_a_start_syncs_what_is_kept_before_the_archive_lets_go(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last run may have failed to: then a power cut would take both."""
    fill(places)
    places.archive()
    (archived,) = places.directories.archive.iterdir()
    list(places.retained().keep([archived]))
    kept = places.directories.retained_of("n")
    order: list[Path] = []
    for name in ("sync_directory", "unlink"):
        call = getattr(RealDisk, name)

        def noted(self: RealDisk, path: Path, call: Any = call) -> None:
            order.append(path)
            call(self, path)

        monkeypatch.setattr(RealDisk, name, noted)
    places.retained().recover()
    assert archived in order
    assert kept in order[: order.index(archived)]


def test_what_can_not_be_read_stays(places: Places) -> None:
    """A damaged file of which something is needed stays in the archive; others go."""
    for _ in range(3):
        fill(places)
        places.archive()
    paths = sorted(places.directories.archive.iterdir())
    paths[1].write_bytes(b"damaged")
    places.expire()
    assert [*places.directories.archive.iterdir()] == [paths[1]]
    ranges = [parse_kept_name(path.name) for path in places.kept()]
    assert len(ranges) == 2


def test_files_that_leave_out_of_order(places: Places) -> None:
    """The job may take a file late, when those around it have expired: it is kept then
    like any other, and nothing is counted as kept before.
    """
    fill(places)
    places.archive()
    fill(places)
    late = places.publish()
    fill(places)
    places.archive()
    retained = places.retained()
    places.expire(retained)
    assert len(places.kept()) == 2
    retained.tidy()
    late.rename(places.directories.archive / late.name)
    places.expire(retained)
    retained.recover()
    for name in ("s", "t"):
        assert places.whole(places.history(), name) == places.bytes[name]


def away(places: Places, count: int = 3) -> list[Path]:
    """Files in the archive, filled."""
    for _ in range(count):
        fill(places)
        places.archive()
    return sorted(places.directories.archive.iterdir())


def test_a_file_that_returns_is_kept(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lay in `poison/` while its neighbours expired: no kept file stands for it."""
    monkeypatch.setattr("gateway.store.spool.retained._SMALL", 3)
    paths = away(places, 5)
    poison = places.root / paths[2].name
    paths[2].rename(poison)
    retained = places.retained()
    with monkeypatch.context() as patch:
        patch.setattr("gateway.store.spool.retained._FILE_BYTES", 1)
        places.expire(retained)
    assert not retained.tidy()
    poison.rename(paths[2])
    retained.recover()
    places.expire(retained)
    assert retained.tidy()
    assert len(places.kept()) == 1
    for name in ("s", "t"):
        assert places.whole(places.history(), name) == places.bytes[name]


def test_files_of_which_nothing_is_needed_part_no_neighbours(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, between and behind those with needed rows, whenever it is that these are
    not needed any more: the files become one in the end.
    """
    monkeypatch.setattr("gateway.store.spool.retained._SMALL", 2)
    retained = places.retained()
    state = places.state
    for n in range(7):
        places.append(events(b"%d" % n), "s" if n % 2 else "t")
        if n % 4 == 0:
            places.commit(state.truncate("t", state.find("t").length, 0))
        places.archive()
        places.expire(retained)
    places.commit(state.truncate("t", state.find("t").length, 0))
    for _ in range(4):
        retained.tidy()
    [kept] = places.kept()
    assert pq.read_table(kept)["lsn"].to_pylist() == [2, 4, 6]
    assert places.whole(places.history(), "s") == places.bytes["s"]


def fail(
    patch: pytest.MonkeyPatch,
    places: Places,
    call: str,
    number: int,
    of: Callable[[Path], bool],
) -> None:
    """This call of the disk has this error for some paths."""
    real = getattr(places.disk, call)

    def failing(path: Path, *more: Any) -> Any:
        if of(path):
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *more)

    patch.setattr(places.disk, call, failing)


def bad_sector(patch: pytest.MonkeyPatch, places: Places, damaged: Path) -> None:
    fail(patch, places, "read", errno.EIO, damaged.__eq__)


def test_one_that_can_not_be_kept_holds_no_other(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without room for the rows of one, or with a bad sector in it, all others go as soon
    as they are kept; so do those that nobody needs.
    """
    monkeypatch.setattr("gateway.store.spool.retained._FILE_BYTES", 1)
    paths = away(places, 4)
    other = places.directories.archive / file_name("other", 1, 1)
    other.touch()
    bad_sector(monkeypatch, places, paths[1])

    def of_first(path: Path) -> bool:
        return parse_kept_name(path.name[1:])[0] == 1  # type: ignore[index]

    with monkeypatch.context() as full:
        fail(full, places, "create", errno.ENOSPC, of_first)
        with pytest.raises(OSError, match="No space"):
            places.expire()
    assert sorted(places.directories.archive.iterdir()) == paths[:2]
    places.expire()
    assert [*places.directories.archive.iterdir()] == [paths[1]]


def kept_one_by_one(places: Places, count: int) -> Retained:
    """So many files are away; what is needed of each is in a file of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gateway.store.spool.retained._FILE_BYTES", 1)
        away(places, count)
        retained = places.retained()
        places.expire(retained)
    return retained


def test_a_bad_sector_stops_no_tidying(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other files are looked at, and become one beside it."""
    retained = kept_one_by_one(places, 5)
    monkeypatch.setattr("gateway.store.spool.retained._SMALL", 2)
    damaged = places.kept()[0]
    bad_sector(monkeypatch, places, damaged)
    retained.tidy()  # finds it
    assert retained.tidy()
    assert len(places.kept()) == 2
    places.commit(places.state.delete("s", 0))
    places.commit(places.state.delete("t", 0))
    assert retained.tidy()
    assert places.kept() == [damaged]


def test_a_little_that_is_let_go(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves the disk, also where most of its file is needed; of many files one in each
    look that takes long, that with most to give back first.
    """
    monkeypatch.setattr("gateway.protocols.pravega.segment.MARK_BYTES", 1)
    monkeypatch.setattr("gateway.store.spool.retained._SMALL", 99)
    retained = kept_one_by_one(places, 3)
    retained._clock = count(step=10.0).__next__  # whatever is done takes long
    state = places.state
    offsets = state.find("t").mark_offsets
    assert offsets is not None
    places.commit(state.truncate("t", offsets[45], 0))

    def not_needed() -> int:
        counts = [retained._count(path) for path in places.kept()]
        return sum(rows - needed for needed, rows in counts)

    left = [not_needed()]
    while retained.tidy():
        left.append(not_needed())
    assert left == [45, 25, 5, 0]
    assert places.whole(places.history(), "s") == places.bytes["s"]


def test_an_empty_file_has_nothing(places: Places) -> None:
    """Somebody put it in the place of one that is lost."""
    paths = away(places)
    paths[1].write_bytes(b"")
    places.expire()
    assert not [*places.directories.archive.iterdir()]
    assert len(places.kept()) == 1


def test_what_is_large_unpacked_is_moved_as_it_is(places: Places) -> None:
    """However small it is on the disk, and beside others alike, to write it anew costs
    what is in it.
    """
    for _ in range(2):
        for _ in range(17):
            places.append(events(bytes(1 << 20)))
        places.archive()
    paths = sorted(places.directories.archive.iterdir())
    assert sum(path.stat().st_size for path in paths) < 1 << 20
    before = [path.stat().st_ino for path in paths]
    retained = places.retained()
    places.expire(retained)
    retained.tidy()
    assert [path.stat().st_ino for path in places.kept()] == before


def test_sizes_that_are_not_known_yet_are_asked_for_bit_by_bit(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With very many files a look after a start takes no longer than others."""
    kept_one_by_one(places, 6)
    retained = places.retained()
    sized: list[Path] = []
    monkeypatch.setattr(retained, "_size", lambda path: (sized.append(path), 1)[1])
    monkeypatch.setattr(retained, "_clock", count(step=0.4).__next__)
    for most in (2, 4, 6, 6):
        retained.tidy()
        assert sized == places.kept()[:most]


def test_kept_on_another_file_system(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that can not be moved there is written there."""
    monkeypatch.setattr("gateway.store.spool.retained._MOVED_BYTES", 1)
    archive = places.directories.archive
    fail(monkeypatch, places, "rename", errno.EXDEV, lambda old: old.parent == archive)
    away(places, 1)
    places.expire()
    assert not [*archive.iterdir()]
    assert places.whole(places.history(), "s") == places.bytes["s"]


def test_what_is_kept_already_frees_the_disk(places: Places) -> None:
    """Though all of it is needed."""
    [path] = away(places, 1)
    retained = places.retained()
    assert not retained.frees(path)
    assert [*retained.keep([path])] == [path]
    assert retained.frees(path)


def test_a_look_reads_so_much_at_most(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the end all were looked at."""
    retained = kept_one_by_one(places, 6)
    size = places.kept()[0].stat().st_size
    monkeypatch.setattr("gateway.store.spool.retained._LOOK_BYTES", 1.5 * size)
    got: list[Path] = []
    retained._count = lambda path: (got.append(path), (1, 1))[1]  # type: ignore[func-returns-value, method-assign]
    for n in range(1, 4):
        retained.tidy()
        assert len(got) == 2 * n
    assert {*got} == {*places.kept()}
