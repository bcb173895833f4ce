"""Prepares a demo: its directory, certificates, configuration and list of senders."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway_testkit.certificates import Authority
from gateway_testkit.daemon import free_port

__all__ = ["NotADemo", "Setup", "Traffic", "empty", "prepare"]

_MARK = ".gateway-demo"

_CONFIG = """\
# Written by `gateway demo`; the same keys, explained, are in conf/gateway.yaml.
node: demo
data_dir: data
listeners:
  - name: beats
    protocol: lumberjack
    listen: tcp:127.0.0.1:0
  - name: beats-tls
    protocol: lumberjack
    listen: tcp:127.0.0.1:0
    tls: {{certificate: server.pem, private_key: server.key}}
  - name: beats-ws
    protocol: lumberjack
    listen: tcp:127.0.0.1:0
    websocket: {{path: /beats}}
  - name: game
    protocol: pomelo
    listen: tcp:127.0.0.1:0
    options:
      routes: [area.player.move, onScore]
      outbox: {{directory: outbox}}
      trust_uid: true
      session_events: false
  - name: sensors
    protocol: pravega
    listen: tcp:127.0.0.1:0
    options: {{content_type: application/json}}
  - name: meters
    protocol: rsio
    listen: tcp:127.0.0.1:0
    options: {{publish: [tap, events]}}
admin: {{listen: "tcp:127.0.0.1:{admin}", trust_loopback: true}}
spark:
  stats_window: 5s
"""


class NotADemo(Exception):
    """The directory holds files that no demo has made."""


@dataclass(frozen=True)
class Traffic:
    title: str
    listener: str
    """Name of the listener in the configuration."""
    protocol: str
    arguments: tuple[str, ...]
    """Options of `gateway send`."""


@dataclass(frozen=True)
class Setup:
    directory: Path
    """Certificates, configuration, and the logs of all processes."""
    config: Path
    data: Path
    """The gateway's `data_dir`."""
    admin: str
    """Address of the admin port."""
    traffic: Sequence[Traffic]


def prepare(directory: Path) -> Setup:
    """Set up a demo in *directory* in place of an earlier one.  Raises `NotADemo`, OSError."""
    empty(directory)
    Authority(directory, "ca").issue("localhost", "server")
    admin = free_port()
    config = directory / "gateway.yaml"
    config.write_text(_CONFIG.format(admin=admin))
    return Setup(
        directory, config, directory / "data", f"127.0.0.1:{admin}", _traffic(directory)
    )


def empty(directory: Path) -> None:
    """Make *directory* a new demo's, deleting an earlier demo.  Raises `NotADemo`, OSError."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / _MARK).exists():
            raise NotADemo(
                f"{directory} is not empty and not a demo's; "
                "name another with --directory DIR"
            )
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _MARK).touch()


def _traffic(directory: Path) -> Sequence[Traffic]:
    return (
        Traffic("Beats (v2)", "beats", "lumberjack", ("--connections", "2")),
        Traffic("logstash-forwarder (v1)", "beats", "lumberjack", ("--v1",)),
        Traffic(
            "Beats over TLS", "beats-tls", "lumberjack",
            ("--tls", "--ca", str(directory / "ca.pem")),
        ),
        Traffic(
            "Beats over WebSocket", "beats-ws", "lumberjack",
            ("--websocket", "/beats"),
        ),
        Traffic("Game clients (TCP)", "game", "pomelo", ("--connections", "20")),
        Traffic(
            "Game clients (WebSocket)", "game", "pomelo",
            ("--connections", "10", "--websocket", "/"),
        ),
        Traffic(
            "Pravega writers (seed)", "sensors", "pravega",
            ("--dialect", "seed", "--segment", "plant/hall-1/0.#epoch.0"),
        ),
        Traffic(
            "Pravega writers (v17)", "sensors", "pravega",
            ("--connections", "3", "--segment", "plant/hall-2/0.#epoch.0"),
        ),
        Traffic("Reactive streams", "meters", "rsio", ("--connections", "3")),
        Traffic("Reactive streams (packed)", "meters", "rsio", ("--packed", "192")),
    )  # fmt: skip
