"""The doctor looks at the data directory, its file system and the room in it."""

import errno
import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.doctor import directories
from gateway.doctor.directories import examine
from incarnations import segment_name

from .conftest import states, the


@pytest.fixture
def data(tmp_path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def test_a_good_directory(make, data):
    """All is well, and the temporary file is gone."""
    found = list(examine(make(spool="{max_bytes: 1GiB}")))
    assert states(iter(found)) == {"ok"}
    assert list(data.iterdir()) == []
    assert len(found) == 5


def test_a_directory_that_can_be_made(make, tmp_path):
    """It is not made."""
    found = list(examine(make(data_dir=str(tmp_path / "a/b"))))
    assert the(found, "data directory").state == "ok"
    assert f"can be made in {tmp_path}" in the(found, "data directory").detail
    assert not (tmp_path / "a").exists()


def test_a_directory_that_can_not_be_written(make, data, monkeypatch):
    """Itself, or one in it; nothing is tried then."""
    config = make()
    monkeypatch.setattr(os, "access", lambda path, mode: path != data)
    [look] = examine(config)
    assert (look.state, look.what) == ("fail", "data directory")
    assert "chown" in look.advice
    (data / "spool").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != data / "spool")
    look = the(examine(config), "data directory")
    assert look.state == "fail"
    assert str(data / "spool") in look.detail


def test_a_disk_that_is_mounted_read_only(make, small_disk):
    """As a system does with one that fails: whose directory it is does not matter then."""
    place = small_disk.place
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    look = the(examine(make(data_dir=str(place))), "data directory")
    assert (look.state, look.detail) == ("fail", f"{place} is mounted read-only")
    assert "dmesg" in look.advice


@pytest.mark.parametrize("name", ["", "spool", "journal"])
def test_a_link_that_leads_nowhere(make, data, name):
    """A disk is not mounted: nothing is to be made in its place."""
    link = data / name
    if not name:
        data.rmdir()
    link.symlink_to("/nowhere/at/all")
    [look] = examine(make())
    assert (look.state, look.what) == ("fail", "data directory")
    assert f"{link} is a link to /nowhere/at/all" in look.detail
    assert "mount it" in look.advice


def test_a_file_in_its_place(make, tmp_path):
    config = make()
    (tmp_path / "data").write_text("")
    look = the(examine(config), "data directory")
    assert (look.state, look.advice) == ("fail", "set data_dir to one")


def refuse(number: int) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> Any:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("call", ["write", "fdatasync", "fsync", "truncate"])
def test_a_file_system_that_refuses_a_call(make, data, call, monkeypatch):
    """It says so, and what to do; nothing stays."""
    monkeypatch.setattr(os, call, refuse(errno.EINVAL))
    look = the(examine(make()), "file system")
    assert look.state == "fail"
    assert "Invalid argument" in look.detail
    assert "local file system" in look.advice
    assert list(data.iterdir()) == []


def test_a_full_file_system(make, data, monkeypatch):
    monkeypatch.setattr(os, "write", refuse(errno.ENOSPC))
    look = the(examine(make()), "file system")
    assert (look.state, look.advice) == ("fail", "make room")


def test_locks_that_hold_nobody_off(make, data, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda fd, operation: None)
    look = the(examine(make()), "file system")
    assert look.state == "fail"
    assert "two daemons" in look.detail


def test_a_rename_that_copies(make, data, monkeypatch):
    """The old name must be gone."""
    monkeypatch.setattr(Path, "rename", lambda self, to: to.write_bytes(b""))
    look = the(examine(make()), "file system")
    assert look.state == "fail"
    assert "renamed" in look.detail
    assert list(data.iterdir()) == []


def test_a_directory_that_can_not_be_locked(make, data, monkeypatch):
    """As on NFS."""
    real = fcntl.flock

    def flock(file: Any, operation: int) -> None:
        if isinstance(file, int):
            refuse(errno.EBADF)()
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    look = the(examine(make()), "locks")
    assert look.state == "warn"
    assert "do not remove the file lock" in look.advice


def test_a_slow_sync(make, data, monkeypatch):
    """Above 100 ms it is told, with the figure."""
    monkeypatch.setattr(directories, "_write", _wrote)
    look = the(examine(make()), "sync time")
    assert look.state == "warn"
    assert "130 ms, 300 ms at worst; more than 100 ms" in look.detail
    assert "disk" in look.advice


def _wrote(path: Path) -> list[float]:
    path.write_bytes(bytes(8 * 4096))
    return [0.3, 0.12, 0.11, 0.13]


def test_a_spool_on_another_file_system(make, data):
    """Files could not move to the archive."""
    devices = {"spool": 1}
    [look] = directories._together(make(), lambda path: devices.get(path.name, 2))
    assert look.state == "ok"
    (data / "spool").mkdir()
    [look] = directories._together(make(), lambda path: devices.get(path.name, 2))
    assert look.state == "fail"
    assert f"mount {data} as a whole" in look.advice


@pytest.mark.parametrize(
    ("free", "inodes", "state", "word"),
    [
        (1 << 20, 9, "fail", "make room"),
        (1 << 31, 0, "fail", "remove files"),
        (1 << 31, 9, "warn", "lower spool.max_bytes or spool.archive_bytes"),
        (1 << 35, 9, "ok", ""),
    ],
)
def test_room(make, data, monkeypatch, free, inodes, state, word):
    """For the journal at least, and for all that the configuration allows."""
    real = os.statvfs(data)

    class Stat:
        f_bavail, f_frsize, f_files, f_favail = free, 1, real.f_files or 1, inodes
        f_flag = real.f_flag

    monkeypatch.setattr(os, "statvfs", lambda path: Stat())
    look = the(examine(make(spool="{archive_bytes: 1GiB}")), "room")
    assert look.state == state
    assert word in look.advice


@pytest.mark.parametrize(("suffix", "state"), [(".spare", "ok"), (".journal", "fail")])
def test_files_that_the_journal_writes_over_are_room(
    make, data, monkeypatch, suffix, state
):
    """They go as soon as there is no other; what has events does not."""
    config = make(
        journal="{segment_bytes: 1MiB}", spool="{max_bytes: 1MiB, roll_bytes: 1MiB}"
    )
    journal = data / "journal" / config.node
    journal.mkdir(parents=True)
    with (journal / segment_name(1)).with_suffix(suffix).open("w") as file:
        file.truncate(4 << 20)

    class Stat:
        f_bavail, f_frsize, f_files = 2 << 20, 1, 0

    monkeypatch.setattr(os, "statvfs", lambda path: Stat())
    [look] = directories._room(config, data)
    assert look.state == state


@pytest.mark.parametrize("name", ["spool", "journal/gw-1", "state", "lake"])
def test_a_file_where_a_directory_of_ours_belongs(make, data, name):
    """What keeps the daemon, or its job, from starting is told before that."""
    file = data / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    look = the(examine(make()), "data directory")
    assert (look.state, look.detail) == ("fail", f"{file} is no directory")


def test_a_directory_where_the_lock_belongs(make, data):
    """Nobody could take it."""
    (data / "lock").mkdir()
    look = the(examine(make()), "data directory")
    assert (look.state, look.detail) == ("fail", f"{data / 'lock'} is a directory")
