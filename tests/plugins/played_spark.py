"""Spark played by a test: the logs of its checkpoint, its batches, and power cuts."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.spark.commit.lakedisk import Lake
from gateway.spark.files.overlaps import Overlap
from gateway.spark.run.checkpoint import Checkpoint
from spools import SpoolFolder

__all__ = ["PowerCut", "SparkLogs", "Stream"]


class PowerCut(BaseException):
    """Nothing after this happens; no handler may swallow it."""


@dataclass
class SparkLogs:
    """Writes the logs of a checkpoint as Spark does."""

    path: Path
    query: str = "0badcafe-0000-4000-8000-000000000001"

    def lose(self) -> None:
        """Remove the checkpoint: Spark begins a new query, with another id."""
        shutil.rmtree(self.path)
        self.query = "deadbeef-0000-4000-8000-000000000002"

    def begin(self) -> None:
        """A new query with a new id."""
        self._write("metadata", json.dumps({"id": self.query}), version="")

    def source(self, entry: int, names: Sequence[str], *, compact: Any = None) -> None:
        """Entry of the source log; *compact* repeats {entry: names} before it."""
        earlier = dict(compact or {})
        lines = [
            json.dumps(
                {"path": f"file:///d/spool/{name}", "timestamp": 1, "batchId": n}
            )
            for n, those in sorted({**earlier, entry: names}.items())
            for name in those
        ]
        suffix = ".compact" if compact is not None else ""
        self._write(f"sources/0/{entry}{suffix}", "\n".join(lines))

    def offset(self, batch: int, entry: int) -> None:
        """Batch *batch* goes up to *entry*."""
        offset = json.dumps({"logOffset": entry}) if entry >= 0 else "-"
        conf = json.dumps({"batchWatermarkMs": 0, "conf": {}})
        self._write(f"offsets/{batch}", f"{conf}\n{offset}")

    def commit(self, batch: int) -> None:
        """Batch *batch* is done."""
        self._write(f"commits/{batch}", json.dumps({"nextBatchWatermarkMs": 0}))

    def _write(self, name: str, text: str, version: str = "v1\n") -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(version + text)
        path.with_name(f".{path.name}.crc").write_bytes(b"crc")


@dataclass
class Stream:
    """Batches of a spool's files for a sink, which may be cut off at one of its points."""

    logs: SparkLogs
    spool: SpoolFolder
    cut: str | None = field(default=None, kw_only=True)
    """The point at which the power is cut."""

    def sink(self) -> Any:
        """A new one, as each start makes."""
        raise NotImplementedError

    def started(self) -> Any:
        """A sink that has recovered."""
        sink = self.sink()
        sink.recover()
        return sink

    @property
    def checkpoint(self) -> Checkpoint:
        """What the sink reads of the logs."""
        return Checkpoint(self.logs.path, Lake())

    def point(self, name: str) -> None:
        """The sink has come so far."""
        if name == self.cut:
            raise PowerCut

    def run(self, batches: int, files: int = 1, sink: Any = None) -> None:
        """Start, go on after the last commit; a batch takes *files* files."""
        if sink is None:
            sink = self.started()
        self.logs.begin()
        for batch in range(self.checkpoint.committed + 1, batches):
            there = self.spool.names()[batch * files : (batch + 1) * files]
            self.logs.source(batch, there)
            self.logs.offset(batch, batch)
            try:
                sink(None, batch)
            except Overlap as why:  # of a kill: they are the same
                for file in why.files:
                    sink.note_compared(file)
                sink(None, batch)
            self.logs.commit(batch)

    def survive(self, point: str, files: int, *, lost: bool) -> None:
        """A batch, a power cut in the second, and the rest of *files* files, one to a batch;
        all at once as the first one where the checkpoint is lost.
        """
        self.run(1)
        self.cut = point
        with pytest.raises(PowerCut):
            self.run(2)
        self.cut = None
        if lost:
            self.logs.lose()
            self.run(1, files=files)
        else:
            self.run(files)
