"""Columns: batches whose rows differ among themselves."""

import io
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from threading import Event, Thread, current_thread, main_thread
from typing import Any

import pyarrow.parquet as pq
import pytest

from gateway.event import SCHEMA, Batch, Origin, Rows, Stored
from gateway.store.digests import EventsDigest
from gateway.store.spool.columns import Columns
from gateway.store.spool.decoding import Decoder
from gateway.store.spool.parquet import write

pytestmark = pytest.mark.lowest

ORIGIN = Origin("rsio", "rs", "s-1", "127.0.0.1:9")


def test_rows_may_differ_from_their_batch():
    """A row that names its own channel or kind gets it, and no other row does."""
    columns = Columns("gw")
    origin = Origin("pomelo", "game", "s-1", "127.0.0.1:9")
    uniform = Rows([b"1", b"2"], channel="a", kind="notify")
    mixed = Rows(
        [b"3", b"4", b"5"], channel="b", channels={1: "a", 2: "c"}, kinds={2: "request"}
    )
    for lsn, rows in ((1, uniform), (3, mixed)):
        count = len(rows.payloads)
        columns.add(Stored(Batch(origin, 0, count, b"", count), lsn), rows)
    batch = columns.batch()
    assert batch["channel"].to_pylist() == ["a", "a", "b", "a", "c"]
    assert batch["kind"].to_pylist() == ["notify", "notify", "data", "data", "request"]


def test_payloads_in_one_piece_are_rows_like_others():
    """Few or many, beside payloads that are not, in the order of their batches."""
    columns = Columns("gw")
    blocks = Rows([], range(5, 8), block=b"aabbcc", ends=range(2, 7, 2))
    each = [b"%d" % at for at in range(200)]
    many = Rows([], block=b"".join(each), ends=[*accumulate(map(len, each))])
    for lsn, rows in (
        (1, Rows([b"1", b""], [8, 9])),
        (3, blocks),
        (6, Rows([b"2"])),
        (7, Rows([], block=b"d", ends=[1])),
        (8, many),
        (208, Rows([b"3"])),
    ):
        batch = Batch(ORIGIN, 0, rows.count, b"", 0)
        columns.add(Stored(batch, lsn), rows)
    batch = columns.batch()
    batch.validate(full=True)
    assert batch["payload"].to_pylist() == [
        b"1", b"", b"aa", b"bb", b"cc", b"2", b"d", *many.each(), b"3"
    ]  # fmt: skip
    assert batch["seq"].to_pylist() == [8, 9, 5, 6, 7] + [None] * 203
    assert batch["lsn"].to_pylist() == list(range(1, 209))


def test_small_payloads_in_one_piece_make_large_row_groups():
    """Four times as many rows; what is in one piece costs no object for each."""
    count, batches = 1 << 14, 32
    first = iter(range(1, count * batches, count))
    rows = Rows([], block=bytes(count), ends=range(1, count + 1))
    sink = io.BytesIO()
    written = write(
        (
            Stored(Batch(ORIGIN, 0, count, b"", count), next(first))
            for _ in range(batches)
        ),
        sink,
        node="gw",
        decoder=Decoder({"rsio": lambda _: rows}),
        compression="zstd",
    )
    assert written.events == count * batches
    groups = pq.ParquetFile(sink).metadata
    assert [groups.row_group(at).num_rows for at in range(groups.num_row_groups)] == [
        1 << 17
    ] * 4


def _batches(count: int, events: int) -> Iterator[Stored]:
    for at in range(count):
        body = b"%06d" % at
        yield Stored(Batch(ORIGIN, at, events, body, 8 * events), 1 + at * events)


def _decode(body: bytes) -> Rows:
    return Rows([body + b"%04d" % at for at in range(4096)])


_ATTRIBUTES: list[dict[str, str]] = [
    {"window": "1", "version": "2"},
    {},
    {"window": "2"},
    {"window": "1", "version": "2"},
]


@pytest.mark.parametrize(
    "attributes",
    [
        _ATTRIBUTES,
        [{}, {}],
        _ATTRIBUTES[2:3],
        [{"a": "1", "b": "2"}, {"b": "1", "c": "2"}],
    ],
)
def test_a_file_reads_in_the_schema_of_events(attributes):
    """Whatever attributes its batches have, and however its columns were encoded."""
    columns, batches = Columns("gw"), []
    decoded = iter(Rows([b"1", b"2"], attributes=each) for each in attributes)
    for at, each in enumerate(attributes):
        batches.append(Stored(Batch(ORIGIN, at, 2, b"", 2), 1 + 2 * at))
        columns.add(batches[-1], Rows([b"1", b"2"], attributes=each))
    sink = io.BytesIO()
    decoder = Decoder({"rsio": lambda _: next(decoded)})
    write(batches, sink, node="gw", decoder=decoder, compression="zstd")
    found = pq.read_table(sink)
    assert found.schema == SCHEMA
    assert found.to_pylist() == columns.batch().to_pylist()
    assert found["attributes"].to_pylist() == [
        list(each.items()) or None for each in attributes for _ in range(2)
    ]


@pytest.mark.parametrize("ahead", [True, False])
def test_groups_that_are_encoded_beside_are_the_same_file(ahead, monkeypatch):
    """Byte for byte, with the same digest; the link is asked for when all is written.

    Whoever decodes digests what is not even written yet when the next group is there, and
    nothing else: neither of the two ever only waits.
    """
    sinks, digests = [], set()
    digesters: list[Thread] = []
    digested = Event()
    add, write_table = EventsDigest.add, pq.ParquetWriter.write_table

    def digest(self: EventsDigest, payloads: Any, received_at: Any) -> None:
        add(self, payloads, received_at)
        digesters.append(current_thread())
        digested.set()

    def write_late(self: pq.ParquetWriter, *args: Any, **more: Any) -> None:
        write_table(self, *args, **more)
        if ahead and current_thread() is not main_thread():
            assert digested.wait(60)
            digested.clear()

    def decode(body: bytes) -> Rows:
        if not ahead:
            beside.submit(lambda: None).result()
        return _decode(body)

    monkeypatch.setattr(EventsDigest, "add", digest)
    monkeypatch.setattr(pq.ParquetWriter, "write_table", write_late)
    with ThreadPoolExecutor(1) as beside:
        for executor in (None, beside):
            digesters.clear()
            digested.clear()
            sink = io.BytesIO()
            sinks.append(sink)
            written = write(
                _batches(25, 4096),
                sink,
                node="gw",
                decoder=Decoder({"rsio": decode}),
                compression="zstd",
                previous=lambda: str(sinks[-1].tell()),
                executor=executor,
            )
            assert written.events == 25 * 4096
            digests.add(written.digest)
    assert sinks[0].getvalue() == sinks[1].getvalue()
    assert len(digests) == 1
    found = pq.ParquetFile(sinks[1])
    assert found.read()["lsn"].to_pylist() == list(range(1, 25 * 4096 + 1))
    last = found.metadata.row_group(found.num_row_groups - 1)
    begun = last.column(0).dictionary_page_offset
    assert found.num_row_groups == 4
    assert int(found.metadata.metadata[b"gateway.previous"]) > begun
    here = [each is main_thread() for each in digesters]
    assert here[:-1] == [ahead] * 3


class _Late(ThreadPoolExecutor):
    """A digest is begun, and then nothing comes of it for a while."""

    def submit(self, job: Any, /, *given: Any, **more: Any) -> Any:
        def late() -> Any:
            begun.set()
            time.sleep(0.05)
            return job(*given, **more)

        begun = Event()
        if job.__name__ != "_digest":
            return super().submit(job, *given, **more)
        submitted = super().submit(late)
        assert begun.wait(60)
        return submitted


def test_rows_are_digested_in_their_order_however_late_that_begins():
    """Also where the next group is there before the digest of the last has looked at it."""
    digests = set()
    with _Late(1) as late:
        for executor in (None, late):
            written = write(
                _batches(25, 4096),
                io.BytesIO(),
                node="gw",
                decoder=Decoder({"rsio": _decode}),
                compression="zstd",
                executor=executor,
            )
            digests.add(written.digest)
    assert len(digests) == 1


class _Full(io.BytesIO):
    """A disk with room for a little."""

    def write(self, data: Any) -> int:
        if self.tell() > 1 << 16:
            raise OSError(28, "No space left on device")
        return super().write(data)


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_what_goes_wrong_beside_is_raised(groups):
    """Whichever group it is of; nothing is at work any more then."""
    with ThreadPoolExecutor(1) as beside:
        with pytest.raises(OSError, match="No space left"):
            write(
                _batches(8 * groups, 4096),
                _Full(),
                node="gw",
                decoder=Decoder({"rsio": _decode}),
                compression="none",
                executor=beside,
            )
        assert beside.submit(lambda: True).result()


class _Open(io.BytesIO):
    """Can be looked at when it is closed."""

    def close(self) -> None:
        """Nothing."""


def test_a_decoder_that_fails_waits_for_what_is_encoded():
    """Its error is the one that is raised, behind the end of the group before."""

    def decode(body: bytes) -> Rows:
        if body == b"000012":
            raise MemoryError
        return _decode(body)

    sink = _Open()
    with ThreadPoolExecutor(1) as beside:
        with pytest.raises(MemoryError):
            write(
                _batches(20, 4096),
                sink,
                node="gw",
                decoder=Decoder({"rsio": decode}),
                compression="zstd",
                executor=beside,
            )
        size = len(sink.getvalue())
        beside.submit(lambda: None).result()
    assert len(sink.getvalue()) == size
