"""What a small batch costs on its way, step by step, in CPU of one thread.

    python bench/batches.py

request  a Pomelo request of 64 B: one event
window   a Beats window of 50 events in one compressed frame
large    a Beats window of 2048, of which only the file is made
each from 100 connections in turn, and in memory.  Steps:

submitted and acknowledged   the journal's queues and Deferreds, without thread and disk
record written, record read  the journal's format
decoded                      by the protocol
made columns, made a file    Arrow and Parquet, with zstd and digests
published                    all from the segment's bytes to the file's, as a publisher does
published, elapsed           the same on the clock; and while two threads work on it, as
                             they do in a publisher: it needs a second core

All is the best of some rounds: whatever else the machine does only adds.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from _machine import machine
from _report import Report, arguments, main, workplace
from _windows import build

from gateway.config import model
from gateway.event import Batch, Decode, Origin, Stored
from gateway.protocols.lumberjack import events as lumberjack
from gateway.protocols.lumberjack.session import Limits, Session
from gateway.protocols.pomelo import events as pomelo
from gateway.protocols.pomelo import wire
from gateway.store.journal import segment
from gateway.store.journal.journal import Journal
from gateway.store.journal.log import Log
from gateway.store.journal.queues import Durable
from gateway.store.spool import parquet
from gateway.store.spool.columns import Columns
from gateway.store.spool.decoding import Decoder
from gateway_testkit.disk import RecordingDisk

_CONNECTIONS = 100
_TURN = 100
"""Batches that come in one turn of the reactor."""
_LIMIT = 16 << 20
_DECODERS: dict[str, Decode] = {
    "pomelo": pomelo.decode,
    "lumberjack": lumberjack.decode,
}


def requests(count: int) -> list[Batch]:
    origins = _origins("pomelo")
    found = []
    for at in range(count):
        text = b'{"n":%d,"x":%d,"y":%d,"text":"' % (at, at * 7 % 1000, at * 13 % 777)
        body = text.ljust(62, b"e") + b'"}'
        packed = pomelo.plain_head(_LIMIT) + wire.request(
            at % 100 + 1, "area.move", body
        )
        found.append(Batch(origins[at % _CONNECTIONS], 0, 1, packed, len(body)))
    return found


def windows(count: int, events: int) -> list[Batch]:
    origins = _origins("lumberjack")
    built = build(min(count, 512), events, 3)
    bodies = []
    for frame in built.frames:
        *_, ready = Session(Limits()).received(frame)
        bodies.append(ready.body)
    size = events * built.payload_bytes
    return [
        Batch(origins[at % _CONNECTIONS], 0, events, bodies[at % len(bodies)], size)
        for at in range(count)
    ]


def _origins(protocol: str) -> list[Origin]:
    return [
        Origin(protocol, "bench", f"s-{at}", f"127.0.0.1:{40_000 + at}")
        for at in range(_CONNECTIONS)
    ]


class _Turns:
    """A reactor and a thread that run when they are told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def callFromThread(self, call: Callable[..., object], *args: object) -> None:
        self.calls.append((call, args))

    def callLater(self, _: float, call: Callable[..., object], *args: object) -> None:
        self.calls.append((call, args))

    def run(self) -> None:
        while self.calls:
            call, args = self.calls.pop(0)
            call(*args)


def acknowledged(batches: list[Batch]) -> int:
    """Submit all, a turn at a time, and tell all of them that they are durable."""
    told = 0

    def done(_: Stored) -> None:
        nonlocal told
        told += 1

    directory, disk = Path("/journal"), RecordingDisk()
    disk.make_directory(directory)
    log, turns = Log(directory, disk, 1, "a" * 10), _Turns()
    settings = model.Journal(), model.Spool()
    journal = Journal(log, *settings, turns, lambda _: None, print)
    queues, lsn = journal._queues, 1
    for at in range(0, len(batches), _TURN):
        for batch in batches[at : at + _TURN]:
            journal.submit(batch).addCallback(done)
        turns.run()
        group = queues.take(one=False)
        for waiting in group:
            waiting.lsn = lsn
            lsn += waiting.batch.count
        queues.complete(Durable(group, None))
        turns.run()
    return told


def _records(batches: list[Batch]) -> bytes:
    """A segment."""
    header = segment.Header(1, 0, 12_345)
    encoder, lsn = segment.Encoder(header), 1
    chunks = [header.encode()]
    size = len(chunks[0])
    for batch in batches:
        more = encoder.batch(batch, lsn, size)
        chunks.extend(more)
        lsn += batch.count
        size += sum(map(len, more))
    return b"".join(chunks)


def _published(data: bytes, last: int, executor: Executor | None = None) -> None:
    scan = segment.Scan(data, before=last + 1, durable=last)
    parquet.write(
        scan,
        io.BytesIO(),
        node="gw-1",
        decoder=Decoder(_DECODERS),
        compression="zstd",
        previous=lambda: "0" * 64,
        executor=executor,
    )


def measure_file(report: Report, batches: list[Batch]) -> None:
    """What large batches cost, by event: nearly all of it is making the file."""
    last = sum(batch.count for batch in batches)
    data = _records(batches)
    with ThreadPoolExecutor(1) as beside:
        for name, executor in (("one thread", None), ("two threads", beside)):
            found = []
            for _ in range(5):
                begun, cpu = time.monotonic(), time.process_time()
                _published(data, last, executor)
                found.append((time.monotonic() - begun, time.process_time() - cpu))
            elapsed, cpu = (min(each) / last * 1e6 for each in zip(*found, strict=True))
            report.add(f"large: published, {name}, elapsed", elapsed, "µs/event")
            report.add(f"large: {name}, CPU", cpu, "µs/event")


def measure(report: Report, name: str, batches: list[Batch]) -> None:
    """All steps of one kind of batch."""
    data = _add(report, name, "record written", lambda: _records(batches), len(batches))
    last = sum(batch.count for batch in batches)

    def read() -> list[Stored]:
        scan = segment.Scan(data, before=last + 1, durable=last)
        return list(scan)

    _add(report, name, "record read", read, len(batches))
    stored = read()
    decoder = Decoder(_DECODERS)
    _add(
        report,
        name,
        "decoded",
        lambda: [*decoder.decoded(stored)],
        len(stored),
    )
    runs = [*decoder.decoded(stored)]

    def made_columns() -> None:
        columns = Columns("gw-1")
        for run, rows in runs:
            columns.add_all(run, rows)
            if columns.enough:
                columns.batch()
                columns = Columns("gw-1")
        if columns.rows:
            columns.batch()

    _add(report, name, "made columns", made_columns, len(stored))

    _add(report, name, "published", lambda: _published(data, last), len(stored))
    submitted = _add(
        report,
        name,
        "submitted and acknowledged",
        lambda: acknowledged(batches),
        len(batches),
    )
    assert submitted == len(batches)


def _add(
    report: Report, name: str, step: str, work: Callable[[], Any], count: int
) -> Any:
    found, result = [], None
    for _ in range(7):
        begun = time.process_time()
        result = work()
        found.append(time.process_time() - begun)
    report.add(f"{name}: {step}", min(found) / count * 1e6, "µs")
    return result


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--batches", type=int, default=20_000, help="of each kind")
    options = parser.parse_args()
    with workplace(options) as home:
        report = Report("small batches", machine(home))
    measure(report, "request", requests(options.batches))
    measure(report, "window", windows(options.batches // 10, 50))
    measure_file(report, windows(options.batches // 200, 2048))
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
