"""go-lumber's own Lumberjack server.

Elastic's readers in Go are made of it.  It decodes each event, and stores nothing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Self

from _daemon import spawn
from _report import Broken

__all__ = ["VERSION", "GoLumber"]

VERSION = "0.2.0"


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
