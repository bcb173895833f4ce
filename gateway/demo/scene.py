"""What the demo needs before anything runs: a directory, certificates, a configuration."""

from __future__ import annotations

import datetime as dt
import ipaddress
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Occupied", "Scene", "Traffic", "prepare"]

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
    options: {{routes: [area.player.move]}}
admin: {{listen: "tcp:127.0.0.1:{admin}"}}
spark:
  stats_window: 5s
  stats_trigger: 5s
  watermark: 0s
"""


class Occupied(Exception):
    """The directory holds something that is not a demo's."""


@dataclass(frozen=True)
class Traffic:
    """One sender: what a user would type after `gateway send`."""

    title: str
    listener: str
    protocol: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Scene:
    """Where everything is."""

    directory: Path
    config: Path
    data: Path
    admin: str
    """Address of the admin port."""
    traffic: Sequence[Traffic]


def prepare(directory: Path) -> Scene:
    """Make a fresh one; an earlier demo's goes.  Raises `Occupied`, OSError."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / _MARK).exists():
            raise Occupied(
                f"{directory} is not empty and not a demo's; "
                "name another with --directory DIR"
            )
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _MARK).touch()
    _certify(directory)
    admin = _free_port()
    config = directory / "gateway.yaml"
    config.write_text(_CONFIG.format(admin=admin))
    return Scene(
        directory, config, directory / "data", f"127.0.0.1:{admin}", _traffic(directory)
    )


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
    )  # fmt: skip


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _certify(directory: Path) -> None:
    """A certificate authority and a server's certificate, both for a day."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    now = dt.datetime.now(dt.UTC)

    def builder(
        subject: str, public: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("gateway demo CA"))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
        )

    ca = (
        builder("gateway demo CA", ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    names = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    server = (
        builder("localhost", key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (directory / "ca.pem").write_bytes(ca.public_bytes(pem))
    (directory / "server.pem").write_bytes(server.public_bytes(pem))
    private = directory / "server.key"
    private.touch(mode=0o600)
    private.write_bytes(
        key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
