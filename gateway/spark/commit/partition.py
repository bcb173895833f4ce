"""A day's folder of a Parquet table gives its place to another one, in one step.

Whoever makes new files of old ones (compaction, deletion, new columns) does it so:

    with alone(lake):                          one at a time, or rows would be there twice
        restore(lake, disk)                    what a crash has cut in two
        staged = staged_for(lake, folder, disk)
        …                                      files are written there
        replace(lake, folder, going, staged, disk)

A listing shows the old files or the new ones, never both (`LakeDisk.exchange`).  A reader
that has listed the old ones and opens them later finds them gone, and lists again.
Whatever a crash leaves is either not yet in place or no longer in use.

What they have in common beside that is here, too: which files there are, which of them have
the same columns, and how new ones are written and called.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.spark.commit.lakedisk import LakeDisk, sync
from gateway.spark.commit.parquet import publishing
from gateway.store.readers.lake import INTERNAL
from gateway.store.system.lock import Lock, lock


class Busy(Exception):
    """Something else must be finished first; the text says what."""


class Replaced(NamedTuple):
    """How many files a folder had, and has."""

    before: int
    after: int


@contextmanager
def alone(lake: Path) -> Iterator[None]:
    """Held by whoever makes new files of old ones, or those rows would be there twice.

    Raises `Busy` if somebody else does.
    """
    (lake / INTERNAL).mkdir(parents=True, exist_ok=True)
    held = Lock()
    try:
        try:  # nothing is written there: a disk that is full is relieved like this
            held.take(lake / INTERNAL / "compacting", os.O_RDWR | os.O_CREAT)
        except BlockingIOError:
            raise Busy(
                f"files of {lake} are being rewritten already, by gateway spark compact,"
                " gateway spark requeue, or the job: wait until that is done"
            ) from None
        yield
    finally:
        held.release()


@contextmanager
def without_job(lake: Path, what: str) -> Iterator[None]:
    """Meanwhile no job runs, and *what* is told to one that starts.  Raises `Locked` if one
    does, OSError.
    """
    held = lock(lake / INTERNAL / "lock", what)
    try:
        yield
    finally:
        held.release()


def _staging(lake: Path) -> Path:
    return lake / INTERNAL / "compact"


def staged_for(lake: Path, folder: Path, disk: LakeDisk) -> Path:
    """An empty folder for what is to take the place of *folder*.  Raises OSError."""
    staged = _staging(lake) / folder.relative_to(lake)
    disk.remove_tree(staged)
    disk.make_directory(staged)
    return staged


def finish(lake: Path, disk: LakeDisk) -> None:
    """Undo what a crash has left half done, unless somebody is at it now.  Raises OSError."""
    if _staging(lake).exists():
        with contextlib.suppress(Busy), alone(lake):
            _put_back(lake, disk)


def restore(lake: Path, disk: LakeDisk) -> None:
    """The same, for who is `alone`; nothing is staged after it."""
    _put_back(lake, disk)
    disk.remove_tree(_staging(lake))


def _put_back(lake: Path, disk: LakeDisk) -> None:
    """Undo a swap that a crash has cut in two, where it takes two steps."""
    staging = _staging(lake)
    for between in staging.glob("*/*/.*.between"):
        name = between.name.removeprefix(".").removesuffix(".between")
        target = lake / between.parent.relative_to(staging) / name
        if not disk.exists(between.with_name(name)):
            continue  # what was made of it is in place
        with publishing(lake):
            if not disk.exists(target):
                disk.rename(between, target)
            else:  # a batch that came since has made a folder of that name
                for path in disk.tree(between):
                    disk.rename(path, target / path.name)
                disk.sync_directory(target)
            disk.sync_directory(target.parent)


def replace(
    lake: Path, folder: Path, going: Sequence[Path], staged: Path, disk: LakeDisk
) -> Replaced | None:
    """Let *staged*, whose files were made of the files *going*, take the place of *folder*.

    What else is in *folder* by now, as of batches that came late, stays beside it.  None,
    and nothing is done: some of *going* are gone.  Raises `Busy`, OSError.
    """
    if not going:
        return None
    # A job that starts looks for the newest rows in the newest files.
    newest = max((path.stat().st_mtime for path in going if path.exists()), default=0.0)
    for path in visible(staged):
        disk.set_times(path, newest)
        sync(disk, path)
    with publishing(lake):
        check_settled(lake, folder, going)
        now = visible(folder)
        if not set(going).issubset(now):
            return None
        for path in now:
            if path not in set(going):
                disk.link(path, staged / path.name)
        disk.sync_directory(staged)
        after = len(visible(staged))
        disk.exchange(staged, folder)
        disk.sync_directory(folder.parent)
        disk.sync_directory(staged.parent)
    return Replaced(len(now), after)


def check_room(folder: Path, size: int, disk: LakeDisk) -> None:
    """The gateway needs the same disk to acknowledge anything."""
    if (free := disk.free(folder)) < 2 * size:
        raise OSError(
            errno.ENOSPC,
            f"{size >> 20} MiB of small files are to be rewritten, which needs twice as"
            f" much room, and {free >> 20} MiB are free",
            str(folder),
        )


def check_finished(lake: Path) -> None:
    """Raise `Busy` if a batch, or what was put through again, is decided and not in place: its
    rows are in no table yet, and will be.
    """
    for path in (lake / INTERNAL / "staging").glob("*/*/manifest"):
        raise Busy(
            f"a batch, {path.parent}, is not finished: start gateway spark, with --once if"
            " it is not to stay, and then this again"
        )


def check_settled(lake: Path, folder: Path, going: Collection[Path]) -> None:
    """A batch that a crash has cut in two, or that is under way, counts on the names of
    its files, and rows that are put through again on those that they come from.
    """
    names = {str(path.relative_to(lake)) for path in going}
    for path in (lake / INTERNAL / "staging").glob("*/*/manifest"):
        try:
            manifest = json.loads(path.read_bytes())
            counted = {goal for _, goal in manifest["moves"]}
            counted.update(manifest.get("remove", ()))
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            counted = names
        if not names.isdisjoint(counted):
            raise Busy(
                f"a batch with files in {folder}, {path.parent}, is not finished: wait"
                " for gateway spark, or start it"
            )


def visible(folder: Path) -> list[Path]:
    """Its files that readers see, by name: the oldest first."""
    return sorted(path for path in folder.glob("*.parquet") if path.name[0] not in "._")


def folders(lake: Path, tables: Iterable[str], day: str = "*") -> list[Path]:
    """Those of all days of these tables, or of one."""
    return [
        folder
        for table in tables
        for folder in sorted((lake / table).glob(f"protocol=*/date={day}"))
    ]


def files_of(lake: Path, *tables: str) -> list[Path]:
    """The files of all their days that readers see."""
    return [path for folder in folders(lake, tables) for path in visible(folder)]


def by_columns(files: Iterable[Path]) -> list[list[Path]]:
    """Those together that have the same columns."""
    groups: dict[tuple[tuple[str, str], ...], list[Path]] = {}
    for path in files:
        columns = sorted((one.name, str(one.type)) for one in pq.read_schema(path))
        groups.setdefault(tuple(columns), []).append(path)
    return list(groups.values())


def start_of_name(files: Sequence[Path]) -> str:
    """Of what is made of *files*: like the newest of them, so that readers of whole batches
    take it for one of those.
    """
    return files[-1].name[: len("part-0123456789")]


def has_variant(schema: pa.Schema) -> bool:
    """Whether pyarrow would write a column of it back as a plain struct."""
    return any(
        name in schema.names and pa.types.is_struct(schema.field(name).type)
        for name in ("body", "body_variant")
    )


def writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Of a new file of a table."""
    texts = ("body", "payload")  # long ones, each another one
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        use_dictionary=[name for name in schema.names if name not in texts],
        write_page_checksum=True,
    )
