"""Files of a table that belong to whole batches, the newest first.

Readers that take the columns of the first file for those of all so have every column: new
ones are null in old files.

    from gateway.spark.reading import files
    pyarrow.dataset.dataset(files("/var/lib/gateway/lake", "events"), …)

A batch's files get their names one after another; what the ledger does not count yet is
left out.  A day's folder is swapped for a compacted one: a listing in that moment, which may
lack the whole day, is made again.  Needs neither Spark nor pyarrow.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path

_NAME = re.compile(r"part-(\d{10})-.*\.parquet")


def files(lake: str | os.PathLike[str], table: str) -> list[str]:
    """Paths of a table's files, the newest first; those of unfinished batches left out.

    Raises FileNotFoundError where no job has written yet.
    """
    root = Path(lake)
    # The ledger first: what it counts has its names by now.
    ledger = json.loads((root / ".gateway" / "events.json").read_bytes())
    done = int(ledger.get("sequence", 0))
    found = []
    for path in _listed(root / table):
        match = _NAME.fullmatch(path.name)
        batch = 0 if match is None else int(match[1])
        if batch <= done:
            found.append((batch, str(path)))
    return [path for _, path in sorted(found, reverse=True)]


def _listed(table: Path) -> list[Path]:
    while True:
        folders = _folders(table)
        try:
            found = [path for folder in folders for path in folder.iterdir()]
        except FileNotFoundError:
            continue
        if _folders(table) == folders:
            return sorted(
                path
                for path in found
                if path.suffix == ".parquet" and path.name[0] not in "._"
            )


def _folders(table: Path) -> dict[Path, int]:
    """The folders of days, and which they are: another one may have the name later."""
    found = {}
    for path in table.glob("protocol=*/date=*"):
        with contextlib.suppress(FileNotFoundError):
            found[path] = path.stat().st_ino
    return found
