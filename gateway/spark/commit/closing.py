"""Incarnations that have ended leave the ledger, a thousand at a time.

    lake/.gateway/closed/NAME.json      what of them is in the tables, and what files said of them;
                                        NAME is made of the SHA-256 of these bytes
    .gateway-closed-NAME                the same beside the spool files, where those are in a
                                        bucket: a job may start on an empty disk

The ledger is written with each batch, and an incarnation is a start of a gateway: two hundred
that restart daily are 73,000 a year.  A file is durable before a commit names it, is never
changed, and stays, as any commit may be restored that names it.  Of an incarnation that is
closed events may come yet: those the ledger has beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.sdk.disk import Disk, replace_file
from gateway.spark.commit.ledger import Broken, Closed, Ledger
from gateway.store.lsns import Lsns
from gateway.store.names import Life
from gateway.store.node.incarnation import Record
from gateway.store.objects.bucket import Bucket, NotThere
from gateway.store.readers.lake import (
    FORM,
    INTERNAL,
    ClosedIncarnations,
    closed_name,
    closed_path,
    read_closed,
)

MOST_OPEN = 1000
"""The most ended incarnations in the ledger; then they are closed."""

_OBJECT = ".gateway-closed-"


class Closing:
    """The closed incarnations of one lake, whose spool is in *bucket*, if it is in one."""

    def __init__(self, lake: Path, disk: Disk, bucket: Bucket | None = None) -> None:
        self._lake = lake
        self._disk = disk
        self._bucket = bucket

    def close(self, ledger: Ledger) -> Ledger:
        """The same, without those that have ended, if these are many: they are in a file then,
        durably.  Raises OSError, `BucketError`.
        """
        if ledger.committed.lives_open < MOST_OPEN:  # as a rule
            return ledger
        lives = ledger.ended()
        if len(lives) < MOST_OPEN:
            return ledger
        chosen = {life: ledger.committed.of_life(life) for life in lives}
        before = ledger.committed.closed
        # Of one that was closed before, what has come since.
        new = {
            life: lsns - before.by.get(life, Lsns()) for life, lsns in chosen.items()
        }
        name = self._write(new, ledger.records)
        files = {**before.files, name: sum(lsns.size for lsns in new.values())}
        return ledger.without(chosen.keys(), Closed(files, {**before.by, **chosen}))

    def _write(self, lives: Mapping[Life, Lsns], said: Mapping[Life, Record]) -> str:
        committed: dict[str, dict[str, Lsns]] = {}
        records: dict[str, dict[str, Record]] = {}
        for life, lsns in sorted(lives.items()):
            committed.setdefault(life.node, {})[life.incarnation] = lsns
            if (record := said.get(life)) is not None:
                records.setdefault(life.node, {})[life.incarnation] = record
        closed = ClosedIncarnations(FORM, committed, records)
        data = msgspec.json.encode(closed, enc_hook=list)
        name = closed_name(data)
        self._keep(name, data)
        if self._bucket is not None:
            self._bucket.replace(f"{_OBJECT}{name}", data)
        return name

    def _keep(self, name: str, data: bytes) -> None:
        path = closed_path(self._lake, name)
        self._disk.make_directory(path.parent)
        replace_file(self._disk, path, [data]).close()

    def whole(self, ledger: Ledger) -> Ledger:
        """*ledger*, as it was read, with what is in the files that it names.

        Raises `Broken` where one is missing, OSError, `BucketError`.
        """
        files = ledger.committed.closed.files
        if not files:
            return ledger
        by: dict[Life, Lsns] = {}
        for name in files:
            for node, lives in self._read(name).committed.items():
                for incarnation, lsns in lives.items():
                    life = Life(node, incarnation)
                    by[life] = by.get(life, Lsns()) | lsns
        return ledger.without((), Closed(files, by))

    def _read(self, name: str) -> ClosedIncarnations:
        path = closed_path(self._lake, name)
        if self._disk.exists(path):
            data = self._disk.read(path)
        else:
            try:
                if self._bucket is None:
                    raise NotThere(str(path))
                data = self._bucket.read(f"{_OBJECT}{name}")
            except NotThere:
                raise Broken(
                    f"{path} is missing: the ledger names it, and it has which events of"
                    " incarnations that have ended are in the tables. Put it back from a"
                    " copy of this directory; without it they might be taken twice"
                ) from None
            self._keep(name, data)
        try:
            return read_closed(data, name)
        except ValueError as why:
            raise Broken(f"{path}: {why}. Put it back from a copy") from None


def load(lake: Path, disk: Disk, bucket: Bucket | None = None) -> Ledger:
    """A lake's ledger, whole.  Raises as `Closing.whole`, and `Ledger.load`."""
    found = Ledger.load(disk, lake / INTERNAL / "events.json")
    return Closing(lake, disk, bucket).whole(found)
