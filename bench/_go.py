"""Peers in Go: built from a folder here, where Go and its modules are at hand."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from _report import Lacking

__all__ = ["built"]

_BUILD_SECONDS = 900.0


def built(folder: str) -> Path:
    """The program, in the user's cache directory.  Raises Lacking."""
    if shutil.which("go") is None:
        raise Lacking("go is not on the PATH")
    sources = Path(__file__).with_name(folder)
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    of = hashlib.sha256(
        b"".join(each.read_bytes() for each in sorted(sources.iterdir()))
    ).hexdigest()
    program = cache / "gateway-bench" / f"{folder.strip('_')}-{of[:12]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        try:
            done = subprocess.run(
                ["go", "build", "-o", str(program), "."],
                cwd=sources,
                env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
                capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Lacking(f"go build did not end in {_BUILD_SECONDS:g} s") from None
        if done.returncode:
            raise Lacking(f"go build: {done.stderr[-300:].strip()}")
    return program
