"""How long the gateway takes to be ready again after kill -9 with a full journal.

Loads it while publishing hangs, so that the journal keeps all it takes; kills it
once the journal holds --bytes; drops the page cache of what it wrote; starts it
again and waits for `/readyz`; and once more, with the journal in the page cache.
Afterwards it checks that nothing acknowledged is missing and times how fast the backlog
becomes Parquet.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from _daemon import Gateway, environment, load
from _machine import machine
from _report import Broken, Claim, Report, arguments, main, workplace

_GIB = 2**30


def fill(home: Path, options: argparse.Namespace) -> tuple[int, float]:
    """Leave a journal of that size behind; returns events acknowledged, seconds."""
    flag = home / "hang"
    gateway = Gateway(home / "gateway", stall=flag, stall_calls="rename,replace,link")
    words = {"level": options.level, "seconds": options.patience, "windows": 128}
    with gateway, load(gateway.address(), warm_up=0, **words) as running:
        flag.touch()
        begin = time.monotonic()
        while _size(gateway.data / "journal") < options.bytes:
            running.until("progress")
            if time.monotonic() - begin > options.patience:
                break
        gateway.kill()
        acked = running.until("lost")["acked_events"]
    size = _size(gateway.data / "journal")
    if size < options.bytes:
        raise Broken(f"the journal stopped at {size} bytes: {gateway.config.parent}")
    return acked, time.monotonic() - begin


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def forget(directory: Path) -> None:
    """Take the files out of the page cache, so that the restart reads the disk."""
    for path in directory.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def floors(directory: Path) -> dict[str, float]:
    """Seconds to start a Python with the gateway's imports, and to read the journal."""
    begin = time.monotonic()
    modules = "import twisted.internet.reactor, pyarrow.parquet, pydantic, OpenSSL"
    subprocess.run([sys.executable, "-c", modules], check=True, env=environment())
    imports = time.monotonic() - begin
    begin = time.monotonic()
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass
    return {"imports": imports, "read": time.monotonic() - begin}


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--bytes", type=int, default=_GIB, help="of journal")
    parser.add_argument("--level", type=int, default=3, help="compression of the load")
    parser.add_argument("--patience", type=float, default=300, help="seconds to fill")
    options = parser.parse_args()
    with workplace(options) as home:
        report = Report("restart after kill -9", machine(home))
        acked, filling = fill(home, options)
        gateway = Gateway(home / "gateway")
        journal = gateway.data / "journal"
        size = _size(journal)
        forget(journal)
        floor = floors(journal)
        forget(journal)
        try:
            ready = gateway.start(timeout=300)
            peak = gateway.usage().rss
            durable, _ = gateway.lsns()
            gateway.kill()
            again = gateway.start(timeout=300)
            _, published = gateway.lsns()
            backlog = gateway.wait_published(timeout=600)
        finally:
            gateway.stop()
    report.add("journal", size / 2**20, "MiB")
    report.add("filled in", filling, "s")
    report.add("events acknowledged before the kill", acked)
    report.add("events found after it", durable)
    report.add("ready after", ready, "s")
    report.add("ready after another kill, nothing read from the disk", again, "s")
    report.add("floor: imports", floor["imports"], "s")
    report.add("floor: reading the journal from the disk", floor["read"], "s")
    report.add("ready ÷ both floors", ready / sum(floor.values()), "x")
    report.add("memory when ready", peak / 2**20, "MiB")
    report.add("backlog in Parquet after another", backlog, "s")
    if backlog:
        report.add("backlog", (durable - published) / backlog, "events/s")
    report.claims.append(Claim("ready again after kill -9", ready, "s", 2))
    missing = max(0, acked - durable)
    report.claims.append(Claim("acknowledged events missing", missing, "", 0))
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
