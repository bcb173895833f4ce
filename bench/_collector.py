"""The OpenTelemetry Collector: OTLP/HTTP in, a file of JSON lines out.

It answers when it has written to its buffer; nothing is synced.
"""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Self

from _daemon import Usage, end, spawn, usage
from _go import built
from _report import Broken

from gateway_testkit.daemon import free_port

__all__ = ["VERSION", "Collector"]

VERSION = "0.161.0"


class Collector:
    """A process of it, with its files below *home*.  Raises Lacking."""

    def __init__(self, home: Path) -> None:
        self._program = built("_collector")
        self._home, self.address = home, f"127.0.0.1:{free_port()}"

    def __enter__(self) -> Self:
        self._home.mkdir(parents=True)
        http = {"endpoint": self.address}
        config = self._home / "collector.yaml"
        log = self._home / "collector.log"
        config.write_text(
            json.dumps(
                {
                    "receivers": {"otlp": {"protocols": {"http": http}}},
                    "exporters": {"file": {"path": str(self._home / "logs.json")}},
                    "service": {
                        "telemetry": {"metrics": {"level": "none"}},
                        "pipelines": {"logs": {"receivers": ["otlp"], "exporters": ["file"]}},
                    },
                }
            )
        )  # fmt: skip
        words = [str(self._program), "--config", str(config)]
        self._process = spawn(words, log)
        host, _, port = self.address.rpartition(":")
        while self._process.poll() is None:
            try:
                socket.create_connection((host, int(port))).close()
            except OSError:
                time.sleep(0.05)
            else:
                return self
        raise Broken(f"the Collector ended:\n{log.read_text()[-1000:]}")

    def __exit__(self, *_: object) -> None:
        end(self._process)

    def usage(self) -> Usage:
        """Of its one process."""
        return usage(self._process.pid)
