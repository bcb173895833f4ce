"""What the digests of spool files cost a published event: BLAKE3 of its payload and time, and
of the file's bytes.

Files of Beats-like events are written as the spool writes them, in memory; then their
events and their bytes are hashed again, alone.  CPU of one thread; the interpreter is
released while a buffer is hashed.
"""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
from _machine import machine
from _report import Claim, Report, arguments, main, workplace
from blake3 import blake3

from gateway.event import Batch, Origin, Rows, Stored
from gateway.store.digests import EventsDigest
from gateway.store.spool import parquet
from gateway.store.spool.decoding import Decoder

_BATCH = 2048
_TIMES = 9


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--events", type=int, default=200_000, help="in the file")
    parser.add_argument("--bytes", type=int, default=530, help="of an event, about")
    options = parser.parse_args()
    with workplace(options) as home:
        report = Report("digests in spool files", machine(home))
    batches, rows = _batches(options.events, options.bytes)
    content = _write(batches, rows)
    names = ["payload", "received_at"]
    events = pq.read_table(io.BytesIO(content), columns=names)
    count, size = len(events), rows.payloads
    written = _cpu_us(lambda: _write(batches, rows), count)
    hashed = _cpu_us(lambda: _hash_events(events), count)
    linked = _cpu_us(lambda: blake3(content), count)
    report.add("events in the file", count)
    report.add("payload", sum(map(len, size)) / len(size), "B/event")
    report.add("file", len(content) / count, "B/event")
    report.add("events hashed", hashed, "µs/event")
    report.add("file hashed", linked, "µs/event")
    report.add("the file written, with both", written, "µs/event")
    share = (hashed + linked) / written
    report.claims.append(Claim("CPU of both digests", hashed + linked, "µs/event", 1.0))
    report.claims.append(Claim("of the file's CPU", 100 * share, "%", 40))
    return report.finish(as_json=options.json)


def _batches(events: int, size: int) -> tuple[list[Stored], Rows]:
    """Batches that all decode to the same rows."""
    chance = random.Random(7)
    payloads = [_event(chance, number, size) for number in range(_BATCH)]
    origin = Origin("plain", "beats", "s-1", "127.0.0.1:9")
    total = sum(map(len, payloads))
    batch = Batch(origin, 5_000_000, _BATCH, b"", total)
    return [Stored(batch, lsn) for lsn in range(1, events, _BATCH)], Rows(payloads)


def _event(chance: random.Random, number: int, size: int) -> bytes:
    event = {
        "@timestamp": "2026-11-22T09:00:00.000Z",
        "agent": {"name": "web-1", "id": "8f3d6a", "type": "filebeat"},
        "log": {"offset": number * 97, "file": {"path": "/var/log/nginx/access.log"}},
        "message": "",
    }
    room = max(0, size - len(json.dumps(event)))
    event["message"] = chance.randbytes(room // 2).hex()
    return json.dumps(event).encode()


def _write(batches: list[Stored], rows: Rows) -> bytes:
    sink = io.BytesIO()
    parquet.write(
        batches,
        sink,
        node="gw-1",
        decoder=Decoder({"plain": lambda _: rows}),
        compression="zstd",
        previous=lambda: "0" * 64,
    )
    return sink.getvalue()


def _hash_events(events: pa.Table) -> None:
    digest = EventsDigest(1)
    digest.add(events["payload"], events["received_at"])
    digest.hexdigest()


def _cpu_us(work: Callable[[], object], events: int) -> float:
    """The best of some times: what else the machine does only adds."""
    found = []
    for _ in range(_TIMES):
        begun = time.process_time()
        work()
        found.append(time.process_time() - begun)
    return min(found) / events * 1e6


if __name__ == "__main__":
    main(bench)
