"""The operating system behind the door: files, small states, and a directory's lock."""

import errno
import os
import threading
from pathlib import Path

import msgspec
import pytest

from gateway.store.system import disk
from gateway.store.system import lock as module
from gateway.store.system.disk import RealDisk, read_patiently
from gateway.store.system.lock import lock, wait_for
from gateway.store.system.statefile import StateFile


def test_rewriting_changes_nothing_and_appending_goes_on(tmp_path):
    """The first bytes written again stay as they were, and so does the end."""
    disk = RealDisk()
    path = tmp_path / "file"
    disk.create(path).write([b"good", b"tail"])
    file = disk.open(path)
    file.truncate(4)
    file.rewrite(b"good")
    file.sync()
    file.write([b"more", b"", b"!"])
    file.close()
    file.close()
    assert disk.read(path) == b"goodmore!"


def test_a_file_that_is_dropped_is_closed(tmp_path):
    """As by a failure between its opening and its closing."""
    before = len([*Path("/proc/self/fd").iterdir()])
    RealDisk().create(tmp_path / "file").write([b"good"])
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_write_of_many_pieces_arrives_whole(tmp_path, monkeypatch):
    """More pieces than one call takes, and calls that write a part, lose nothing."""
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, parts: real(fd, [parts[0][:3]]))
    disk = RealDisk()
    pieces = [b"%d," % n for n in range(3000)]
    disk.create(tmp_path / "file").write(pieces)
    assert disk.read(tmp_path / "file") == b"".join(pieces)


@pytest.mark.parametrize("how", ["write", "rewrite"])
def test_a_write_that_fails_names_its_file(how):
    """As opening it does: who reads of a full disk looks there."""
    file = RealDisk().overwrite(Path("/dev/full"))
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        file.write([b"a"]) if how == "write" else file.rewrite(b"a")


def test_an_unreadable_sector_is_zeros(tmp_path, monkeypatch):
    """All around it is read; another failure than EIO is none of this."""
    path = tmp_path / "file"
    content = bytes(range(1, 256)) * 100
    path.write_bytes(content)
    bad, real, number = 8192, os.pread, errno.EIO

    def pread(fd: int, length: int, at: int) -> bytes:
        if at <= bad < at + length:
            raise OSError(number, os.strerror(number))
        return real(fd, length, at)

    monkeypatch.setattr(os, "pread", pread)
    expected = content[:8192] + bytes(4096) + content[8192 + 4096 :]
    assert RealDisk().read_around(path) == expected
    number = errno.EACCES
    with pytest.raises(PermissionError):
        RealDisk().read_around(path)


@pytest.mark.parametrize("times", [0, 2, 9])
def test_what_can_not_be_read_is_tried_again(tmp_path, monkeypatch, times):
    """A path that fails over answers a little later; only then it is given up."""
    path = tmp_path / "file"
    path.write_bytes(b"content")
    left = times

    def fail(path: Path) -> bytes:
        nonlocal left
        if left := left - 1 if left else 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return b"content"

    monkeypatch.setattr(disk.time, "sleep", lambda _: None)
    monkeypatch.setattr(Path, "read_bytes", fail)
    assert read_patiently(RealDisk(), path) == (b"content", times < 9)


def test_a_directory_that_a_killed_run_made_is_made_durable(tmp_path, monkeypatch):
    """It may have been killed before it had synced the directory's parent."""
    synced: list[Path] = []
    disk = RealDisk()
    monkeypatch.setattr(disk, "sync_directory", synced.append)
    disk.make_directory(tmp_path / "a" / "b")
    assert synced == [tmp_path, tmp_path / "a"]
    synced.clear()
    disk.make_directory(tmp_path / "a" / "b")
    assert synced == [tmp_path / "a"]


@pytest.fixture
def synced(monkeypatch) -> list[int]:
    """Inodes that the operating system was asked to sync."""
    inodes: list[int] = []
    for name in ("fdatasync", "fsync"):
        monkeypatch.setattr(os, name, lambda fd: inodes.append(os.fstat(fd).st_ino))
    return inodes


def test_a_sync_is_a_call_to_the_operating_system(tmp_path, synced):
    """Of that file, or that directory, when it is asked for and not before."""
    disk = RealDisk()
    path = tmp_path / "file"
    file = disk.create(path)
    file.write([b"content"])
    assert synced == []
    file.sync()
    assert synced == [path.stat().st_ino]
    disk.sync_directory(tmp_path)
    assert synced == [path.stat().st_ino, tmp_path.stat().st_ino]


def test_a_directory_is_made_durably(tmp_path, synced):
    """Each new name is in a directory that was synced."""
    RealDisk().make_directory(tmp_path / "a" / "b")
    assert synced == [tmp_path.stat().st_ino, (tmp_path / "a").stat().st_ino]


def test_a_file_that_will_be_read_is_fetched(tmp_path):
    """All of it, in pieces that a device reads at once; its size is told, not its faults."""
    path = tmp_path / "a"
    path.write_bytes(bytes(300_000))
    asked: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            os, "posix_fadvise", lambda _, at, size, what: asked.append((at, size))
        )
        assert RealDisk().fetch(path) == 300_000
    ends = [at + size for at, size in asked]
    assert [at for at, _ in asked] == [0, *ends[:-1]]
    assert ends[-1] >= 300_000
    assert max(size for _, size in asked) <= 128 << 10
    assert RealDisk().fetch(path) == 300_000
    assert RealDisk().fetch(tmp_path / "missing") == 0
    assert RealDisk().fetch(tmp_path) == 0


def test_a_system_that_fetches_nothing_is_let_be(tmp_path, monkeypatch):
    """macOS has no such call, and not each file system has it."""
    path = tmp_path / "a"
    path.write_bytes(b"12345")

    def fails(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "posix_fadvise", fails)
    assert RealDisk().fetch(path) == 0
    monkeypatch.delattr(os, "posix_fadvise")
    assert RealDisk().fetch(path) == 5


def test_nobody_has_it(tmp_path):
    """There is nothing to wait for, also before the first start."""
    assert wait_for(tmp_path / "new", 0.0)
    assert wait_for(tmp_path, 0.0)


def test_it_is_given_up_after_a_while(tmp_path):
    """Whoever waits no longer is told by `lock` who has it."""
    held = lock(tmp_path / "lock", "gateway gw")
    assert not wait_for(tmp_path, 0.0)
    held.release()
    assert wait_for(tmp_path, 0.0)


def test_it_becomes_free(tmp_path):
    """Then the wait is over."""
    held = lock(tmp_path / "lock", "gateway gw")
    looked = threading.Event()
    found: list[bool] = []

    def wait() -> None:
        looked.set()
        found.append(wait_for(tmp_path, 600.0))

    thread = threading.Thread(target=wait)
    thread.start()
    looked.wait()
    held.release()
    thread.join()
    assert found == [True]
    lock(tmp_path / "lock", "the next").release()
    assert module.is_locked(tmp_path) is False


class Far(msgspec.Struct, frozen=True):
    """How far something is."""

    lsn: int = 0


def test_what_is_written_is_read(tmp_path):
    """In one file, whose hidden name is gone."""
    file = StateFile(tmp_path / "far", Far, RealDisk())
    assert file.read() == (None, None)
    for lsn in (1, 2):
        file.write(Far(lsn))
        assert StateFile(tmp_path / "far", Far, RealDisk()).read() == (Far(lsn), None)
    assert [path.name for path in tmp_path.iterdir()] == ["far"]


def test_damage_is_told_and_says_nothing(tmp_path):
    """Of a file that is cut, or whose bits have changed; what is written anew is fine."""
    file = StateFile(tmp_path / "far", Far, RealDisk())
    file.write(Far(7))
    whole = file.path.read_bytes()
    for at in range(len(whole) - 1):
        file.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert file.read()[0] is None, at
    for size in range(len(whole) - 1):
        file.path.write_bytes(whole[:size])
        found, told = file.read()
        assert found is None
        assert str(file.path) in str(told)
    file.write(Far(8))
    assert file.read() == (Far(8), None)
