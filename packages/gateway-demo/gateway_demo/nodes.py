"""Several gateways of one demo: their configurations, their processes, and what sends to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gateway_demo.processes import Demo, Gateway, Sender, status_of
from gateway_demo.setup import Traffic
from gateway_testkit.daemon import free_port

__all__ = ["Node", "Nodes", "make", "write"]


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    config: Path
    data: Path
    """The node's disk."""
    admin: str
    """Address of its admin port."""
    addresses: Mapping[str, str]
    """Addresses of its listeners, by name; they stay when its machine is replaced."""


def make(
    directory: Path,
    name: str,
    listeners: Sequence[Mapping[str, Any]],
    more: Mapping[str, Any],
) -> Node:
    """One with these *listeners*, each at a free port, and *more* in its configuration."""
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
    write(config, content)
    return Node(name, config, directory / name, admin, addresses)


def write(path: Path, content: Mapping[str, Any]) -> None:
    """A configuration that users may look at."""
    head = "# Written by `gateway demo`; conf/gateway.yaml explains all keys.\n"
    path.write_text(head + yaml.safe_dump(dict(content), sort_keys=False))


class Nodes(Demo):
    """Processes of several gateways."""

    def __init__(self) -> None:
        super().__init__()
        self.gateways: dict[str, Gateway] = {}
        self.away: set[str] = set()
        """Names of processes that were killed on purpose, and are not back."""

    def start_gateway(self, node: Node) -> None:
        """Start it and wait until it takes events."""
        gateway = Gateway(node.name, node.config, node.admin)
        self.gateways[node.name] = gateway
        self.away.discard(node.name)
        gateway.ready()

    def kill(self, node: Node) -> None:
        """Kill it by SIGKILL."""
        self.away.add(node.name)
        self.gateways[node.name].kill()

    def status(self, node: Node) -> Mapping[str, Any]:
        """The answer of its `/api/status`.  Raises OSError."""
        return status_of(node.admin)

    def send(
        self,
        traffic: Sequence[tuple[str, Traffic]],
        nodes: Sequence[Node],
        directory: Path,
        events: int,
        rate: int,
        *,
        patience: float = 60.0,
    ) -> None:
        """Start all senders of this *traffic*, each to the node of that name; *events* of each,
        *rate* a second.
        """
        addresses = {node.name: node.addresses for node in nodes}
        self.senders = [
            Sender(
                one, addresses[name][one.listener], directory, events, rate,
                patience=patience,
            )
            for name, one in traffic
        ]  # fmt: skip
