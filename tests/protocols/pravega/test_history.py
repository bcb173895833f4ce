"""Bytes of a channel, read back from the journal, the spool and the archive."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from gateway.protocols.pravega import history as history_module
from gateway.protocols.pravega import journal_runs, lookups
from gateway.protocols.pravega.history import History
from gateway.protocols.pravega.runs import FileIndex, RowGroup
from gateway.protocols.pravega.segments import Segments
from gateway.protocols.pravega.wire import NEVER
from gateway.sdk.files import Gone
from gateway.store import finder
from gateway.store.finder import Finder
from gateway.store.journal import log, segment
from gateway.store.spool import columns
from incarnations import A

from .conftest import W
from .places import OTHER, Places, events, fill

pytestmark = pytest.mark.lowest


@pytest.mark.parametrize("published", [0, 1, 2])
def test_wherever_it_lies(places, published):
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
def test_segments_that_stay_though_they_are_published(places, *, lost):
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
def test_large_batches(places, *, published):
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


def test_files_that_move_meanwhile(places):
    """What was in the journal a moment ago is found in the spool, then the archive."""
    fill(places)
    history = places.history()
    assert places.whole(history, "s") == places.bytes["s"]
    path = places.publish()
    assert places.whole(history, "s") == places.bytes["s"]
    path.rename(places.root / "archive" / path.name)
    assert places.whole(history, "t") == places.bytes["t"]


def test_what_is_written_over_an_old_segment_is_seen(places):
    """The file has its length from before, and has more in it."""
    for _ in range(20):
        fill(places)
    history = places.published()
    sizes = set()
    for _ in range(3):
        fill(places)
        (path,) = places.journal.glob("*.journal")
        sizes.add(path.stat().st_size)
        for name in ("s", "t"):
            assert places.whole(history, name) == places.bytes[name]
    assert len(sizes) == 1


def test_a_file_that_moves_while_we_look(places, monkeypatch):
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


def test_what_is_gone(places):
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


def test_nothing_at_all(tmp_path):
    """Without any file everything is gone, as soon as somebody asks for it."""
    places = Places(tmp_path)
    for path in places.journal.glob("*.journal"):
        path.unlink()
    history = places.history()
    with pytest.raises(Gone):
        history.fetch("s", 0, 10, 7)
    assert history.first_lsn == 8


def test_the_first_files_of_all(places):
    """Who began before there was any file does not take what came later for gone."""
    for path in (places.journal).glob("*.journal"):
        path.unlink()
    history = places.history()
    assert history.first_lsn <= 1
    places.log = log.Log(places.journal, places.disk, 1, A)
    fill(places)
    assert places.whole(history, "s") == places.bytes["s"]


@pytest.fixture
def small_groups(monkeypatch) -> None:
    """Row groups of a few events."""
    monkeypatch.setattr(columns, "GROUP_ROWS", 4)


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("size", [3, 37, 10_000])
def test_many_pieces(places, size):
    """Row groups are joined as if there were none, whatever a reader asks for."""
    for _ in range(3):
        fill(places)
        places.publish()
    history = places.history()
    for name in ("s", "t"):
        assert places.whole(history, name, size=size) == places.bytes[name]


@pytest.mark.parametrize("size", [3, 40, 10_000])
@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_small_pieces_of_the_journal(places, monkeypatch, size, piece):
    """However an append is cut, and whatever is read at once, also while it grows."""
    monkeypatch.setattr(journal_runs, "_PIECE_BYTES", piece)
    monkeypatch.setattr(journal_runs, "_WINDOW_BYTES", 2 * piece)
    history = places.history()
    for _ in range(3):
        fill(places)
        for name in ("s", "t"):
            assert places.whole(history, name, size=size) == places.bytes[name]
        places.publish()


def test_a_journal_segment_with_other_bytes(places, tmp_path):
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
def test_who_reads_on(places, monkeypatch):
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


@pytest.fixture
def decoded(monkeypatch) -> list[tuple[str, int]]:
    """Row groups that were decoded, by file and number."""
    found: list[tuple[str, int]] = []
    decode = history_module._Published._decoded

    def noted(self: Any, file: Any, number: int) -> RowGroup:
        found.append((file.path.name, number))
        return decode(self, file, number)

    monkeypatch.setattr(history_module._Published, "_decoded", noted)
    return found


@pytest.mark.usefixtures("small_groups")
def test_what_comes_next_is_ready(places, decoded):
    """Who reads on finds the next row group decoded, in the next file, too; who looks up
    one place has only that one decoded."""
    for _ in range(2):
        fill(places)
        places.publish()
    history = places.history()
    size = 4
    history.fetch("s", 0, size, 1)
    assert places.threads.later == []
    for offset in range(size, len(places.bytes["s"]), size):
        history.fetch("s", offset, size, 1)
        for later in places.threads.later:
            later()
        ready, places.threads.later = len(decoded), []
        lsn = places.state.find("s").lsn_near(offset + size)
        if lsn is not None and offset + size < len(places.bytes["s"]):
            history.fetch("s", offset + size, size, lsn)
            assert len(decoded) == ready
    assert len(set(decoded)) == len(decoded) > 10


@pytest.mark.usefixtures("small_groups")
def test_what_is_made_ready_takes_nobodys_place(places, decoded, monkeypatch):
    """With room for one decoded row group: who still reads that one finds it, and who reads
    on finds the next."""
    monkeypatch.setattr(history_module, "_GROUP_BYTES", 1)
    monkeypatch.setattr(history_module, "_RUN_BYTES", 1)
    for n in range(8):
        places.append(events(b"%d" % n))
        places.append(events(b"%d" % n), "t")
    history = places.published()
    history.fetch("s", 0, 9, 1)
    history.fetch("s", 9, 9, 1)
    [later] = places.threads.later
    later()
    assert [number for _, number in decoded] == [0, 1]
    history.fetch("t", 0, 9, 1)
    history.fetch("t", 9, 9, 1)
    history.fetch("s", 18, 9, 1)
    assert [number for _, number in decoded] == [0, 1]


@pytest.mark.usefixtures("small_groups")
def test_what_nobody_comes_for(places, decoded, monkeypatch):
    """Who reads on and goes away keeps others from it for a while, and not for good."""
    monkeypatch.setattr(history_module, "_GROUP_BYTES", 1)
    monkeypatch.setattr(history_module, "_UNWANTED", 3)
    for n in range(40):
        places.append(events(b"%02d" % n))
    history = places.published()
    later = places.threads.later
    history.fetch("s", 0, 10, 1)
    history.fetch("s", 10, 10, 1)
    later.pop()()
    for at in range(8, 36):  # from the third row group on
        history.fetch("s", 10 * at, 10, 1)
        while later:
            later.pop()()
    assert len(set(decoded)) == 10
    assert len(decoded) < 12


def test_what_is_made_ready_looks_at_one_file(places, decoded):
    """However many have nothing of the channel."""
    places.append(events(b"a", b"b"))
    first = places.publish()
    for _ in range(3):
        places.append(events(b"x"), "t")
        places.publish()
    history = places.history()
    assert places.whole(history, "s", size=5) == places.bytes["s"]
    assert places.threads.later
    for later in places.threads.later:
        later()
    assert decoded == [(first.name, 0)]


@pytest.mark.usefixtures("small_groups")
def test_nothing_is_made_ready_where_nothing_follows(places):
    """Who has read up to what memory has, or to the end, has no file opened for more."""
    for n in range(8):
        places.append(events(b"%d" % n))
    history = places.published()
    history.fetch("s", 0, 9, 1, 27)
    history.fetch("s", 9, 9, 1, 27)
    assert len(places.threads.later) == 1
    places.threads.later.clear()
    history.fetch("s", 18, 9, 1, 27)
    assert places.threads.later == []


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("seed", range(5))
def test_readers_go_through_the_files_together(places, decoded, monkeypatch, seed):
    """However late each asks for its next piece: with room for few decoded row groups, each
    of them is decoded once for all."""
    names = [f"r{n}" for n in range(10)]
    for name in names:
        places.commit(places.state.create(name, 0))
        places.bytes[name], places.numbers[name] = b"", NEVER
    for n in range(30):
        for name in names:
            places.append(events(b"%d of it" % n), name)
        if n % 10 == 9:
            places.publish()
    chance = random.Random(seed)
    tasks: list[Callable[[], object]] = []
    pool = SimpleNamespace(callInThread=tasks.append)
    monkeypatch.setattr(lookups, "ThreadPool", lambda *_: pool)
    monkeypatch.setattr(history_module, "_GROUP_BYTES", 700)
    monkeypatch.setattr(history_module, "_RUN_BYTES", 700)
    reactor = SimpleNamespace(callFromThread=lambda call, *given: call(*given))
    history = History(
        Finder(places.directories, "n", retained=True),
        protocol="pravega",
        lookups=lookups.Lookups(reactor, 2),  # type: ignore[arg-type]
    )
    got = dict.fromkeys(names, b"")
    idle = list(names)

    def found(data: bytes, name: str) -> None:
        got[name] += data
        if len(got[name]) < len(places.bytes[name]):
            idle.append(name)

    while idle or tasks:
        if idle and (not tasks or chance.random() < 0.8):
            name = idle.pop(chance.randrange(len(idle)))
            lsn = places.state.find(name).lsn_near(len(got[name]))
            assert lsn is not None
            until = len(places.bytes[name])
            read = history.read(name, len(got[name]), 12, lsn, until)
            read.addCallback(found, name)
        else:
            tasks.pop(0)()
    assert got == {name: places.bytes[name] for name in names}
    assert len(decoded) <= 1.2 * len(set(decoded))


def test_a_little_of_a_piece(places):
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
def test_a_name_used_twice(places, *, published):
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


def test_a_name_used_again_behind_what_was_read(places):
    """Nor does one who has read the old bytes miss the new ones, which are fewer."""
    history = places.history()
    places.append(events(b"old" * 900, b"old, too"))
    assert places.whole(history, "s", size=1000) == places.bytes["s"]
    places.commit(places.state.delete("s", 0))
    places.commit(places.state.create("s", 0))
    places.bytes["s"], places.numbers["s"] = b"", NEVER
    places.append(events(b"new"))
    assert places.whole(history, "s") == places.bytes["s"]


def test_who_reads_on_in_a_large_event_looks_at_no_later_file(places, monkeypatch):
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


def test_a_tail_that_was_written_again(places):
    """What a failed sync left in a file counts for nothing where another begins."""
    fill(places)
    first = places.log.next_lsn
    state, numbers = places.state, dict(places.numbers)
    begin = dict(places.bytes)
    places.append(events(b"never acknowledged"))
    abandoned = places.log
    places.log = log.Log(places.journal, places.disk, first, A)
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


def test_flipped_bits(places):
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


def test_other_protocols_are_not_ours(places):
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


def test_in_a_thread(places):
    """`read` is `fetch`, somewhere else."""
    places.append(events(b"abc"))
    got: list[bytes] = []
    places.history().read("s", 8, 100, 1, 100).addCallback(got.append)
    assert got == [b"abc"]


@pytest.mark.usefixtures("small_groups")
def test_readers_in_parallel(places, monkeypatch):
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
def test_a_quiet_stream_among_busy_ones(places, monkeypatch):
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
