"""Accepted holes on their way into the ledger.

`gateway audit accept` leaves a file for each beside the ledger, so that the job need not
stop for it.  The audit counts what is there as if it were in the ledger.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

from gateway.store.readers.lake import Accepted, accepted_folder, read_accepted

_log = logging.getLogger("gateway.spark")


def waiting(lake: Path) -> Iterator[tuple[Path, Accepted]]:
    """The holes that are not in the ledger yet, each with its file; a damaged one is set aside.

    Raises OSError.
    """
    for path in sorted(accepted_folder(lake).glob("[!.]*.json")):
        try:
            found = read_accepted(json.loads(path.read_bytes()))
        except ValueError as why:
            aside = path.with_name(f".{path.name}.damaged")
            path.rename(aside)
            _log.error("%s can not be read, and is %s now: %s", path, aside.name, why)
        else:
            yield path, found
