"""go-lumber's own Lumberjack server, where Go and its modules are at hand.

Elastic's readers in Go are made of it.  It decodes each event, and stores nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Self

from _daemon import spawn
from _report import Broken, Lacking

__all__ = ["VERSION", "GoLumber", "built"]

VERSION = "0.2.0"
_BUILD_SECONDS = 300.0
_SOURCES = Path(__file__).with_name("_go_lumber")


def built() -> Path:
    """The program, in the user's cache directory.  Raises Lacking."""
    if shutil.which("go") is None:
        raise Lacking("go is not on the PATH")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    sources = b"".join(each.read_bytes() for each in sorted(_SOURCES.iterdir()))
    of = hashlib.sha256(sources).hexdigest()[:12]
    program = cache / "gateway-bench" / f"go-lumber-{VERSION}-{of}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        try:
            done = subprocess.run(
                ["go", "build", "-o", str(program), "."],
                cwd=_SOURCES,
                env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
                capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Lacking(f"go build did not end in {_BUILD_SECONDS:g} s") from None
        if done.returncode:
            raise Lacking(f"go build: {done.stderr[-300:].strip()}")
    return program


class GoLumber:
    """A process of it; *words* are its arguments."""

    def __init__(self, home: Path, program: Path, *words: object) -> None:
        self._log = home / "go-lumber.log"
        self._command = [str(program), *map(str, words)]

    def __enter__(self) -> Self:
        self._process = spawn(self._command, self._log)
        self.pid = self._process.pid
        try:
            self.address = f"127.0.0.1:{self._port()}"
        except BaseException:
            self.__exit__()
            raise
        return self

    def _port(self) -> int:
        while self._process.poll() is None:
            said, end, _ = self._log.read_text().rpartition("\n")
            for line in said.splitlines() if end else ():  # it logs its settings, too
                if line.isdigit():
                    return int(line)
            time.sleep(0.01)
        raise Broken(f"go-lumber's server ended:\n{self._log.read_text()[-1000:]}")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
