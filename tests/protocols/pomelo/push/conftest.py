"""What the tests of pushes share: an outbox directory, and a way to fill it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.protocols.pomelo.push.folder import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty one that keeps nothing."""
    found = Folder(tmp_path / "outbox", 0.0, 1 << 16)
    found.prepare()
    return found


@pytest.fixture
def put(tmp_path: Path, folder: Folder) -> Callable[[str, bytes], Path]:
    """Write a file into it."""

    def write(name: str, content: bytes) -> Path:
        path = tmp_path / "outbox" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return path

    return write
