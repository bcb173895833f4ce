"""A data directory with events of all four protocols in tables, archive, spool and journal,
made by a real daemon; and starts in it, in this process.

    python tests/plugins/whole.py DIRECTORY    makes one
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from twisted.application.service import Service

from catalogs import expire, write
from daemons import Daemon, listener, spawn
from gateway import config
from gateway.audit import audit
from gateway.audit.payloads import compare_payloads
from gateway.audit.sites import Site
from gateway.daemon.opened import OpenedDaemon
from gateway.daemon.running import Running
from gateway.daemon.service import Gateway
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger, Ranges
from gateway.store import storage
from gateway.store.directories import Directories
from gateway.store.hub.arrivals import Record as Arrived
from gateway.store.names import Life, file_name, parse_file_name
from gateway.store.node import catalog, mark
from gateway.store.node.incarnation import Incarnation
from gateway.store.node.lineage import Lineage
from gateway.store.node.removal_clock import NAME, Seen
from gateway.store.objects.node_record import Speaker
from gateway.store.readers import deleted
from gateway.store.readers.consumers import FileMarks
from gateway.store.readers.deleted import Deletion
from gateway.store.readers.lake import INTERNAL
from gateway.store.spool.retained import Retained
from gateway.store.system import disk, statefile
from gateway.store.system.disk import RealDisk
from gateway_testkit.bucket import MemoryBucket
from gateway_testkit.reactor import QueuedReactor
from incarnations import rows_of

LISTENERS = [
    listener("beats", "lumberjack"),
    listener("streams", "pravega"),
    listener(
        "games",
        "pomelo",
        options={"outbox": {"directory": "outbox"}, "session_events": False},
    ),
    listener("reactive", "rsio"),
]


class Refused(Exception):
    """The daemon does not start; the text is what it says."""


class Terminal:
    """Where the daemon's last words go."""

    def leave(self, why: str) -> None:
        raise Refused(why)

    def close(self) -> None:
        """It goes on."""


class BadSectors(RealDisk):
    """One file can not be read."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def read(self, path: Path) -> bytes:
        if path == self.path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return super().read(path)

    def read_around(self, path: Path) -> bytes:
        return bytes(path.stat().st_size) if path == self.path else self.read(path)


def _left_unbound(opened: OpenedDaemon, *_: object) -> Any:
    """In the place of `Running.bind`."""
    return SimpleNamespace(opened=opened, admin=Service())


@dataclass
class Place:
    """A data directory, and starts of the daemon in it."""

    data: Path

    @property
    def directories(self) -> Directories:
        return Directories.under(self.data)

    def copy(self, to: Path) -> Place:
        """The same directory elsewhere: to its journal's record it has not moved."""
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.data, to)
        journal, here = to / "journal/gw-1", RealDisk()
        if (this := catalog.look(journal).newest(Incarnation)) is not None:
            number, generation = here.identity(journal)
            moved = {"directory": number, "generation": generation}
            write(journal, msgspec.structs.replace(this, **moved))
        return Place(to)

    def files(self) -> list[Path]:
        """Relative to the directory."""
        there = (path for path in self.data.rglob("*") if path.is_file())
        return sorted(path.relative_to(self.data) for path in there)

    def start(self, unreadable: Path | None = None) -> None:
        """All that a start does but for binding ports; then everything is published.

        Raises `Refused`.
        """
        settings = config.Config.model_validate(
            {
                "node": "gw-1",
                "data_dir": str(self.data),
                "listeners": LISTENERS,
                "spool": {"publishers": 0},
            }
        )
        daemon: Any = Gateway(
            settings,
            QueuedReactor(),
            BadSectors(unreadable),
            Terminal(),  # type: ignore[arg-type]
            lambda: settings,
        )
        with patch.object(Running, "bind", _left_unbound):
            daemon.privilegedStartService()
        opened = daemon.daemon.opened.storage._opened.found
        for sealed in opened.unpublished:
            opened.publisher.publish(sealed)
        opened.publisher.close()
        opened.marker.write(opened.mark(opened.first_lsn - 1), now=True)

    def complete(self, *, content: bool = False) -> bool:
        """What the audit says, with `--content` too; what can not be read is not."""
        try:
            report = audit(Site(self.directories, "gw-1"), pause=lambda _: None)
            changed = content and compare_payloads(self.directories).problems
        except OSError:
            return False
        return report.complete and not changed

    def rows(self) -> list[tuple[int, bytes]]:
        """What a reader of tables and spool gets, and no more."""
        found: list[tuple[int, bytes]] = []
        for path in (
            *self.data.glob("lake/events/**/*.parquet"),
            *self.data.glob("spool/events-*.parquet"),
        ):
            with contextlib.suppress(OSError, pa.ArrowException):
                table = pq.read_table(
                    path,
                    columns=["lsn", "payload"],
                    partitioning=None,
                    page_checksum_verification="lake" not in path.parts,
                )
                found += zip(*(c.to_pylist() for c in table.columns), strict=True)
        return sorted(found)


def send(daemon: Daemon, listeners: Iterable[dict[str, Any]]) -> None:
    """As clients of these protocols do, twelve events each."""
    running = [
        spawn(
            [
                *(sys.executable, "-m", "gateway.cli", "send", each["protocol"]),
                ":".join(map(str, daemon.address(each["name"]))),
                *("--generate", "12"),
            ],
            daemon.data.with_name("senders.log"),
        )
        for each in listeners
    ]
    assert not any(each.wait() for each in running)


def take(data: Path, path: Path) -> None:
    """As the Spark job: a spool file's rows into the tables, the file into the archive."""
    table = pq.read_table(path, columns=["node", "lsn", "received_at", "payload"])
    target = data / "lake/events/protocol=plain/date=2026-01-01"
    target.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows_of(table, path.name), target / f"part-{path.name}")
    path.rename(data / "archive" / path.name)


def make(home: Path) -> Place:
    """Events in all places: in tables and archive, in the spool, in the open segment."""
    with Daemon(home, {"listeners": LISTENERS}) as daemon:
        for part in (LISTENERS[:2], LISTENERS[2:]):
            send(daemon, part)
            daemon.settled(24)
        daemon.settled(48)
        (daemon.data / "outbox/bad.ndjson").write_bytes(b"{no row\n")
        left = daemon.data / "outbox/.bad-bad.ndjson.reason"
        daemon.eventually(left.exists, "it is set aside")
    for path in sorted(daemon.spool.glob("events-*"))[::2]:
        take(daemon.data, path)
    slow = {"listeners": LISTENERS, "spool": {"roll_interval": "1h"}}
    with Daemon(home, slow) as daemon:
        send(daemon, LISTENERS)
        marked = daemon.data / "state/gw-1/mark"
        daemon.eventually(
            lambda: (
                (found := statefile.look(marked, mark.Mark)) is not None
                and found.durable == 96
            ),
            "the mark has all of it",
        )
    return Place(daemon.data)


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Locks are let go, and nobody waits for a disk that comes back."""
    locks: list[Any] = []

    def keeping(take: Callable[..., Any]) -> Callable[..., Any]:
        def taken(*arguments: Any) -> Any:
            locks.append(take(*arguments))
            return locks[-1]

        return taken

    with pytest.MonkeyPatch.context() as patch:
        for name in ("lock", "lock_directory"):
            patch.setattr(storage, name, keeping(getattr(storage, name)))
        patch.setattr(disk, "_PAUSE_SECONDS", 0)
        try:
            yield
        finally:
            for each in locks:
                each.release()


# -- the forms of what is stored, for later versions to read -----------------------------

EDGE, ITS = "edge", "aaaaaaaaaa"
"""A node that brings its files here, and its incarnation."""


def keep_for_readers(place: Place) -> None:
    """Rows that readers of streams need of what is in the archive, and the job's clock."""
    folders, here = place.directories, RealDisk()
    retained = Retained(
        "gw-1", folders.retained_of("gw-1"), folders.archive, here,
        needed={"pravega": lambda channel: 1},
    )  # fmt: skip
    assert [*retained.keep(folders.archive.glob("events-gw-1_*"))]
    clock = statefile.StateFile(folders.lake / INTERNAL / NAME, Seen, here)
    clock.write(Seen(1_795_966_853.0))


def complete(place: Place) -> dict[str, Any]:
    """Add what the job, consumers, a hub and a bucket keep; all that a reader must find."""
    data, here = place.data, RealDisk()
    found = [parse_file_name(path.name) for path in data.glob("archive/events-*")]
    taken = {(one.node, one.incarnation): (one.first, one.last) for one in found if one}
    committed = Ranges()
    for (node, by), (first, last) in taken.items():
        committed.add(Life(node, by), first, last)
    lake = data / "lake"
    (lake / INTERNAL).mkdir()
    ledger = Ledger(query="q", batch=0, committed=committed, sequence=1)
    ledger.save(Lake(), lake / INTERNAL / "events.json")
    consumer = FileMarks(place.directories.consumers, "reader", here)
    consumer.change(
        lambda one: one.with_done(path.name for path in data.glob("archive/*"))
    )
    expired = file_name(EDGE, ITS, 1, 5)
    expire(data, [expired], "gw-1")
    hub = place.directories.arrivals
    here.make_directory(hub)
    statefile.StateFile(hub / EDGE, Arrived, here).write(Arrived(ITS, {ITS: ()}))
    deletion = Deletion("delete-1", "asked", "ann@vm", 1_795_959_182.0, "case 1")
    deleted.save(here, lake, deletion)
    keep_for_readers(place)
    journal = place.directories.journal_of("gw-1")
    now = catalog.look(journal).newest(Incarnation)
    assert now is not None
    bucket = MemoryBucket()
    lineage = Lineage(now, catalog.Catalog(journal, here))
    Speaker(bucket, "gw-1", lineage, "journal", lambda: 96, lambda: 48).say()
    objects = data.parent / "bucket"
    objects.mkdir()
    for one in bucket.list(""):
        (objects / one.name).write_bytes(bucket.read(one.name))
    whole = place.copy(data.parent / "started")
    with starting():
        whole.start()
    return {
        "rows": [[lsn, payload.decode()] for lsn, payload in whole.rows()],
        "committed": {by: list(span) for (_, by), span in taken.items()},
        "incarnation": now.id,
    }


def main(folder: Path) -> None:
    """Make a folder of all forms."""
    folder.mkdir(parents=True)
    facts = complete(make(folder))
    for name in ("started", "gateway.log", "gateway.yaml", "senders.log"):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
