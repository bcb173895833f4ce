"""How many files a second the job takes out of a bucket that answers as S3 does.

    python bench/inbox.py
    python bench/inbox.py --latency 25,45,25,80 --gateways 3,20,200 --files 4000
    python bench/inbox.py --minutes 10 --gateways 200        gateways that go on meanwhile
    python bench/inbox.py --minutes 15 --gateways 200 --backlog 100000

The bucket is in memory and waits before each answer; the copies are real files, synced.
Each gateway has put as many files there.  They are fetched, then their events are in the
tables, then they are moved to the archive: `spool.after: archive`.  Beside that, fewer files
by requests that are made one after the other.

cluster    one batch of real files of 10,000 events, of which a cluster's tasks read the
           bucket's: what the driver fetches.

dollars    of a month in which each gateway makes a file a second and the job looks once a
           second, by the requests of sixty such looks, which wait for no answer, at S3's
           prices in us-east-1: 5 $ a million for COPY and LIST, 0.4 for GET, none for DELETE.
           Storage and the gateways' PUTs are not in it.
backlog    until 100,000 files are gone while each gateway makes one a second: computed from
           the files a second.
--minutes  in place of all that: each gateway makes a file a second, for so long.  Spark is
           played: it has what was fetched in its tables once a second, --spark files a second
           at most.  Fresh is how long after its PUT a file is in the tables; of the first,
           and of the last, quarter.  Before they begin, --backlog files are there.
"""

from __future__ import annotations

import io
import os
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from _machine import machine
from _report import Claim, Report, arguments, main, workplace

from gateway.event import SCHEMA
from gateway.spark.bucket.inbox import Inbox
from gateway.spark.bucket.requests import REQUESTS, AtOnce, by_threads
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger, Ranges
from gateway.store.names import file_name, parse_file_name
from gateway.store.spool.parquet import open_writer
from gateway_testkit.bucket import MemoryBucket

_FILE_BYTES = 50_000
_ALONE_FILES = 100
_LOOKS = 60
_BACKLOG_FILES = 100_000
_MOST_BACKLOG_SECONDS = 900
_MONTH_SECONDS = 30 * 86_400
_DOLLARS = {"read": 0.4e-6, "copy": 5e-6, "list": 5e-6, "remove_all": 0.0}
_KINDS = ("read", "copy", "remove_all", "list")
_FEW = 100
_BATCH_FILES, _BATCH_EVENTS, _EVENT_BYTES = 60, 10_000, 176
_MOST_BYTES = 1 << 30
"""Of a job's inbox, as it is by default."""


class SlowBucket(MemoryBucket):
    """Answers after some milliseconds, by the kind of request; keeps no archive."""

    def __init__(self, seconds: dict[str, float]) -> None:
        super().__init__()
        self.fault = lambda request, name: time.sleep(seconds.get(request, 0.0))
        self.read_bytes = 0

    def read(self, name: str, first: int = 0) -> bytes:
        """See `Bucket`."""
        data = super().read(name, first)
        self.read_bytes += len(data)
        return data

    def copy(self, name: str, other: str) -> None:
        """In one request, which is no GET."""
        self._ask("copy", name)

    def put(self, node: str, lsn: int, data: bytes = b"x" * _FILE_BYTES) -> str:
        """As a gateway does, which takes no time."""
        name = file_name(node, "a" * 10, lsn, lsn)
        self.objects[name] = data
        return name


class Job:
    """Of a bucket: what it has fetched is in its tables when it is told so."""

    def __init__(
        self,
        bucket: SlowBucket,
        folder: Path,
        at_once: AtOnce,
        *,
        most_bytes: int = 1 << 40,
        whole: bool = True,
    ) -> None:
        self._folder, self._disk = folder, Lake()
        self._fetched: list[str] = []
        self._ledger = Ledger()
        self.inbox = Inbox(
            *(bucket, folder, self._disk, lambda: self._ledger),
            archived=True,
            most_bytes=most_bytes,
            at_once=at_once,
            whole=whole,
        )
        self.inbox.copies.recover()

    def fetched(self) -> list[str]:
        """Names of the files that are here, those that were seen first first."""
        here = {name for name in self._disk.names(self._folder) if name[0] != "."}
        new = sorted(here.difference(self._fetched))
        self._fetched = [name for name in self._fetched if name in here] + new
        return self._fetched

    def commit(self, names: Iterable[str]) -> None:
        """They are in the tables, and here no longer."""
        tables = Ranges()
        tables.update(self._ledger.committed)
        names = [*names]
        for name in names:
            file = parse_file_name(name)
            assert file is not None
            tables.add(file.life, file.first, file.last)
        self._ledger = Ledger(committed=tables)
        for name in names:
            (self._folder / name).unlink()


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--latency", default="25,45,25,80", help="ms of GET, COPY, DELETE and LIST"
    )
    parser.add_argument("--gateways", default="3,20,200", help="so many, one by one")
    parser.add_argument("--files", type=int, default=4000, help="of all gateways")
    parser.add_argument("--minutes", type=float, help="let them go on for so long")
    parser.add_argument("--spark", type=int, default=400, help="files a second, played")
    parser.add_argument("--backlog", type=int, default=0, help="files before --minutes")
    options = parser.parse_args()
    latency = [float(each) / 1000 for each in options.latency.split(",")]
    seconds = dict(zip(_KINDS, latency, strict=True))
    cases = [*map(int, options.gateways.split(","))]
    with workplace(options) as home:
        report = Report("files out of a bucket", machine(home))
        report.add("requests at once", REQUESTS)
        if options.minutes:
            for gateways in cases:
                folder = home / str(gateways)
                _go_on(
                    *(report, folder, seconds, gateways),
                    seconds_long=60 * options.minutes,
                    spark=options.spark,
                    backlog=options.backlog,
                )
            return report.finish(as_json=options.json)
        alone = _rate(home / "alone", seconds, 3, _ALONE_FILES, map)
        report.add("one request after the other", alone, "files/s")
        for gateways in cases:
            folder = home / str(gateways)
            rate = _rate(folder, seconds, gateways, options.files, by_threads)
            asked = _asked(folder / "asked", gateways)
            report.add(f"{gateways} gateways", rate, "files/s")
            report.add(f"{gateways} gateways: beside that", rate / alone, "x")
            for kind in _KINDS:
                each = 1000 * asked[kind] / (gateways * _LOOKS)
                report.add(f"{gateways} gateways: {kind} in 1,000 files", each)
            month = sum(_DOLLARS[kind] * asked[kind] for kind in _KINDS) / _LOOKS
            dollars = month * _MONTH_SECONDS
            report.add(f"{gateways} gateways: dollars a month", dollars, "$")
            left = rate - gateways
            gone = _BACKLOG_FILES / left if left > 0 else None
            backlog = f"{gateways} gateways: a backlog of 100,000 files"
            report.claims += [
                Claim(f"{gateways} gateways", rate, "files/s", 200, at_least=True),
                Claim(backlog, gone, "s", _MOST_BACKLOG_SECONDS),
            ]
        _of_a_cluster(report, home / "cluster")
        report.notes.append("fetched and moved to the archive, both in the time")
    return report.finish(as_json=options.json)


def _rate(
    folder: Path,
    seconds: dict[str, float],
    gateways: int,
    files: int,
    at_once: AtOnce,
) -> float:
    """Files a second."""
    bucket = SlowBucket(seconds)
    for number in range(files):
        bucket.put(f"gw-{number % gateways}", number // gateways + 1)
    job = Job(bucket, folder, at_once)
    begun = time.monotonic()
    job.inbox.look()
    spent = time.monotonic() - begun
    job.commit(job.fetched())
    begun = time.monotonic()
    job.inbox.look()
    return files / (spent + time.monotonic() - begun)


def _asked(folder: Path, gateways: int) -> Counter[str]:
    """The requests of `_LOOKS` looks, by kind."""
    bucket = SlowBucket({})
    job = Job(bucket, folder, map)
    for lsn in range(1, _LOOKS + 3):
        if lsn == 3:  # the first ones have nothing to move yet
            bucket.requests.clear()
        for number in range(gateways):
            bucket.put(f"gw-{number}", lsn)
        job.inbox.look()
        job.commit(job.fetched())
    return Counter(kind for kind, _ in bucket.requests)


def _of_a_cluster(report: Report, folder: Path) -> None:
    """What the driver has of a batch whose tasks are elsewhere."""
    bucket = SlowBucket({})
    size = len(file := _spool_file())
    for number in range(_BATCH_FILES):
        bucket.put(f"gw-{number % 3}", number // 3 + 1, file)
    job = Job(bucket, folder, by_threads, whole=False)
    if job.inbox.look() != _BATCH_FILES:
        raise RuntimeError("not all of the batch came")
    report.add("cluster: a batch", size * _BATCH_FILES / 1e6, "MB")
    report.add("cluster: its driver fetches", bucket.read_bytes / 1e3, "kB")
    part = 100 * bucket.read_bytes / (size * _BATCH_FILES)
    report.claims.append(Claim("cluster: its driver fetches", part, "%", 1))


def _spool_file() -> bytes:
    """As a gateway writes one, of events that can not be compressed."""
    count = _BATCH_EVENTS
    at, payload = (
        int(time.time() * 1e6),
        [os.urandom(_EVENT_BYTES) for _ in range(count)],
    )
    each = {"lsn": range(1, count + 1), "received_at": [at] * count, "payload": payload}
    columns = []
    for field in SCHEMA:
        of_words = pa.types.is_dictionary(field.type)
        kind = field.type.value_type if of_words else field.type
        same = None if field.nullable else "beats"
        values = pa.array(each.get(field.name, [same] * count), kind)
        columns.append(values.dictionary_encode() if of_words else values)
    out = io.BytesIO()
    with open_writer(out, "zstd") as writer:
        writer.write_table(pa.table(columns, schema=SCHEMA))
    return out.getvalue()


def _go_on(
    report: Report,
    folder: Path,
    seconds: dict[str, float],
    gateways: int,
    *,
    seconds_long: float,
    spark: int,
    backlog: int,
) -> None:
    """While gateways put files there: how long until these are in the tables."""
    bucket = SlowBucket(seconds)
    of_before = {
        bucket.put(f"gw-{number % gateways}", number // gateways + 1)
        for number in range(backlog)
    }
    job = Job(bucket, folder, by_threads, most_bytes=_MOST_BYTES)
    stop, put_at = threading.Event(), dict[str, float]()

    def put() -> None:
        begun, number = time.monotonic(), 0
        while not stop.wait(max(0.0, begun + number / gateways - time.monotonic())):
            after = backlog + number
            name = bucket.put(f"gw-{after % gateways}", after // gateways + 1)
            put_at[name] = time.monotonic()
            number += 1

    fresh: list[tuple[float, float]] = []
    gone: float | None = None
    begun, cpu = time.monotonic(), time.process_time()
    putting = threading.Thread(target=put)
    putting.start()
    job.inbox.start()
    try:
        while (now := time.monotonic()) < begun + seconds_long:
            names = job.fetched()[:spark]
            job.commit(names)
            done = time.monotonic()
            of_before -= {*names}
            if not of_before and gone is None:
                gone = done - begun
            new = [name for name in names if name in put_at]
            fresh += [(done - begun, done - put_at.pop(name)) for name in new]
            time.sleep(max(0.0, now + 1.0 - time.monotonic()))
    finally:
        stop.set()
        putting.join()
        job.inbox.stop()
    of = f"{gateways} gateways"
    report.add(f"{of}: put", len(fresh) + len(put_at))
    report.add(f"{of}: in no table at the end", len(put_at))
    cores = (time.process_time() - cpu) / (time.monotonic() - begun)
    report.add(f"{of}: CPU of all this", cores, "cores")
    if backlog:
        what = f"{of}: a backlog of {backlog:,} files"
        report.claims.append(Claim(what, gone, "s", _MOST_BACKLOG_SECONDS))
    quarter = seconds_long / 4
    for name, begin in (("first", 0.0), ("last", 3 * quarter)):
        some = [age for at, age in fresh if begin <= at < begin + quarter]
        if backlog and len(some) < _FEW:  # it was before them
            continue
        parts = statistics.quantiles(some, n=100)
        found = {"p50": parts[49], "p99": parts[98], "most": max(some)}
        report.spread(f"{of}: fresh, {name} quarter", found, "s")
    if not backlog:
        last = report.numbers[f"{of}: fresh, last quarter, p99"]
        first = report.numbers[f"{of}: fresh, first quarter, p99"]
        report.claims.append(Claim(f"{of}: p99, last to first", last / first, "x", 1.5))


if __name__ == "__main__":
    main(bench)
