"""Spool files that can not be read: found, moved aside, written down.

A file that is cut short, damaged, or not the gateway's would stop every later one.  It
goes to the folder `poison` beside its reason; the ledger notes the events as a hole.
Mended and put back with `gateway spark requeue`, it is read like any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import define

from gateway.event import SCHEMA
from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.ledger import Hole, write_json
from gateway.spark.commit.sink import Sink
from gateway.spark.files.inbox import Inbox
from gateway.store.hub.promised import why_not_those
from gateway.store.names import SpoolFile, parse_file_name
from gateway.store.objects.bucket import BucketError


def flaw_of(path: Path, file: SpoolFile) -> str | None:
    """Why a file is not what its name promises; every byte is read.  None: it is.

    Raises FileNotFoundError, PermissionError.
    """
    if not path.stat().st_size:
        return "it is empty"
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as content:
            if odd := _odd_columns(content.schema_arrow):
                return odd
            return why_not_those(content, file)
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as why:  # damaged bytes make pyarrow raise anything
        return f"it can not be read: {' '.join(str(why).split())[:300]}"


def _odd_columns(found: pa.Schema) -> str | None:
    for field in SCHEMA:
        if field.name not in found.names:
            if not field.nullable:
                return f"it has no column {field.name}"
            continue
        is_, wanted = found.field(field.name).type, field.type
        if _plain(is_) != _plain(wanted):
            return f"its column {field.name} is {is_}, not {wanted}"
    return None


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def make_readable(
    files: Sequence[SpoolFile],
    inbox: Inbox | None,
    examine: Callable[[Sequence[SpoolFile]], list[Hole]],
    *,
    known: bool = False,
) -> tuple[list[Hole], list[str]]:
    """After a batch of *files* that could not be read: what *examine* (`Poison.examine`)
    has moved aside, and the names of what the *inbox* has changed.  With neither, and no
    cause *known*, the batch failed of something else.

    What is not here can not be examined, so it is fetched first; and no object is put back
    but from what is sound.  Raises OSError, `BucketError`.
    """
    changed = [] if inbox is None else inbox.complete(files)
    holes = examine(files)
    if inbox is not None and not (known or holes or changed):
        with suppress(BucketError):
            changed = inbox.mend(files)
    return holes, changed


@define(eq=False, slots=False)
class Poison:
    """Moves files of one spool aside."""

    _spool: Path
    aside: Path
    _disk: LakeDisk
    _sink: Sink

    def examine(self, files: Iterable[SpoolFile]) -> list[Hole]:
        """Move aside those that can not be read; returns them.  Raises OSError."""
        moved = []
        for file in files:
            try:
                why = flaw_of(self._spool / file.name, file)
            except FileNotFoundError:
                continue
            if why is not None:
                moved.append(self.move(file, why))
        return moved

    def sweep(self) -> list[str]:
        """Move aside what looks like a spool file and is none; returns the names."""
        strangers = [
            name
            for name in self._disk.names(self._spool)
            if name.startswith("events-")
            and name.endswith(".parquet")
            and parse_file_name(name) is None
        ]
        for name in strangers:
            self._rename(name, "its name is not one that the gateway gives")
        return strangers

    def finish(self) -> None:
        """After a crash: move what is noted as a hole and was not moved yet.

        What was mended and put back meanwhile stays.
        """
        found = [parse_file_name(hole.file) for hole in self._sink.ledger.holes]
        self.examine(file for file in found if file is not None)

    def move(self, file: SpoolFile, why: str, events: SpoolFile | None = None) -> Hole:
        """Move one aside, and note its *events*, by other names perhaps, as a hole.

        Raises OSError.
        """
        node, by, first, last = events or file
        hole = Hole(node, first, last, file.name, why, time.time(), by)
        self._sink.note(hole)
        self._rename(file.name, why)
        return hole

    def _rename(self, name: str, why: str) -> None:
        self._disk.make_directory(self.aside)
        reason = {"file": name, "why": why, "at": time.time()}
        target, number = self.aside / name, 1
        while self._disk.exists(target):  # of another incarnation, perhaps: both stay
            number += 1
            target = self.aside / f"{name}.{number}"
        write_json(self._disk, target.with_name(f"{target.name}.json"), reason)
        self._disk.rename(self._spool / name, target)
        self._disk.sync_directory(self.aside)
        self._disk.sync_directory(self._spool)
