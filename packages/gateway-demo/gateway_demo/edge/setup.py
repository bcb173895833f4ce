"""Prepares the demo of edges: directory, certificates, and a configuration for each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway_demo.nodes import Node, make
from gateway_demo.setup import Traffic, empty
from gateway_testkit.certificates import Authority
from gateway_testkit.daemon import free_port

__all__ = ["EDGES", "Setup", "prepare"]

EDGES = ("shop-17", "shop-18")

_TRAFFIC = (("Beats", "beats", "lumberjack"), ("Streams", "meters", "rsio"))


@dataclass(frozen=True, slots=True)
class Setup:
    """A prepared demo."""

    directory: Path
    hub: Node
    edges: Sequence[Node]
    lines: Mapping[str, int]
    """The port where the line of each to the hub begins."""
    traffic: Sequence[tuple[str, Traffic]]
    """The traffic, each with the edge that gets it."""

    @property
    def port(self) -> int:
        """Where lines end."""
        return int(self.hub.addresses["edges"].rpartition(":")[2])


def prepare(directory: Path) -> Setup:
    """Set up a demo in *directory* in place of an earlier one.  Raises `NotADemo`, OSError."""
    empty(directory)
    authority = Authority(directory, "ca")
    authority.issue("localhost", "hub")
    traffic = [
        (name, Traffic(f"{title} to {name}", listener, protocol, ()))
        for name in EDGES
        for title, listener, protocol in _TRAFFIC
    ]
    lines = {name: free_port() for name in EDGES}
    edges = [_edge(directory, name, line) for name, line in lines.items()]
    return Setup(directory, _hub(directory), edges, lines, traffic)


def _hub(directory: Path) -> Node:
    listener = {
        "name": "edges",
        "protocol": "forward",
        "tls": {"certificate": "hub.pem", "private_key": "hub.key"},
        "options": {"tokens": {name: f"token-of-{name}" for name in EDGES}},
    }
    return make(directory, "hub", [listener], {})


def _edge(directory: Path, name: str, line: int) -> Node:
    listeners = [
        {"name": listener, "protocol": protocol} for _, listener, protocol in _TRAFFIC
    ]
    more = {
        "spool": {"after": "forward", "roll_interval": "500ms"},
        "forward": {
            "to": f"https://localhost:{line}",
            "ca": "ca.pem",
            "token": f"token-of-{name}",
        },
    }
    return make(directory, name, listeners, more)
