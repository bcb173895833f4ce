"""The gateway's part of the user's cache: what another start would make again.

Its files are whole or not there, over a power cut too: Java believes what it maps.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_MOST_UNUSED_SECONDS = 30 * 86400.0
_MAKING = "making-"
_MOST_MAKING_SECONDS = 86400.0


def folder(environ: Mapping[str, str]) -> Path | None:
    """The folder, if there is one that can be written to."""
    home = environ.get("HOME")
    base = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    ours = Path(base) / "gateway"
    with contextlib.suppress(OSError):
        if base:
            ours.mkdir(parents=True, exist_ok=True)
            if os.access(ours, os.W_OK):
                return ours
    return None


def told_by(files: Iterable[Path]) -> str:
    """A text that is another one where one of the *files* is."""
    seen = [(one, one.stat()) for one in files]
    return "\n".join(f"{one} {at.st_size} {at.st_mtime_ns}" for one, at in seen)


@contextlib.contextmanager
def making(ours: Path) -> Iterator[Path]:
    """A new folder in *ours* for a file that is being made, which is gone at the end.

    One whose process was killed goes when the next is made, a day later.  Raises OSError.
    """
    for left in ours.glob(f"{_MAKING}*"):
        if _age(left) > _MOST_MAKING_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_MAKING, dir=ours) as folder:
        yield Path(folder)


def put(new: Path, path: Path) -> None:
    """Have the file *new*, which is of the same disk, whole as *path*.  Raises OSError."""
    with new.open("rb") as file:
        os.fsync(file.fileno())
    new.replace(path)


def used(path: Path) -> None:
    """Have the file *path* stay for another month."""
    with contextlib.suppress(OSError):
        os.utime(path)


def forget(ours: Path, names: str) -> None:
    """Remove files that were not used for a month; *names* is a pattern of their names."""
    for path in ours.glob(names):
        if _age(path) > _MOST_UNUSED_SECONDS:
            with contextlib.suppress(OSError):
                path.unlink()


def _age(path: Path) -> float:
    """Seconds since the last change of *path*; 0 if another process has removed it."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
