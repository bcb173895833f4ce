"""Moves spool files aside that a batch can not take (`not_taken`), and writes that down.

A file that is cut short, damaged, or not the gateway's would stop every later one.  It
goes to the folder `poison` beside its reason; the ledger notes the events as a hole.
Mended and put back with `gateway spark requeue`, it is read like any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from attrs import define

from gateway.spark.bucket.inbox import Inbox
from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.ledger import Hole, write_json
from gateway.spark.commit.sink import Sink
from gateway.spark.files.not_taken import FILES, flaw_of
from gateway.store.names import SpoolFile, parse_file_name
from gateway.store.objects.bucket import BucketError


def make_readable(
    files: Sequence[SpoolFile],
    inbox: Inbox | None,
    examine: Callable[[Sequence[SpoolFile]], list[Hole]],
    *,
    known: bool = False,
) -> tuple[list[Hole], list[str]]:
    """Have *files* of a batch that failed read: those that *examine* (`Poison.examine`) has
    moved aside, and the names of those that the *inbox* has changed.

    With neither, and no cause *known*, no file of it is to blame.  A file that is not here is
    fetched first, and an object is put back only from a sound one.  Raises OSError, `BucketError`.
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
            self._rename(name, FILES["name"])
        return strangers

    def finish(self) -> None:
        """Move what is noted as a hole and a crash kept from being moved.

        A file that was mended and put back meanwhile stays.
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
