"""Makes the archive of the classes that Spark's start needs (`classes`), by a small job.

    python -m gateway.spark.jvm.recording

It costs some 40 s of CPU.  `gateway run` starts it once, when its first batch is in the
tables, with the lowest priority.  Archives that were not used for a month go.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.config import load
from gateway.event import SCHEMA
from gateway.plugins import installed
from gateway.spark import job
from gateway.spark.jvm import cache, java
from gateway.spark.jvm.classes import NAME, Archive
from gateway.spark.run.failure import Failed
from gateway.store.names import file_name

_FREE_BYTES = 2 << 30
"""Bytes that must be free where it is to be; it has some 190 MB."""
_EVENTS = 100
_SECONDS = 600.0


def make(archive: Archive) -> str:
    """Make it, or put an empty file in its place; returns what can be said of it.

    Raises OSError.
    """
    if shutil.disk_usage(archive.path.parent).free < _FREE_BYTES:
        return f"no room for an archive of Spark's classes in {archive.path.parent}"
    why = ""
    with cache.making(archive.path.parent) as folder:
        new = folder / "classes"
        try:
            _make_base(archive, folder / "base")
            _record(folder, new, archive.base if archive.base.exists() else None)
        except (subprocess.SubprocessError, Failed) as failed:
            why = f": {failed}"
        if not new.exists():
            new.touch()
        cache.put(new, archive.path)
    cache.forget(archive.path.parent, NAME.format("*"))
    if archive.made:
        return f"{archive.path} has Spark's classes: from now on it starts quickly"
    return f"no archive of Spark's classes can be made with {archive.java}{why}"


def _make_base(archive: Archive, new: Path) -> None:
    """A Java that was trimmed has no archive of its own classes, below ours."""
    home = archive.java.program.parents[1]
    if (home / "lib" / "server" / "classes.jsa").exists():
        return
    subprocess.run(
        [archive.java.program, "-Xshare:dump", f"-XX:SharedArchiveFile={new}"],
        check=True,
        capture_output=True,
        timeout=_SECONDS,
    )
    cache.put(new, archive.base)


def _record(folder: Path, new: Path, base: Path | None) -> None:
    """Run a job over a small spool in *folder*, and have its Java write down the classes
    that it had.  Raises `Failed`, subprocess.TimeoutExpired.
    """
    from pyspark import SparkContext

    below = f'"-XX:SharedArchiveFile={base}"' if base else ""
    given = f'{below} "-XX:ArchiveClassesAtExit={new}"'
    os.environ["SPARK_SUBMIT_OPTS"] = given
    protocol = next(iter(installed().protocols))
    _write_spool(folder / "data" / "spool", protocol)
    settings = {
        "node": "gw",
        "data_dir": str(folder / "data"),
        "listeners": [{"name": "a", "protocol": protocol, "listen": "tcp:127.0.0.1:0"}],
        "spark": {"admin": {"listen": None}},
    }
    file = folder / "gateway.yaml"
    file.write_text(json.dumps(settings))  # JSON is YAML
    job.run(load(file), available_now=True)
    # It writes them when it ends, which nobody else waits for.
    java_gateway: Any = SparkContext._gateway  # noqa: SLF001
    java_gateway.shutdown()
    java_gateway.proc.stdin.close()
    try:
        java_gateway.proc.wait(_SECONDS)
    finally:
        java_gateway.proc.kill()


def _write_spool(folder: Path, protocol: str) -> None:
    same = {
        "node": "gw",
        "protocol": protocol,
        "listener": "a",
        "session": "s-1",
        "peer": "192.0.2.1:4711",
        "kind": "data",
        "content_type": "application/json",
        "received_at": datetime.now(UTC),
        "payload": b'{"@timestamp": "2026-01-01T00:00:00Z", "message": "a"}',
    }
    folder.mkdir(parents=True)
    for first in (1, 1 + _EVENTS):
        rows = [{**same, "lsn": first + row, "seq": row} for row in range(_EVENTS)]
        name = file_name("gw", "a" * 10, first, first + _EVENTS - 1)
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / name)


def main() -> int:
    """Make the archive, if there is none; what there is to say goes to standard output."""

    def stopping(number: int, frame: object) -> None:
        raise job.Stopped

    signal.signal(signal.SIGTERM, stopping)
    try:
        archive = Archive.of(os.environ)
        if archive is not None and archive.wanted(os.environ):
            said = make(archive)
        else:
            said = (
                "nothing to do: Spark's classes are recorded, or nowhere can be written"
            )
    except (job.Stopped, KeyboardInterrupt):
        return 0
    except (java.NoJava, ModuleNotFoundError, OSError) as why:
        said = f"no archive of Spark's classes: {why}"
    sys.stdout.write(f"{said}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
