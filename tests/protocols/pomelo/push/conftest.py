"""What the tests of pushes share: an outbox directory, and a way to fill it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.protocols.pomelo.push.folder import Folder
from gateway.protocols.pomelo.push.pushed import PushedNames
from gateway.sdk.disk import Disk
from gateway.store.system.disk import RealDisk
from making import Make

DAY = 86_400.0


@pytest.fixture
def open_folder(tmp_path) -> Make[Folder]:
    """Opens the outbox directory, as a start of the daemon does."""

    def opened(
        disk: Disk | None = None, retention: float = 0.0, remember: float = DAY
    ) -> Folder:
        path, disk = tmp_path / "outbox", disk or RealDisk()
        pushed = PushedNames(path / ".pushed", remember, 1000, disk, time.time)
        found = Folder(path, pushed, disk, retention=retention, file_bytes=1 << 16)
        found.prepare()
        return found

    return opened


@pytest.fixture
def folder(open_folder) -> Folder:
    """An empty one that keeps nothing."""
    return open_folder()


@pytest.fixture
def put(tmp_path, folder) -> Callable[[str, bytes], Path]:
    """Write a file into it."""

    def write(name: str, content: bytes) -> Path:
        path = tmp_path / "outbox" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return write
