"""How many files a second the job takes out of a bucket that answers as S3 does.

    python bench/inbox.py
    python bench/inbox.py --latency 25,45,25,80 --gateways 3,20,200 --files 4000

The bucket is in memory and waits before each answer; the copies are real files, synced.
Each gateway has put as many files there.  They are fetched, then their events are in the
tables, then they are moved to the archive: `spool.after: archive`.  Beside that, fewer files
by requests that are made one after the other.

dollars    of the requests of a month in which each gateway makes a file a second and the job
           looks once a second, at S3's prices in us-east-1: 5 $ a million for COPY and LIST,
           0.4 for GET, none for DELETE.  Storage and the gateways' PUTs are not in it.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from _machine import machine
from _report import Claim, Report, arguments, main, workplace

from gateway.spark.inbox import REQUESTS, AtOnce, Inbox, by_threads
from gateway.spark.lakedisk import Lake
from gateway.spark.ledger import Ledger, Life, Ranges, SpoolFile
from gateway.store.names import file_name
from gateway_testkit.bucket import MemoryBucket

_FILE_BYTES = 50_000
_ALONE_FILES = 100
_PAGE_OBJECTS = 1000
_MONTH_SECONDS = 30 * 86_400
_DOLLARS = {"read": 0.4e-6, "copy": 5e-6, "list": 5e-6, "remove": 0.0}


class SlowBucket(MemoryBucket):
    """Answers after some milliseconds, by the kind of request."""

    def __init__(self, seconds: dict[str, float]) -> None:
        super().__init__()
        self.fault = lambda request, name: time.sleep(seconds.get(request, 0.0))

    def copy(self, name: str, other: str) -> None:
        """In one request, which is no GET."""
        self._ask("copy", name)
        self.objects[other] = self.objects[name]


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument(
        "--latency", default="25,45,25,80", help="ms of GET, COPY, DELETE and LIST"
    )
    parser.add_argument("--gateways", default="3,20,200", help="so many, one by one")
    parser.add_argument("--files", type=int, default=4000, help="of all gateways")
    options = parser.parse_args()
    kinds = ("read", "copy", "remove", "list")
    latency = [float(each) / 1000 for each in options.latency.split(",")]
    seconds = dict(zip(kinds, latency, strict=True))
    with workplace(options) as home:
        report = Report("files out of a bucket", machine(home))
        report.add("requests at once", REQUESTS)
        alone, _ = _case(home / "alone", seconds, 3, _ALONE_FILES, map)
        report.add("one request after the other", alone, "files/s")
        for gateways in map(int, options.gateways.split(",")):
            rate, asked = _case(
                home / str(gateways), seconds, gateways, options.files, by_threads
            )
            report.add(f"{gateways} gateways", rate, "files/s")
            report.add(f"{gateways} gateways: beside that", rate / alone, "x")
            for kind in kinds:
                each = 1000 * asked[kind] / options.files
                report.add(f"{gateways} gateways: {kind} in 1,000 files", each)
            files = gateways * _MONTH_SECONDS
            dollars = sum(
                _DOLLARS[kind] * asked[kind] / options.files * files for kind in kinds
            )
            report.add(f"{gateways} gateways: dollars a month", dollars, "$")
            report.claims.append(
                Claim(f"{gateways} gateways", rate, "files/s", 200, at_least=True)
            )
        report.notes.append("fetched and moved to the archive, both in the time")
    return report.finish(as_json=options.json)


def _case(
    folder: Path,
    seconds: dict[str, float],
    gateways: int,
    files: int,
    at_once: AtOnce,
) -> tuple[float, Counter[str]]:
    """Files a second, and the requests by kind."""
    bucket, tables = SlowBucket(seconds), Ranges()
    for number in range(files):
        node, lsn = f"gw-{number % gateways}", number // gateways + 1
        bucket.objects[file_name(node, lsn, lsn)] = b"x" * _FILE_BYTES
    inbox = Inbox(
        *(bucket, folder, Lake(), lambda: Ledger(committed=tables)),
        archived=True,
        most_bytes=1 << 40,
        at_once=at_once,
    )
    inbox.recover()
    begun = time.monotonic()
    inbox.look()
    spent = time.monotonic() - begun
    for path in folder.iterdir():
        file = SpoolFile.parse(path.name)
        assert file is not None
        tables.add(Life(file.node), file.first, file.last)
        path.unlink()
    begun = time.monotonic()
    inbox.look()
    spent += time.monotonic() - begun
    asked = Counter(kind for kind, _ in bucket.requests)
    asked["list"] = 2 * (1 + files // _PAGE_OBJECTS)  # in memory it is one page
    return files / spent, asked


if __name__ == "__main__":
    main(bench)
