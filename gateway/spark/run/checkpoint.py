"""Spark's checkpoint: what it has promised and committed, read from the logs there.

    metadata        {"id": …}: the query; a new checkpoint is a new query
    offsets/N       written before batch N runs: up to which entry of the source log
    sources/0/K     entry K of the source log: the files it took from the spool;
                    every tenth is K.compact and repeats all that came before
    commits/N       written once batch N is done

Batch N is entries offsets/N-1 < K <= offsets/N; K is not always N.  Spark syncs none
of these files: before something irreversible rests on them, we do.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from gateway.spark.commit.lakedisk import LakeDisk, sync
from gateway.spark.commit.ledger import Broken
from gateway.store.names import SpoolFile, parse_file_name


class Checkpoint:
    """The checkpoint directory of one query with one file source."""

    def __init__(self, path: Path, disk: LakeDisk) -> None:
        self.path = path
        self._disk = disk
        self._log = path / "sources" / "0"

    @property
    def query(self) -> str | None:
        """Spark's id of the query, None before its first start."""
        path = self.path / "metadata"
        if not self._disk.exists(path):
            return None
        try:
            return str(json.loads(self._disk.read(path))["id"])
        except (ValueError, KeyError, TypeError):
            raise Broken(f"{path}: not Spark's; remove {self.path}") from None

    @property
    def committed(self) -> int:
        """The last batch that Spark has committed, -1 before the first."""
        return max(self._numbers(self.path / "commits"), default=-1)

    @property
    def begun(self) -> bool:
        """Whether a batch stands in it.  Until then nothing rests on it.

        Spark refuses one without a batch whose `offsets` are not empty, for ever, and
        leaves such a one when it is killed while it writes the first.
        """
        return bool(self._numbers(self.path / "offsets"))

    def offset(self, batch: int) -> int:
        """The last entry of the source log that belongs to *batch* or one before."""
        if batch < 0:
            return -1
        path = self.path / "offsets" / str(batch)
        lines = self._lines(path)
        if len(lines) < 2:
            raise Broken(f"{path}: cut short; remove {self.path}")
        if lines[1] == "-":
            return -1
        return int(_parsed(path, lines[1])["logOffset"])

    def files(self, after: int, upto: int) -> list[SpoolFile]:
        """The files of the entries *after* < K <= *upto*."""
        if upto <= after:
            return []
        names = self._disk.names(self._log) if self._disk.exists(self._log) else []
        single = {name for name in names if name.isdecimal()}
        compact = sorted(
            int(name.removesuffix(".compact"))
            for name in names
            if name.endswith(".compact") and not name.startswith(".")
        )
        found: dict[str, SpoolFile] = {}
        entry = after + 1
        while entry <= upto:
            if str(entry) in single:
                log, reach = self._log / str(entry), entry
            else:
                reach = min((k for k in compact if k >= entry), default=-1)
                log = self._log / f"{reach}.compact"
            if reach < 0:
                raise Broken(f"{self._log}: entry {entry} is missing")
            found |= self._entries(log, after, upto)
            entry = reach + 1
        return list(found.values())

    def batch_files(self, batch: int) -> list[SpoolFile]:
        """The files that *batch* takes from the spool."""
        return self.files(self.offset(batch - 1), self.offset(batch))

    def names(self) -> set[str]:
        """The files in its source log, whatever became of their batches."""
        return {path.rpartition("/")[2] for path in self._paths()}

    def directories(self) -> set[str]:
        """Where they were, as URLs with plain characters."""
        return {unquote(path.rpartition("/")[0]) for path in self._paths()}

    def _paths(self) -> Iterator[str]:
        if not self._disk.exists(self._log):
            return
        for name in self._disk.names(self._log):
            if name.removesuffix(".compact").isdecimal():
                for line in self._lines(self._log / name):
                    yield _parsed(self._log / name, line)["path"]

    def log_bytes(self) -> int:
        """How much Spark reads and writes again every tenth batch: its longest log."""
        if not self._disk.exists(self._log):
            return 0
        longest = 0
        for name in self._disk.names(self._log):
            # Spark removes old ones while we look.
            with contextlib.suppress(FileNotFoundError):
                if not name.startswith("."):
                    longest = max(longest, self._disk.size(self._log / name))
        return longest

    def retire(self) -> None:
        """Remove it; the next start is a new query.  A crash leaves all or nothing."""
        if not self._disk.exists(self.path):
            return
        aside = self.path.with_name(f".{self.path.name}.old")
        self._disk.remove_tree(aside)
        self._disk.rename(self.path, aside)
        self._disk.sync_directory(self.path.parent)
        self._disk.remove_tree(aside)

    def sync(self, batches: range, entries: range) -> None:
        """Make sure that the logs of these batches and entries survive a power cut."""
        paths = []
        for batch in batches:
            paths += [self.path / log / str(batch) for log in ("offsets", "commits")]
        for entry in entries:
            paths += [self._log / str(entry), self._log / f"{entry}.compact"]
        folders = {self.path}
        for path in paths:
            # Spark believes a log only with the checksum beside it.
            for file in (path, path.with_name(f".{path.name}.crc")):
                if self._disk.exists(file):
                    sync(self._disk, file)
                    folders.add(file.parent)
        for folder in sorted(folders):
            self._disk.sync_directory(folder)

    def _numbers(self, folder: Path) -> list[int]:
        names = self._disk.names(folder) if self._disk.exists(folder) else []
        return [int(name) for name in names if name.isdecimal()]

    def _lines(self, path: Path) -> list[str]:
        """The lines of a log, its version checked and taken off."""
        version, *lines = self._disk.read(path).decode().splitlines() or [""]
        if not version:  # a power cut: Spark does not sync
            raise Broken(f"{path}: cut short; remove {self.path}")
        if version != "v1":
            raise Broken(f"{path}: log version {version!r}, this job reads v1")
        return lines

    def _entries(self, log: Path, after: int, upto: int) -> dict[str, SpoolFile]:
        found = {}
        for line in self._lines(log):
            entry = _parsed(log, line)
            if after < entry["batchId"] <= upto:
                name = entry["path"].rpartition("/")[2]
                file = parse_file_name(name)
                if file is None:
                    raise Broken(f"{log}: {name} is not a name of the spool")
                found[name] = file
        return found


def _parsed(path: Path, line: str) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        raise Broken(f"{path}: cut short: {line[:80]!r}") from None
