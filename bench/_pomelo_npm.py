"""The npm package `pomelo` as an echo server, where Node and npm are at hand."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Self

from _daemon import Usage, usage
from _report import Broken

__all__ = ["VERSION", "Echo", "Lacking", "installed"]

VERSION = "2.2.7"
_INSTALL_SECONDS = 180.0


class Lacking(Exception):
    """It can not be had here; str() says why."""


def installed() -> Path:
    """Its `node_modules`, in the user's cache directory.  Raises Lacking."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Lacking("node and npm are not on the PATH")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    home = cache / "gateway-bench" / f"pomelo-{VERSION}"
    if not (home / "complete").exists():
        home.mkdir(parents=True, exist_ok=True)
        words = "install --no-save --no-audit --no-fund --ignore-scripts --prefix"
        try:
            done = subprocess.run(
                [npm, *words.split(), str(home), f"pomelo@{VERSION}"],
                capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False,
                cwd=home,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Lacking(
                f"npm install did not end in {_INSTALL_SECONDS:g} s"
            ) from None
        if done.returncode:
            raise Lacking(f"npm install pomelo@{VERSION}: {done.stderr[-300:].strip()}")
        (home / "complete").touch()
    return home / "node_modules"


class Echo:
    """A process of it, with the calls that the benchmark makes of a `Gateway`."""

    def __init__(self, home: Path, modules: Path, heartbeat: int) -> None:
        self.home = home
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        program = Path(__file__).with_suffix(".js")
        self._command = ["node", str(program), str(home), str(port), str(heartbeat)]
        self._environment = {**os.environ, "NODE_PATH": str(modules)}

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        log = self.home / "log"
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                cwd=self.home,
                env=self._environment, start_new_session=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        if self.process.stdout.readline() != b"listening\n":
            self.__exit__()
            raise Broken(f"pomelo does not start:\n{log.read_text()[-1000:]}")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def usage(self) -> Usage:
        return usage(self.process.pid)
