"""Whatever a decoder does, its batches are published, and those of others too."""

import io
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, chain, cycle, takewhile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.event import SCHEMA, Batch, Origin, Rows, Stored
from gateway.store.digests import of_file
from gateway.store.journal.segment import UNKNOWN
from gateway.store.lsns import Lsns
from gateway.store.spool.columns import Columns
from gateway.store.spool.decoding import Decoder, whole
from gateway.store.spool.parquet import write

pytestmark = pytest.mark.lowest


def fail(body: bytes) -> Rows:
    raise RuntimeError("a bug")


def rows(payloads: Any = (b"x", b"y"), **differently: Any) -> Callable[[bytes], Rows]:
    return lambda _: Rows(list(payloads), **differently)


def _shifted() -> Callable[[bytes], Rows]:
    """Of three batches as many rows as they should have, but not each."""
    counts = cycle((1, 4, 1))
    return lambda _: Rows([b"x"] * next(counts))


#: Decoders of a batch with two events.
BROKEN: dict[str, Any] = {
    "raises": fail,
    "exits": lambda _: sys.exit(3),
    "too few rows": rows([b"x"]),
    "too many rows": rows([b"x", b"y", b"z"]),
    "rows of the next batch": _shifted(),
    "no rows at all": lambda _: None,
    "a block of more rows": rows([], block=b"abc", ends=range(1, 4)),
    "a block that goes on": rows([], block=b"abc", ends=[1, 2]),
    "a block that is too small": rows([], block=b"abc", ends=[1, 4]),
    "ends that are no whole numbers": rows([], block=b"abc", ends=[1.0, 3.0]),
    "ends that are texts": rows([], block=b"abc", ends=["1", "3"]),
    "a row that ends before it begins": rows([], block=b"abc", ends=[4, 3]),
    "a row that ends before its block": rows([], block=b"abc", ends=[-1, 3]),
    "too few numbers": rows(seqs=[1]),
    "too many numbers": rows(seqs=range(3)),
    "numbers that are none": rows(seqs=["a", "b"]),
    "a flaw of the next batch": rows(flaws={2: "not mine"}),
    "a channel of the batch before": rows(channels={-1: "not mine"}),
    "a kind that is none": rows(kinds={0: None}),
    "no kind": rows(kind=None),
    "a channel that is a number": rows(channel=7),
    "a channel that is no text": rows(channel="\ud800"),
    "attributes that are no texts": rows(attributes={"a": 1}),
    "payloads that are texts": rows(["x", "y"], channel="\ud800"),
    "no payload": rows([b"x", None]),
}


@pytest.mark.parametrize("why", BROKEN)
def test_a_broken_decoder_blocks_nothing(place, lines, why):
    """Its batches keep their bytes and their lsns, flawed; the batches around them are as
    they should be.  One line in the log tells how many, whose, and why."""
    place.decoders["broken"] = BROKEN[why]
    for protocol in ("plain", "broken", "plain", "broken", "broken"):
        place.log.commit([place.batch(b"one,two", protocol)])
    [done] = place.publisher().publish(place.log.seal())
    [name] = place.public()
    found = pq.read_table(place.spool / name).to_pylist()
    assert [row["lsn"] for row in found] == list(range(1, 11))
    bad = [row for row in found if row["protocol"] == "broken"]
    assert [row["payload"] for row in bad] == [b"one,two", b""] * 3
    assert {row["flaw"] for row in bad} == {"undecodable"}
    assert {row["content_type"] for row in bad} == {"application/octet-stream"}
    good = [row for row in found if row["protocol"] == "plain"]
    assert [row["payload"] for row in good] == [b"one", b"two"] * 2
    assert {row["flaw"] for row in good} == {None}
    assert done.flaws == {"undecodable": 6}
    [line] = lines
    assert line.startswith("error: 6 events of protocol 'broken' can not be decoded")
    assert "3 batches" in line
    assert "At lsn 3: " in line


def test_a_protocol_without_decoder_blocks_nothing_either(place, lines):
    """The start has looked for that; should it come to it, the bytes are kept."""
    place.publisher().publish(place.sealed(b"one,two", protocol="gone"))
    [name] = place.public()
    assert [row["flaw"] for row in pq.read_table(place.spool / name).to_pylist()] == [
        "undecodable"
    ] * 2
    assert "no decoder for protocol 'gone' is installed" in lines[0]


def test_each_file_is_told_of_once(place, lines):
    """A protocol, a publication: a line; one that is tried again says it once."""
    place.decoders |= {"one": fail, "two": rows([])}
    publisher = place.publisher()
    for _ in range(2):
        place.log.commit([place.batch(b"a", name) for name in ("one", "two", "plain")])
        publisher.publish(place.log.seal())
    assert [line.split("'")[1] for line in lines] == ["one", "two"] * 2


def test_too_little_memory_is_no_flaw(place):
    """What may succeed a moment later is tried again, not given up."""

    def scarce(body: bytes) -> Rows:
        raise MemoryError

    place.decoders["scarce"] = scarce
    sealed = place.sealed(b"a", protocol="scarce")
    with pytest.raises(MemoryError):
        place.publisher().publish(sealed)
    place.decoders["scarce"] = place.decoders["plain"]
    assert [one.flaws for one in place.publisher().publish(sealed)] == [{}]


def test_good_rows_are_what_the_decoder_gave():
    """Nothing is copied, whether each batch is looked at alone or not."""
    good = Rows([b"x", memoryview(b"y")], [1, 2], "c", channels={1: "d"})  # type: ignore[list-item]
    stored = Stored(Batch(Origin("p", "l", "s", "p"), 0, 2, b"", 2), 1)
    for careful in (False, True):
        assert Decoder({"p": lambda _: good}, careful=careful).rows(stored) is good


class _Together:
    """Batches of digits can be decoded together, up to one that has others."""

    most: int | None = None

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.alone: list[bytes] = []

    def __call__(self, body: bytes) -> Rows:
        self.alone.append(body)
        if body == b"?":
            raise ValueError("no")
        return Rows(body.split(b","), kind="data")

    def together(self, bodies: Sequence[bytes], counts: Sequence[int]) -> Rows:
        self.calls.append(len(bodies))
        if b"!" in bodies:
            raise ValueError("whose it is, nobody knows")
        events = [body.split(b",") for body in bodies]
        assert [*map(len, events)] == [*counts]
        digits = takewhile(lambda some: all(map(bytes.isdigit, some)), events)
        return Rows([*chain(*digits)][: self.most])


def _decoded(
    *bodies: bytes, most: int | None = None
) -> tuple[_Together, list[tuple[int, bytes]]]:
    """The lsn and the payload of each row; *most* of them are made together."""
    decode, origin, lsn = _Together(), Origin("p", "l", "s", "p"), 1
    decode.most = most
    batches = []
    for body in bodies:
        count = body.count(b",") + 1 if body else 0
        batches.append(Stored(Batch(origin, 0, count, body, len(body)), lsn))
        lsn += count
    columns = Columns("gw")
    for run, rows in Decoder({"p": decode}).decoded(batches):
        columns.add_all(run, rows)
    events = columns.batch()
    return decode, [
        *zip(*(events[name].to_pylist() for name in ("lsn", "payload")), strict=True)
    ]


def test_small_batches_are_decoded_together():
    """Those of few events; each has the row of its lsn, whatever stands between them."""
    digits = [b"%d" % at for at in range(100)]
    some = [b"%d,7" % at for at in range(100)]
    odd = [b"", b"1,b", b"7" * 5000, b"7" + 16 * b",7"]
    bodies = [*digits, b"x", *some, *odd, *digits]
    decode, found = _decoded(*bodies)
    payloads = [one for body in bodies if body for one in body.split(b",")]
    assert found == [*enumerate(payloads, 1)]
    assert decode.alone == [b"x", *odd[1:]]
    assert decode.calls == [201, 100, 100]


def test_few_batches_are_not_decoded_together():
    """Nor are those that are seldom alike, but for a look now and then."""
    decode, found = _decoded(*[b"1"] * 15, b"a,b", *[b"1", b"x"] * 200, *[b"2"] * 90)
    assert len(found) == 507
    assert len(decode.calls) <= 507 // 16
    assert decode.alone.count(b"2") <= 16


@pytest.mark.parametrize("odd", [b"?", b"!"])
def test_what_can_not_be_decoded_together_is_alone(odd):
    """Only the batch that is broken is flawed, whoever raised."""
    digits = [b"%d" % at for at in range(30)]
    _, found = _decoded(*digits, odd, *digits)
    assert found == [*enumerate([*digits, odd, *digits], 1)]


def test_rows_that_end_inside_a_batch_are_not_taken():
    """Whose the next ones are would be a guess."""
    decode, found = _decoded(*[b"1,2"] * 20, most=31)
    assert found == [*enumerate([b"1", b"2"] * 20, 1)]
    assert len(decode.alone) == 20


def test_what_neither_segment_nor_memory_has_is_missing():
    """Before a batch, between two and behind them, but for what a copy has; in any length."""
    origin = Origin("plain", "l", "s", "p")
    there = [Stored(Batch(origin, 1, 1, b"a", 1), lsn) for lsn in (1_000, 1_001, 2_000)]
    copies = {
        500: Batch(origin, 1, 5, b"a,b,c,d,e", 5),
        1_999: Batch(origin, 1, 2, b"", 0),
    }
    missing = Lsns()
    found = [*whole(there, 10, 1 << 40, missing, copies)]
    assert [one.lsn for one in found] == [500, 1_000, 1_001, 2_000]
    assert [*missing] == [(10, 499), (505, 999), (1_002, 1_999), (2_001, 1 << 40)]


def test_a_copy_is_taken_once():
    """A batch without events, of a connection that can not be read any more, stands before
    the one that has its lsn.
    """
    known, lost = Origin("plain", "l", "s", "p"), UNKNOWN
    there = Stored(Batch(known, 1, 1, b"a", 1), 7)
    batches = [Stored(Batch(lost, 1, 0, b"", 0), 7), there]
    copies, missing = {7: there.batch}, Lsns()
    found = whole(batches, 7, 7, missing, copies)
    assert [each for each in found if each.batch.count] == [there]
    assert not missing


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


def test_groups_that_are_encoded_beside_are_the_same_file():
    """Byte for byte, with the same digest; the link is asked for when all is written."""
    sinks, digests = [], set()
    with ThreadPoolExecutor(1) as beside:
        for executor in (None, beside):
            sink = io.BytesIO()
            sinks.append(sink)
            written = write(
                _batches(25, 4096),
                sink,
                node="gw",
                decoder=Decoder({"rsio": _decode}),
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


def test_rows_are_digested_in_their_order_whatever_they_come_in():
    """Blocks of many events, few that are objects or a block, and more than are gathered at
    once, in turns and over several groups: as the file itself has them."""
    counts = [64, 1, 5000, 3, 70, 2, 40_000, 1, 65, 63, 2] * 2
    batches, lsn = [], 1
    for number, count in enumerate(counts):
        body = b"%d %d" % (number, count)
        batches.append(Stored(Batch(ORIGIN, lsn, count, body, 8 * count), lsn))
        lsn += count

    def decode(body: bytes) -> Rows:
        number, count = map(int, body.split())
        payloads = [b"%d of %d" % (row, number) for row in range(count)]
        if number % 3:
            return Rows(payloads)
        ends = list(accumulate(map(len, payloads)))
        return Rows([], block=b"".join(payloads), ends=ends)

    sink = io.BytesIO()
    decoder = Decoder({"rsio": decode})
    written = write(batches, sink, node="gw", decoder=decoder, compression="zstd")
    assert written.events == sum(counts)
    assert written.digest == of_file(pa.BufferReader(sink.getvalue()))


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


_SCRIPT = """
import sys
from gateway.sdk.arrow import leave_pandas_out
leave_pandas_out()
import pyarrow as pa
made = pa.array(["a"]), pa.table({"a": [1]})
assert "pandas" not in sys.modules
assert made[1].to_pandas()["a"].sum() == 1
"""


def test_arrays_are_made_without_pandas_and_frames_with_it():
    subprocess.run([sys.executable, "-c", _SCRIPT], check=True)
