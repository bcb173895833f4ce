"""Copies of a bucket's spool files on this machine, for the job that reads a directory.

    s3://…/events-….parquet ── GET, sync, rename ──► data_dir/inbox/events-….parquet ─► tables
            └── once the ledger has all its events: removed, or moved to _archive/

What is copied and what may go is decided by the ledger alone, which counts events.  So a
crash between any two steps does one of them again, an object that is uploaded a second
time is only removed, and an inbox that is lost is fetched afresh.

The newest object of each node stays where it is: a gateway that lost its disk goes on
behind it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from attrs import define

from gateway.spark.ledger import Ledger, SpoolFile
from gateway.store.bucket import ARCHIVE, Bucket, NotThere
from gateway.store.disk import Disk

__all__ = ["Inbox"]

_log = logging.getLogger("gateway.spark")

_LOOK_SECONDS = 1.0


@define(eq=False, slots=False)
class Inbox:
    """Of one bucket and the directory *folder*; its own thread uses both.

    *ledger* says what is in the tables, and what could not be read.  Objects whose events
    are there move to the bucket's archive if *archived*, or are removed.  No more is
    fetched while the directory has *most_bytes*.
    """

    _bucket: Bucket
    _folder: Path
    _disk: Disk
    _ledger: Callable[[], Ledger]
    _archived: bool
    _most_bytes: int

    def __attrs_post_init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inbox", daemon=True)
        self._away = False

    def start(self) -> None:
        """Look again and again, in a thread, until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Let what is under way end."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def recover(self) -> None:
        """Remove what a crash left half written.  Raises OSError."""
        self._disk.make_directory(self._folder)
        for name in self._disk.names(self._folder):
            if name.startswith("."):
                self._disk.unlink(self._folder / name)

    def look(self, *, most_bytes: int | None = None) -> int:
        """Take what is done out of the bucket, and fetch what is new; how many came.

        *most_bytes* is another limit for once.  Raises `BucketError`, OSError.
        """
        most = self._most_bytes if most_bytes is None else most_bytes
        here = {
            name
            for name in self._disk.names(self._folder)
            if SpoolFile.parse(name) is not None
        }
        held = sum(self._size(name) for name in here)
        # After the directory: what the job took out in between is in the tables.
        ledger = self._ledger()
        aside = {hole.file for hole in ledger.holes}
        fetched = 0
        waiting: SpoolFile | None = None
        for one in self._bucket.list("events-"):
            file = SpoolFile.parse(one.name)
            if file is None:
                continue
            # Names sort by node and lsn: one that another of its node follows is not
            # the newest.
            if waiting is not None and waiting.node == file.node:
                self._take_out(waiting.name)
            waiting = None
            if ledger.committed.covers(file):
                waiting = file
            elif one.name not in here | aside and held < most:
                held += self._fetch(one.name)
                fetched += 1
        return fetched

    def _size(self, name: str) -> int:
        try:
            return self._disk.size(self._folder / name)
        except FileNotFoundError:  # the job has it
            return 0

    def _fetch(self, name: str) -> int:
        try:
            data = self._bucket.read(name)
        except NotThere:
            return 0
        hidden = self._folder / f".{name}"
        self._disk.unlink(hidden)
        file = self._disk.create(hidden)
        try:
            file.write([data])
            file.sync()
        finally:
            file.close()
        self._disk.rename(hidden, self._folder / name)
        return len(data)

    def _take_out(self, name: str) -> None:
        if self._archived:
            try:
                self._bucket.copy(name, f"{ARCHIVE}/{name}")
            except NotThere:
                return
        self._bucket.remove(name)

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            self.tend()

    def tend(self, *, most_bytes: int | None = None) -> None:
        """`look`; what fails is told in the log, once until it works."""
        try:
            self.look(most_bytes=most_bytes)
        except Exception as why:  # the job has what was fetched; it goes on
            if not self._away:
                _log.error("%s can not be read now: %s", self._bucket.url, why)
            self._away = True
        else:
            if self._away:
                _log.info("%s can be read again", self._bucket.url)
            self._away = False
