"""Holes that somebody has accepted, on their way into the ledger.

`gateway audit accept` leaves a file for each in `lake/.gateway/accepted/`, so that the job
need not stop for it; what is there counts for the audit as if it were in the ledger.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

from gateway.spark.ledger import Accepted
from gateway.store.lake import INTERNAL

__all__ = ["FOLDER", "waiting"]

_log = logging.getLogger("gateway.spark")

FOLDER = "accepted"


def waiting(lake: Path) -> Iterator[tuple[Path, Accepted]]:
    """Those that are not in the ledger yet, each with its file.  Raises OSError."""
    for path in sorted((lake / INTERNAL / FOLDER).glob("[!.]*.json")):
        try:
            yield path, Accepted(**json.loads(path.read_bytes()))
        except (ValueError, TypeError) as why:
            aside = path.with_name(f".{path.name}.damaged")
            path.rename(aside)
            _log.error("%s accepts nothing that can be read: %s; now %s", path, why, aside)
