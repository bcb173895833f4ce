"""Prepares the demo of edges: directory, certificates, and a configuration for each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gateway_demo.setup import Traffic, empty
from gateway_testkit.certificates import Authority
from gateway_testkit.daemon import free_port

__all__ = ["EDGES", "Node", "Setup", "prepare"]

EDGES = ("shop-17", "shop-18")

_HEAD = "# Written by `gateway demo --edge`; conf/gateway.yaml explains all keys.\n"
_TRAFFIC = (("Beats", "beats", "lumberjack"), ("Streams", "meters", "rsio"))


@dataclass(frozen=True, slots=True)
class Node:
    """A gateway."""

    name: str
    config: Path
    data: Path
    admin: str
    """Address of its admin port."""
    addresses: Mapping[str, str]
    """Of its listeners, by name."""
    line: int
    """The port where its line to the hub begins; 0: it is the hub."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A prepared demo."""

    directory: Path
    hub: Node
    edges: Sequence[Node]
    traffic: Sequence[tuple[str, Traffic]]
    """What is sent, and to which edge."""

    @property
    def port(self) -> int:
        """Where lines end."""
        return int(self.hub.addresses["edges"].rpartition(":")[2])


def prepare(directory: Path) -> Setup:
    """Set up a demo in *directory*; an earlier demo there is deleted.

    Raises `demo.setup.NotADemo`, OSError.
    """
    empty(directory)
    authority = Authority(directory, "ca")
    authority.issue("localhost", "hub")
    traffic = [
        (name, Traffic(f"{title} to {name}", listener, protocol, ()))
        for name in EDGES
        for title, listener, protocol in _TRAFFIC
    ]
    edges = [_edge(directory, name) for name in EDGES]
    return Setup(directory, _hub(directory), edges, traffic)


def _hub(directory: Path) -> Node:
    listener = {
        "name": "edges",
        "protocol": "forward",
        "tls": {"certificate": "hub.pem", "private_key": "hub.key"},
        "options": {"tokens": {name: f"token-of-{name}" for name in EDGES}},
    }
    return _written(directory, "hub", [listener], {})


def _edge(directory: Path, name: str) -> Node:
    """It needs no Spark."""
    listeners: list[dict[str, Any]] = [
        {"name": listener, "protocol": protocol} for _, listener, protocol in _TRAFFIC
    ]
    line = free_port()
    more = {
        "spool": {"after": "forward", "roll_interval": "500ms"},
        "forward": {
            "to": f"tls://localhost:{line}",
            "ca": "ca.pem",
            "token": f"token-of-{name}",
        },
    }
    return _written(directory, name, listeners, more, line)


def _written(
    directory: Path,
    name: str,
    listeners: Sequence[dict[str, Any]],
    more: Mapping[str, Any],
    line: int = 0,
) -> Node:
    addresses = {one["name"]: f"127.0.0.1:{free_port()}" for one in listeners}
    admin = f"127.0.0.1:{free_port()}"
    config = directory / f"{name}.yaml"
    content = {
        "node": name,
        "data_dir": name,
        "listeners": [
            {**one, "listen": f"tcp:{addresses[one['name']]}"} for one in listeners
        ],
        "admin": {"listen": f"tcp:{admin}", "trust_loopback": True},
        **more,
    }
    config.write_text(_HEAD + yaml.safe_dump(content, sort_keys=False))
    return Node(name, config, directory / name, admin, addresses, line)
