"""A day's folder of a Parquet table gives its place to another one, in one step.

The loop of `gateway.spark.later.days` does it so:

    with alone(lake):                          one at a time, or rows would be there twice
        restore(lake, disk)                    what a crash has cut in two
        staged = staged_for(lake, folder, disk)
        …                                      files are written there
        replace(lake, folder, going, disk)

A listing shows the old files or the new ones, never both (`LakeDisk.exchange`).  A reader
that has listed the old ones and opens them later finds them gone, and lists again.
Files that a crash leaves are either not yet in place or no longer in use.

Rows that go to another table change names file by file (`move`): a reader may miss one for
a moment, and sees none twice.
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

from gateway.sdk.arrow import footer_of, schema_of
from gateway.spark.commit.lakedisk import LakeDisk, sync
from gateway.spark.commit.ledger import write_json
from gateway.spark.commit.parquet import give_names, publishing
from gateway.store.readers.complete import requeued_days, requeued_path
from gateway.store.readers.lake import INTERNAL
from gateway.store.system.lock import Lock, lock
from gateway.tables import ZSTD_LEVEL


class Busy(Exception):
    """Something else must be finished first; the text says what."""


class Replaced(NamedTuple):
    """How many files a folder had, and has."""

    before: int
    after: int


@contextmanager
def alone(lake: Path) -> Iterator[None]:
    """Hold the lock for making new files of old ones, or those rows would be there twice.

    Raises `Busy` if another process has it.
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
def requeued(lake: Path, disk: LakeDisk) -> Iterator[list[int]]:
    """Give the days of which rows have left quarantine; behind it they are forgotten.

    Raises `Busy` while others rewrite files, OSError.
    """
    days = requeued_days(lake)
    with alone(lake) if days else contextlib.nullcontext():
        if days:
            restore(lake, disk)
            days = requeued_days(lake)
        yield days
        for day in days:
            disk.unlink(requeued_path(lake, day))


@contextmanager
def not_requeued(lake: Path) -> Iterator[list[int]]:
    """Give the days of which rows leave quarantine; meanwhile those of no other one begin to."""
    with publishing(lake):
        yield requeued_days(lake)


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


def staging_of_moves(lake: Path) -> Path:
    """The folder of files that `move` gives their names."""
    return lake / INTERNAL / "staging" / "requeue" / "0"


def staged_for(lake: Path, folder: Path, disk: LakeDisk) -> Path:
    """An empty folder for what is to take the place of *folder*.  Raises OSError."""
    staged = _staging(lake) / folder.relative_to(lake)
    disk.remove_tree(staged)
    disk.make_directory(staged)
    return staged


def forget(lake: Path, folder: Path, disk: LakeDisk) -> None:
    """Remove what was staged for *folder*, or had its place before.  Raises OSError."""
    disk.remove_tree(_staging(lake) / folder.relative_to(lake))


def finish(lake: Path, disk: LakeDisk) -> None:
    """Do what a crash has left half done, unless another process is at it now.

    Raises `Broken`, OSError.
    """
    if any(one.exists() for one in (_staging(lake), staging_of_moves(lake))):
        with contextlib.suppress(Busy), alone(lake):
            _put_back(lake, disk)


def restore(lake: Path, disk: LakeDisk) -> None:
    """Do the same where `alone` is held; nothing is staged after it."""
    _put_back(lake, disk)
    disk.remove_tree(_staging(lake))


def _put_back(lake: Path, disk: LakeDisk) -> None:
    """Finish moves that a crash has cut off, and undo a swap that it has cut in two, where a
    swap takes two steps.
    """
    _finish_moves(lake, disk)
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
    lake: Path, folder: Path, going: Collection[Path], disk: LakeDisk
) -> Replaced | None:
    """Let what is staged for *folder*, made of the files *going*, take its place; where
    nothing is left, the folder goes.

    Other files that are in *folder* by now, as of batches that came late, stay.  None, and
    nothing is done: some of *going* are gone.  Raises `Busy`, OSError.
    """
    staged = _staging(lake) / folder.relative_to(lake)
    disk.make_directory(staged)
    # A job that starts looks for the newest rows in the newest files.
    newest = max((path.stat().st_mtime for path in going if path.exists()), default=0.0)
    for path in visible(staged):
        disk.set_times(path, newest)
        sync(disk, path)
    with _settled(lake, folder, going) as now:
        if now is None:
            return None
        for path in set(now).difference(going):
            disk.link(path, staged / path.name)
        disk.sync_directory(staged)
        if after := len(visible(staged)):
            disk.exchange(staged, folder)
        else:
            disk.rename(folder, staged)
        disk.sync_directory(folder.parent)
        disk.sync_directory(staged.parent)
    return Replaced(len(now), after)


def move(
    lake: Path,
    folder: Path,
    going: Collection[Path],
    moves: Sequence[tuple[str, str]],
    disk: LakeDisk,
) -> Replaced | None:
    """Let files of `staging_of_moves`, made of the files *going*, have their names in any
    folder; the same as `replace` otherwise.
    """
    with _settled(lake, folder, going) as now:
        if now is None:
            return None
        remove = [str(path.relative_to(lake)) for path in going]
        manifest = {"remove": remove, "moves": moves}
        write_json(disk, staging_of_moves(lake) / "manifest", manifest)
    _finish_moves(lake, disk)
    return Replaced(len(now), len(visible(folder)))


@contextmanager
def _settled(
    lake: Path, folder: Path, going: Collection[Path]
) -> Iterator[list[Path] | None]:
    """Hold names below the tables; the files of *folder* now, or None if it lacks some of
    *going*.
    """
    with publishing(lake):
        check_settled(lake, folder, going)
        now = visible(folder)
        yield now if going and set(going).issubset(now) else None


def _finish_moves(lake: Path, disk: LakeDisk) -> None:
    """Do what is decided to be moved, if anything is; may be done again."""
    staged = staging_of_moves(lake)
    if disk.exists(staged / "manifest"):
        wanted = json.loads(disk.read(staged / "manifest"))
        give_names(lake, disk, staged, wanted["moves"], wanted["remove"])
        disk.remove_tree(staged)


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
    """Check that no batch under way counts on the names of these files.

    One that a crash has cut in two does, too, and rows that are put through again count on
    those that they come from.
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
    """Files that readers see, by name: the oldest first."""
    return sorted(path for path in folder.glob("*.parquet") if path.name[0] not in "._")


def folders(lake: Path, tables: Iterable[str], day: str = "*") -> list[Path]:
    """The folders of all days of these tables, or of one."""
    return [
        folder
        for table in tables
        for folder in sorted((lake / table).glob(f"protocol=*/date={day}"))
    ]


def files_of(lake: Path, *tables: str) -> list[Path]:
    """The files of all their days that readers see."""
    return [path for folder in folders(lake, tables) for path in visible(folder)]


def by_columns(files: Iterable[Path]) -> list[list[Path]]:
    """The files in groups that have the same columns."""
    groups: dict[tuple[tuple[str, str], ...], list[Path]] = {}
    for path in files:
        columns = sorted((one.name, str(one.type)) for one in schema_of(path))
        groups.setdefault(tuple(columns), []).append(path)
    return list(groups.values())


def start_of_name(files: Sequence[Path]) -> str:
    """The start of the name of a file made of *files*.

    Like the newest of them, so that readers of whole batches take it for one of those.
    """
    return files[-1].name[: len("part-0123456789")]


def has_variant(schema: pa.Schema) -> bool:
    """Whether pyarrow would write a column of it back as a plain struct."""
    return any(
        name in schema.names and pa.types.is_struct(schema.field(name).type)
        for name in ("body", "body_variant")
    )


def writer(path: Path, schema: pa.Schema, like: Path) -> pq.ParquetWriter:
    """The writer of a new file of a table, with the compression of the file *like*."""
    texts = ("body", "payload")  # long ones, each another one
    kind = compression(footer_of(like))
    return pq.ParquetWriter(
        path,
        schema,
        compression=kind,
        compression_level=ZSTD_LEVEL if kind == "zstd" else None,
        use_dictionary=[name for name in schema.names if name not in texts],
        write_page_checksum=True,
    )


def compression(metadata: pq.FileMetaData) -> str:
    """The compression of a file, as pyarrow and the configuration name it; zstd for one that
    pyarrow does not write.
    """
    if not metadata.num_row_groups:
        return "zstd"
    kind: str = metadata.row_group(0).column(0).compression.lower()
    # Hadoop's LZ4, which is `lz4` of Spark, is unknown; `lz4` of pyarrow is Spark's `lz4_raw`.
    return {"uncompressed": "none", "unknown": "zstd"}.get(kind, kind)
