"""A `gateway run` that a benchmark has started: where it takes events, and waiting for it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from _report import Broken

__all__ = ["address", "wait"]

_PATIENCE_SECONDS, _LOOK_SECONDS = 600.0, 0.02


def address(home: Path) -> str:
    """HOST:PORT of its Lumberjack listener, by the configuration that it has written."""
    found = yaml.safe_load((home / "gateway.yaml").read_text())
    (listen,) = (
        one["listen"].removeprefix("tcp:")
        for one in found["listeners"]
        if one["protocol"] == "lumberjack"
    )
    return str(listen)


def wait(run: subprocess.Popen[bytes], log: Path, look: Callable[[], bool]) -> None:
    """Look until it is true.  Raises `Broken` with the log if *run* ends, or after ten minutes."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while not look():
        if run.poll() is not None or time.monotonic() > end:
            raise Broken(f"no row came:\n{log.read_text()}")
        time.sleep(_LOOK_SECONDS)
