"""A small disk of a test's own, which is full and hangs as real ones do."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["SmallDisk", "small_disk"]

_BYTES = 96 * 2**20


class SmallDisk:
    """ext4 on a loop device, mounted at *place*."""

    def __init__(self, place: Path) -> None:
        self.place = place

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Somebody else has written until there was no more room."""
        ballast = self.place / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(2**16))
        yield
        ballast.unlink()

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """Whoever writes to it, or syncs, waits."""
        subprocess.run(["fsfreeze", "--freeze", self.place], check=True)
        try:
            yield
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", self.place], check=True)


@pytest.fixture
def small_disk(tmp_path) -> Iterator[SmallDisk]:
    """Empty; skipped where nobody may mount one."""
    tools = ("mkfs.ext4", "mount", "umount", "fsfreeze")
    if os.geteuid() or not all(map(shutil.which, tools)):
        pytest.skip(f"needs root, and {', '.join(tools)}")
    image, place = tmp_path / "disk.img", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(_BYTES)
    place.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    done = subprocess.run(
        ["mount", "-o", "loop", image, place],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"no right to mount a loop device: {done.stderr.strip()}")
    try:
        yield SmallDisk(place)
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
