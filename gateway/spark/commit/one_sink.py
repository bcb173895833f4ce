"""The sink of a data_dir's tables: one for good, because its ledger is with its tables.

`lake/.gateway/sink.json` names it, and where the tables are, for those who look for them
without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.ledger import Broken, write_json
from gateway.store.readers.lake import INTERNAL, sink_of


def claim(lake: Path, disk: LakeDisk, wanted: Mapping[str, str]) -> None:
    """Make this lake that of a sink, or see that it is.  Raises `Broken`, OSError.

    *wanted* has `sink` and, where there is a choice, `table` and `job`.
    """
    path = lake / INTERNAL / "sink.json"
    there = sink_of(lake)
    if there is None:
        disk.make_directory(path.parent)
        write_json(disk, path, wanted)
        return
    if any(there.get(key) != wanted.get(key) for key in ("sink", "table", "job")):
        raise Broken(
            f"{lake} is that of spark.sink: {_spelled(there)}, not of"
            f" {_spelled(wanted)}; its ledger counts what is there. To begin with"
            " another one, wait until the spool is empty, stop the job and the gateway,"
            " and move lake and checkpoint away; gateway spark adopt takes the rows of"
            " Parquet folders along"
        )


def settle(lake: Path, disk: LakeDisk, wanted: Mapping[str, str]) -> None:
    """Write down where readers without Spark find the table now."""
    path = lake / INTERNAL / "sink.json"
    if not disk.exists(path) or json.loads(disk.read(path)) != wanted:
        write_json(disk, path, wanted)


def _spelled(sink: Mapping[str, str]) -> str:
    names = [sink[key] for key in ("table", "job") if key in sink]
    return f"{sink['sink']} ({', '.join(names)})" if names else sink["sink"]
