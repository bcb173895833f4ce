"""The list of what a batch can not take, and why.

    file   goes to `poison/` beside its reason; its events are a hole in the ledger, until the
           file is mended
    event  goes to `quarantine` with its flaw, until it is fine or its flaw is accepted

`gateway spark requeue` puts both through again.  `incomplete` finds the files of a batch that
failed, and `poison` moves them; flaws come with the events, but for `resent`.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.event import DELETED, SCHEMA
from gateway.store.hub.promised import why_not_those
from gateway.store.names import SpoolFile

RESENT = "resent"

FILES = {
    "empty": "it is empty",
    "unreadable": "it can not be read: {}",
    "no column": "it has no column {}",
    "other column": "its column {} is {}, not {}",
    "name": "its name is not one that the gateway gives",
    "heap": (
        "an event of it does not fit into Java's heap of {}, with no other file beside it:"
        " give it more"
    ),
    "unknown past": (
        "its events from lsn {} on have names that the tables have, and whether"
        " they are the same can not be told: neither tables nor archive have those any"
        " more. Put back a copy of the archive that has, then gateway spark requeue"
    ),
}
"""Reasons of files; also rows that a name does not promise, which `promised` says."""

FINAL_FLAWS = {
    RESENT: "its sender sent it twice, and the tables have it",
    DELETED: "its contents were deleted on purpose",
}
"""Flaws that say nothing of the payload: no requeue takes them back.  Others are accepted by
`--flaw`, or gone where the payload is JSON after all."""


def flaw_of(path: Path, file: SpoolFile) -> str | None:
    """Why a file is not what its name promises, None if it is; every byte is read.

    Raises FileNotFoundError, PermissionError.
    """
    if not path.stat().st_size:
        return FILES["empty"]
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as content:
            return _odd_columns(content.schema_arrow) or why_not_those(content, file)
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as why:  # damaged bytes make pyarrow raise anything
        return FILES["unreadable"].format(" ".join(str(why).split())[:300])


def _odd_columns(found: pa.Schema) -> str | None:
    for field in SCHEMA:
        if field.name not in found.names:
            if not field.nullable:
                return FILES["no column"].format(field.name)
            continue
        is_, wanted = found.field(field.name).type, field.type
        if _plain(is_) != _plain(wanted):
            return FILES["other column"].format(field.name, is_, wanted)
    return None


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
