"""The operating system behind the door: what the doubles can not show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.store.disk import RealDisk


def test_rewriting_changes_nothing_and_appending_goes_on(tmp_path: Path) -> None:
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


def test_a_write_of_many_pieces_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More pieces than one call takes, and calls that write a part, lose nothing."""
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, parts: real(fd, [parts[0][:3]]))
    disk = RealDisk()
    pieces = [b"%d," % n for n in range(3000)]
    disk.create(tmp_path / "file").write(pieces)
    assert disk.read(tmp_path / "file") == b"".join(pieces)
