"""The npm package `pomelo` as an echo server, where Node and npm are at hand."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Self

from _daemon import Usage, usage
from _report import Broken, Lacking

__all__ = ["VERSION", "Echo", "Service", "installed"]

VERSION = "2.2.7"
_INSTALL_SECONDS = 180.0


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

    def __init__(
        self, home: Path, modules: Path, heartbeat: int, service: int | None = None
    ) -> None:
        """*service* is the port of a `Service`, which its handler asks."""
        self.home = home
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        program = Path(__file__).with_suffix(".js")
        words = [home, port, heartbeat, *([] if service is None else [service])]
        self._command = ["node", str(program), *map(str, words)]
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


class Service:
    """A game's service in Node, for the gateway and for pomelo's handler."""

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            ["node", str(Path(__file__).with_name("_pomelo_service.js"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def cpu(self) -> float:
        """Seconds, so far."""
        return usage(self.process.pid).cpu
