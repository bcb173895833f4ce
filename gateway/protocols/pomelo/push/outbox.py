"""A directory of pushes: what a Spark job computes goes back to the game clients.

    outbox/0001.json                  one push a line: route, body, uid or session
    outbox/part-….snappy.parquet      the same as columns
    outbox/batch-7/part-….json        as Spark's writers leave them

Files are there once their names are (rename them into place), and are read in the
order of their names.  A file that was read is moved to `.done`, and then pushed: a
crash in between loses pushes, and none is ever pushed twice.  A file that can not be
read is moved aside as `.bad-NAME`, whole.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import LoopingCall, deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from gateway.admin.status import PushStatus
from gateway.protocols.pomelo import Registry
from gateway.protocols.pomelo.push.page import Push

__all__ = ["Batch", "Folder", "Outbox", "Unreadable", "status"]

_POLL_SECONDS = 0.2
_SWEEP_SECONDS = 10.0
_AT_ONCE = 256
"""Pushes between two turns of the reactor."""
_LINES = (".json", ".ndjson", ".jsonl")
_SPARK_METADATA = "_spark_metadata"


class Unreadable(Exception):
    """A file that holds no pushes; str() says why."""


class Batch(NamedTuple):
    """The pushes of one file."""

    name: str
    pushes: list[Push]


class _Line(msgspec.Struct):
    route: str
    body: msgspec.Raw
    uid: str | int | None = None
    session: str | None = None


_LINE = msgspec.json.Decoder(_Line)
_STRING = msgspec.json.Decoder(str)


class Folder:
    """The directory; its methods block, and belong in a thread."""

    _log = Logger()

    def __init__(self, path: Path, retention: float, file_bytes: int) -> None:
        self._path = path
        self._done = path / ".done"
        self._retention = retention
        self._file_bytes = file_bytes
        self._blamed: set[Path] = set()
        self.set_aside = 0
        """Files that could not be read."""

    def take(self) -> Batch | None:
        """The next file's pushes, once; None if there is none."""
        for path in self._waiting():
            name = str(path.relative_to(self._path))
            try:
                pushes = self._read(path)
            except (
                Unreadable,
                OSError,
                msgspec.MsgspecError,
                pa.ArrowException,
            ) as why:
                self._log.error(
                    "outbox: {name} set aside: {why}", name=name, why=str(why)
                )
                path.rename(path.with_name(f".bad-{path.name}"))
                self.set_aside += 1
                continue
            self._finish(path)
            return Batch(name, pushes)
        return None

    def sweep(self) -> None:
        """Remove what is done with and old enough."""
        oldest = time.time() - self._retention
        for path in self._done.iterdir():
            if path.stat().st_mtime <= oldest:
                path.unlink()

    def prepare(self) -> None:
        """Make the directory."""
        self._done.mkdir(parents=True, exist_ok=True)

    def _waiting(self) -> Iterator[Path]:
        for path in _visible(self._path):
            if path.is_dir():
                yield from self._inside(path)
            elif not self._is_sink(self._path):
                yield path

    def _inside(self, folder: Path) -> Iterator[Path]:
        if self._is_sink(folder):
            return
        files = [path for path in _visible(folder) if path.is_file()]
        yield from files
        if not files and (folder / "_SUCCESS").exists():
            for path in (folder / "_SUCCESS", *folder.glob(".*.crc")):
                path.unlink(missing_ok=True)
            if not any(folder.iterdir()):
                folder.rmdir()

    def _is_sink(self, folder: Path) -> bool:
        if not (folder / _SPARK_METADATA).exists():
            return False
        if folder not in self._blamed:
            self._blamed.add(folder)
            self._log.error(
                "outbox: {folder} is ignored: Spark's streaming file sink writes files "
                "under their final names; write in foreachBatch",
                folder=str(folder),
            )
        return True

    def _finish(self, path: Path) -> None:
        kept = self._done / f"{time.time_ns()}-{path.name}"
        path.rename(kept)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        if self._retention:
            os.utime(kept)
        else:
            kept.unlink()

    def _read(self, path: Path) -> list[Push]:
        size = path.stat().st_size
        if size > self._file_bytes:
            raise Unreadable(
                f"{size} bytes, limit {self._file_bytes} (options.outbox.file_bytes)"
            )
        if path.name.endswith(".parquet"):
            return _columns(pq.read_table(path))
        if path.name.endswith(_LINES):
            return [
                _line(number, line)
                for number, line in enumerate(path.read_bytes().splitlines(), 1)
                if line.strip()
            ]
        raise Unreadable(f"must be .parquet or {', '.join(_LINES)}")


def _visible(folder: Path) -> list[Path]:
    """Without `.hidden`, `_temporary` and `_SUCCESS`, as Spark itself sees it."""
    return sorted(path for path in folder.iterdir() if path.name[0] not in "._")


def _line(number: int, line: bytes) -> Push:
    try:
        found = _LINE.decode(line)
        body = bytes(found.body)
        if body.startswith(b'"'):  # to_json() made it
            body = _STRING.decode(body).encode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as why:
        raise Unreadable(f"line {number}: {why}") from None
    return Push(found.route, body, found.session, _uid(found.uid))


def _uid(uid: str | int | None) -> str | None:
    return None if uid is None else str(uid)


def _columns(table: pa.Table) -> list[Push]:
    missing = {"route", "body"} - set(table.column_names)
    if missing:
        raise Unreadable(f"no column {' and no column '.join(sorted(missing))}")
    return [_row(number, row) for number, row in enumerate(table.to_pylist(), 1)]


def _row(number: int, row: dict[str, Any]) -> Push:
    route, body, session = row["route"], row["body"], row.get("session")
    if not isinstance(route, str) or not isinstance(session, str | None):
        raise Unreadable(f"row {number}: route and session must be strings")
    if body is None:
        raise Unreadable(f"row {number}: no body")
    if isinstance(body, str):
        body = body.encode()
    elif not isinstance(body, bytes):
        body = msgspec.json.encode(body)
    return Push(route, body, session, _uid(row.get("uid")))


class Outbox:
    """Pushes what appears in a folder, as long as it runs."""

    _log = Logger()

    def __init__(self, folder: Folder, registry: Registry, reactor: Any) -> None:
        self._folder = folder
        self._registry = registry
        self._reactor = reactor
        self._loop = LoopingCall(self._look)
        self._loop.clock = reactor
        self._stopped: Deferred[Any] = succeed(None)
        self._stopping = False
        self._swept = 0.0
        self.files = self.rows = self.refused = 0
        """Pushed files, their rows, and those rows that were no pushes."""

    @property
    def set_aside(self) -> int:
        """Files that could not be read."""
        return self._folder.set_aside

    def start(self) -> None:
        """Look every 200 ms."""
        self._stopped = self._loop.start(_POLL_SECONDS)
        self._stopped.addErrback(lambda why: self._log.failure("outbox", why))

    def stop(self) -> Deferred[Any]:
        """Fires when the file that is being pushed is done with."""
        self._stopping = True
        if self._loop.running:
            self._loop.stop()
        return self._stopped

    def _look(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._push_all())

    async def _push_all(self) -> None:
        try:
            while (batch := await self._thread(self._folder.take)) is not None:
                await self._push(batch)
                if self._stopping:
                    return
            now = self._reactor.seconds()
            if now - self._swept >= _SWEEP_SECONDS:
                self._swept = now
                await self._thread(self._folder.sweep)
        except OSError as why:
            self._log.error("outbox: {why}", why=str(why))

    async def _thread(self, work: Any) -> Any:
        pool = self._reactor.getThreadPool()
        return await maybeDeferred(deferToThreadPool, self._reactor, pool, work)

    async def _push(self, batch: Batch) -> None:
        sent = dropped = failed = 0
        reason = ""
        for number, push in enumerate(batch.pushes, 1):
            try:
                pushed = push.send(self._registry)
            except ValueError as why:
                failed += 1
                reason = reason or str(why)
            else:
                sent += pushed.sent
                dropped += pushed.dropped
            if number % _AT_ONCE == 0:
                await deferLater(self._reactor, 0)
        self.files += 1
        self.rows += len(batch.pushes)
        self.refused += failed
        self._log.debug(
            "outbox: {name}: {count} pushes, {sent} sent, {dropped} dropped",
            name=batch.name,
            count=len(batch.pushes),
            sent=sent,
            dropped=dropped,
        )
        if failed:
            self._log.error(
                "outbox: {name}: {failed} of {count} not pushed: {why}",
                name=batch.name,
                failed=failed,
                count=len(batch.pushes),
                why=reason,
            )


def status(registry: Registry, outboxes: Sequence[Outbox]) -> PushStatus:
    """What became of all pushes, wherever they came from."""
    rows = sum(one.rows for one in outboxes)
    refused = sum(one.refused for one in outboxes)
    return PushStatus(
        clients=len(registry),
        pushes=dict(registry.outcomes),
        outbox_files={
            "pushed": sum(one.files for one in outboxes),
            "set_aside": sum(one.set_aside for one in outboxes),
        },
        outbox_rows={"pushed": rows - refused, "refused": refused},
    )
