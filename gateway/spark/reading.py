"""Which files of a table belong to whole batches, for readers that want no others.

    from gateway.spark.reading import files
    pyarrow.dataset.dataset(files("/var/lib/gateway/lake", "events"), …)

A batch's files get their names one after another; what the ledger does not count yet is
left out.  Needs neither Spark nor pyarrow.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

__all__ = ["files"]

_NAME = re.compile(r"part-(\d{10})-.*\.parquet")


def files(lake: str | os.PathLike[str], table: str) -> list[str]:
    """Paths of a table's files in order of name, those of unfinished batches left out.

    Raises FileNotFoundError where no job has written yet.
    """
    root = Path(lake)
    # The ledger first: what it counts has its names by now.
    ledger = json.loads((root / ".gateway" / "events.json").read_bytes())
    done = int(ledger.get("sequence", 0))
    found = []
    for path in sorted((root / table).rglob("*.parquet")):
        hidden = any(part[0] in "._" for part in path.relative_to(root).parts)
        match = _NAME.fullmatch(path.name)
        if not hidden and (match is None or int(match[1]) <= done):
            found.append(str(path))
    return found
