"""Looks at the data directory: can it be written, is it sound, is it large enough?

The file system is really asked: a temporary file is written, synced, renamed and locked in
the data directory, and removed.  Whether a sync survives a power cut, only that tells.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gateway.config import Config
from gateway.doctor.look import Look, fail, ok, warn
from gateway.spoken import milliseconds, size
from gateway.store.directories import Directories
from gateway.store.journal.spares import is_spare
from gateway.store.system.disk import NO_ROOM

SLOW_SECONDS = 0.1
"""A sync that takes longer is told: each acknowledgement waits for one."""

_SYNCS = 8
_BLOCK = 4096
_PREFIX = ".gateway-doctor-"


def examine(config: Config) -> Iterator[Look]:
    if wrong := [*_links(config), *_misplaced(config)]:
        yield from wrong
        return
    root = config.data_dir
    there = _nearest(root)
    yield from _writable(root, there)
    if not os.access(there, os.W_OK | os.X_OK):
        return
    yield from _file_system(there)
    yield from _together(config)
    yield from _room(config, there)


def _links(config: Config) -> Iterator[Look]:
    """Links that lead nowhere: a disk is not mounted, as a rule."""
    places = Directories.of(config)
    kept = (places.journal, places.spool, places.archive, places.state, places.retained)
    every = [path for place in kept for path in (place, *place.parents)]
    for path in sorted(set(every)):
        if path.is_symlink() and not path.exists():
            detail = f"{path} is a link to {path.readlink()}, and nothing is there"
            yield fail("data directory", detail, "mount it, or make that directory")


def _misplaced(config: Config) -> Iterator[Look]:
    """Files where directories of ours belong, and a directory where the lock does."""
    places, node = Directories.of(config), config.node
    folders = (
        *(places.journal_of(node), places.state_of(node), places.spool, places.archive),
        *(places.retained, places.arrivals, places.lake),
    )
    every = {one for folder in folders for one in (folder, folder.parent)}
    for path in sorted(every - {places.root}):
        if path.exists() and not path.is_dir():
            yield fail("data directory", f"{path} is no directory", "move it away")
    if (lock := places.root / "lock").is_dir():
        yield fail("data directory", f"{lock} is a directory", "move it away")


def _nearest(path: Path) -> Path:
    """The directory itself, or what it would be made in."""
    return next(one for one in (path, *path.parents) if one.exists())


def _writable(root: Path, there: Path) -> Iterator[Look]:
    what = "data directory"
    user = f"user {os.geteuid()}"
    if not there.is_dir():
        yield fail(what, f"{there} is no directory", "set data_dir to one")
    elif os.statvfs(there).f_flag & os.ST_RDONLY:
        advice = "mount it for writing; if the system did this, dmesg says why"
        yield fail(what, f"{there} is mounted read-only", advice)
    elif not os.access(there, os.W_OK | os.X_OK):
        advice = (
            f"chown it to the user of the daemon, or run this as that user ({user})"
        )
        yield fail(what, f"{there} can not be written by {user}", advice)
    elif there != root:
        yield ok(what, f"{root} is not there yet, and can be made in {there}")
    else:
        yield from _all_writable(root, user)


def _all_writable(root: Path, user: str) -> Iterator[Look]:
    """One level below, too: a start by another user leaves such directories."""
    shut = [
        str(one)
        for one in sorted(root.iterdir())
        if one.is_dir() and not os.access(one, os.R_OK | os.W_OK | os.X_OK)
    ]
    if shut:
        advice = "chown them to the user of the daemon"
        named = ", ".join(shut)
        yield fail("data directory", f"{user} can not write {named}", advice)
    else:
        yield ok("data directory", f"{root} can be written")


# -- what the file system does ---------------------------------------------------------


def _file_system(there: Path) -> Iterator[Look]:
    path = there / f"{_PREFIX}{os.getpid()}"
    renamed = path.with_name(f"{path.name}-renamed")
    what = "file system"
    advice = "put data_dir on a local file system (ext4, xfs, btrfs, zfs)"
    try:
        seconds = _write(path)
        _rename(path, renamed)
        _lock(renamed)
        _cut(renamed)
        alone = _lock_directory(there)
    except _Unfit as why:
        yield fail(what, f"{there}: {why}", advice)
        return
    except OSError as why:
        text = why.strerror or str(why)
        full = "make room" if why.errno in NO_ROOM else advice
        yield fail(what, f"{there}: {text} ({why.filename or path.name})", full)
        return
    finally:
        for name in (path, renamed):
            with contextlib.suppress(OSError):
                name.unlink()
    yield ok(what, f"{there}: writes, syncs, renames, cuts and locks files")
    if not alone:
        yield warn(
            "locks",
            f"{there} itself can not be locked, as on NFS",
            "do not remove the file lock in it while a daemon runs",
        )
    yield _judge_sync(seconds)


class _Unfit(Exception):
    """The file system does not keep what we rely on; the text says how."""


def _write(path: Path) -> list[float]:
    """Appends and syncs some blocks; how long each sync took, in seconds."""
    seconds = []
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(_SYNCS):
            os.write(fd, b"x" * _BLOCK)
            begun = time.perf_counter()
            os.fdatasync(fd)
            seconds.append(time.perf_counter() - begun)
    finally:
        os.close(fd)
    return seconds


def _rename(path: Path, renamed: Path) -> None:
    """Rename in one step, and sync the directory."""
    path.rename(renamed)
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    names = [one.name for one in path.parent.iterdir()]
    if path.name in names or renamed.name not in names:
        raise _Unfit("a renamed file has not its new name alone")
    if renamed.stat().st_size != _SYNCS * _BLOCK:
        raise _Unfit("a renamed file has not what was written to it")


def _lock(path: Path) -> None:
    """Lock against a second descriptor."""
    with path.open("rb+") as one, path.open("rb+") as two:
        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        raise _Unfit("locks hold nobody off: two daemons could run on it")


def _cut(path: Path) -> None:
    """Truncate, as the journal does with what it could not write."""
    os.truncate(path, _BLOCK)
    if path.stat().st_size != _BLOCK:
        raise _Unfit("a file can not be cut")


def _lock_directory(path: Path) -> bool:
    """Whether a directory can be locked; another process may have this one."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as why:
        if why.errno == errno.EBADF:
            return False
        raise
    finally:
        os.close(fd)
    return True


def _judge_sync(seconds: list[float]) -> Look:
    usual, worst = sorted(seconds)[len(seconds) // 2], max(seconds)
    detail = f"fdatasync takes {milliseconds(usual)}, {milliseconds(worst)} at worst"
    if usual <= SLOW_SECONDS:
        return ok("sync time", detail)
    return warn(
        "sync time",
        f"{detail}; more than {SLOW_SECONDS * 1000:.0f} ms",
        "each acknowledgement waits for one: take a faster disk, or one that is not shared",
    )


# -- which must be together, and room ----------------------------------------------------


def _together(
    config: Config, device: Callable[[Path], int] = lambda path: path.stat().st_dev
) -> Iterator[Look]:
    """Files move from spool to archive, `poison/` and `retained/` by renaming."""
    places = Directories.of(config)
    found = {
        name: device(_nearest(path))
        for name, path in (
            ("spool", places.spool),
            ("archive", places.archive),
            ("poison", places.root / "poison"),
            ("retained", places.retained),
        )
    }
    if len(set(found.values())) == 1:
        yield ok("one file system", f"{', '.join(found)} are on one")
        return
    yield fail(
        "one file system",
        f"{', '.join(found)} are on different ones, and files can not move between them",
        f"mount {places.root} as a whole, nothing below it",
    )


def _room(config: Config, there: Path) -> Iterator[Look]:
    places = Directories.of(config)
    stat = os.statvfs(there)
    journal = places.journal_of(config.node)
    spare = _bytes(journal, is_spare)  # they go as soon as there is no other room
    free = stat.f_bavail * stat.f_frsize + spare
    waiting = _bytes(journal) - spare
    needed = 2 * config.journal.segment_bytes + waiting
    told = f"{size(free)} free"
    if free < needed:
        detail = f"{told}, and {size(needed)} are needed for the journal"
        advice = "make room: delete nothing in journal/, spool/ or state/"
        yield fail("room", detail, advice)
        return
    if stat.f_files and not stat.f_favail:
        yield fail(
            "room", f"{there} has no inodes left", "remove files elsewhere on it"
        )
        return
    limits = {"spool.max_bytes": config.spool.max_bytes - _bytes(places.spool)}
    if config.spool.archive_bytes is not None:
        left = config.spool.archive_bytes - _bytes(places.archive)
        limits["spool.archive_bytes"] = left
    wanted = needed + sum(max(0, left) for left in limits.values())
    if free >= wanted:
        yield ok("room", told)
        return
    yield warn(
        "room",
        f"{told}, and {' and '.join(limits)} would take {size(wanted)}",
        f"lower {' or '.join(limits)}, or senders are held back by a full disk first",
    )


def _bytes(directory: Path, which: Callable[[str], bool] = lambda name: True) -> int:
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat().st_size if which(entry.name) else 0
    return total
