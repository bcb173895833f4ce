"""Spools of many nodes made of one, and the job with other sinks in other processes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from _report import Broken

from gateway.event import SCHEMA
from gateway.sink import kind_of
from gateway.spark.commit.formats import Format
from gateway.store.names import file_name

__all__ = ["costs_of", "spread"]


def spread(spool: Path, other: Path, files: int, nodes: int) -> None:
    """The events of *spool* again, in *files* files of *nodes* nodes, in turn."""
    other.mkdir(parents=True)
    rows = pa.concat_tables([pq.read_table(path) for path in sorted(spool.iterdir())])
    each = len(rows) // files
    last = dict.fromkeys(range(nodes), 0)
    for number in range(files):
        # What does not divide is in the last one.
        count = each if number < files - 1 else len(rows) - each * number
        part = rows.slice(each * number, count)
        of = number % nodes
        first, last[of] = last[of] + 1, last[of] + count
        columns = {
            "node": pa.array([f"gw-{of}"] * count).cast(SCHEMA.field("node").type),
            "lsn": pa.array(range(first, last[of] + 1), pa.int64()),
        }
        for name, values in columns.items():
            at = SCHEMA.get_field_index(name)
            part = part.set_column(at, SCHEMA.field(name), values)
        pq.write_table(
            part,
            other / file_name(f"gw-{of}", "a" * 10, first, last[of]),
            compression="zstd",
            write_page_checksum=True,
        )


def costs_of(
    sinks: Iterable[str], options: argparse.Namespace, notes: list[str]
) -> dict[str, float]:
    """CPU of an event with each sink, in µs.

    Of one that has no jar for this Spark a note says so.  Raises `Broken`.
    """
    found = {}
    for sink in sinks:
        kind = kind_of(sink)
        if isinstance(kind, Format) and not kind.fits(pyspark.__version__):
            notes.append(f"{sink} was not measured: no jar fits {pyspark.__version__}")
            continue
        print(f"sink {sink} …", file=sys.stderr, flush=True)
        found[sink] = _cost(sink, options)
    return found


def _cost(sink: str, options: argparse.Namespace) -> float:
    words = [
        "--case", "sink", "--sink", sink, "--json",
        "--events", options.events, "--rounds", options.rounds,
        "--warm-up", options.warm_up,
    ]  # fmt: skip
    if options.directory:
        words += ["--directory", options.directory]
    if options.jars:
        words += ["--jars", options.jars]
    script = Path(__file__).with_name("spark.py")
    command = [sys.executable, str(script), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Broken(f"the job with sink {sink}:\n{done.stdout}\n{done.stderr[-4000:]}")
    numbers: dict[str, float] = json.loads(done.stdout)["numbers"]
    return numbers["CPU of an event"]
