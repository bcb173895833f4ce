"""Copies of a bucket's spool files on this machine, for the job that reads a directory.

    s3://…/events-….parquet ── GET, sync, rename ──► data_dir/inbox/events-….parquet ─► tables
            └── once the ledger has all its events: removed, or moved to _archive/

What is copied and what may go is decided by the ledger, which counts events.  So a
crash between any two steps does one of them again, an object that is uploaded a second
time is only removed, and an inbox that is lost is fetched afresh.  An object stays while
its copy is here: the tasks of a cluster read the bucket, until the batch is done.

The newest object of each node stays where it is: a gateway that lost its disk goes on
behind it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import define

from gateway.spark.ledger import Ledger, SpoolFile
from gateway.store.bucket import ARCHIVE, Bucket, NotThere
from gateway.store.disk import Disk

__all__ = ["Inbox", "take_out"]

_log = logging.getLogger("gateway.spark")

_LOOK_SECONDS = 1.0
_STOP_SECONDS = 5.0
"""Whoever stops the job does not wait for a download; it is begun again."""


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
        """Fetch nothing more; a request that is under way may end by itself."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    def recover(self) -> None:
        """Remove what a crash left half written.  Raises OSError."""
        self._disk.make_directory(self._folder)
        for name in self._disk.names(self._folder):
            if name.startswith("."):
                self._disk.unlink(self._folder / name)

    def newest(self) -> dict[str, int]:
        """The last lsn of each node that is in the bucket now.  Raises `BucketError`."""
        found: dict[str, int] = {}
        for one in self._bucket.list("events-"):
            if (file := SpoolFile.parse(one.name)) is not None:
                found[file.node] = max(file.last, found.get(file.node, 0))
        return found

    def look(
        self,
        *,
        most_bytes: int | None = None,
        upto: Mapping[str, int] | None = None,
    ) -> int:
        """Take what is done out of the bucket, and fetch what is new; how many came.

        *most_bytes* is another limit for once; *upto*: nothing comes that is behind these
        lsns.  Raises `BucketError`, OSError.
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
                take_out(self._bucket, waiting.name, archived=self._archived)
            waiting = None
            if ledger.committed.covers(file):
                waiting = None if one.name in here else file
            elif one.name in here or one.name in aside or held >= most:
                continue
            elif upto is None or file.last <= upto.get(file.node, 0):
                if self._stopping.is_set():
                    break
                size = self._fetch(one.name)
                held += size
                fetched += size > 0
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
        if self._stopping.is_set():
            return 0  # the folder may be another job's by now
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


def take_out(bucket: Bucket, name: str, *, archived: bool) -> None:
    """Remove a file that is in the tables, or move it to the bucket's archive."""
    if archived:
        try:
            bucket.copy(name, f"{ARCHIVE}/{name}")
        except NotThere:
            return
    bucket.remove(name)
