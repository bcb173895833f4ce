"""The child processes of two edges and a hub, and the lines between them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from gateway_demo import tables
from gateway_demo.edge.line import Line
from gateway_demo.edge.setup import Node, Setup
from gateway_demo.processes import Demo, Gateway, Process, Sender, says, status_of
from gateway_demo.processes import wait_for as wait

__all__ = ["Processes"]

_JOB_SECONDS = 240.0


class Processes(Demo):
    """All processes of one demo."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.setup = setup
        self.gateways: dict[str, Gateway] = {}
        self.lines: dict[str, Line] = {}
        self.job: Process | None = None
        self.killed: set[str] = set()
        """Names of edges that are not back."""

    def start(self) -> None:
        """Start lines, hub, edges and job, and wait until they are ready."""
        setup = self.setup
        for node in (setup.hub, *setup.edges):
            self.start_gateway(node)
        for edge in setup.edges:
            self.lines[edge.name] = Line(edge.line, setup.port)
        self.job = Process(
            "the Spark job",
            [
                sys.executable, "-m", "gateway.cli", "spark",
                "--config", str(setup.hub.config), "--json",
            ],
            setup.directory / "spark.log",
        )  # fmt: skip
        wait(says(self.job, '"running"'), self.job, _JOB_SECONDS)

    def start_gateway(self, node: Node) -> None:
        """Start it and wait until it takes events."""
        gateway = Gateway(node.name, node.config, node.admin)
        self.gateways[node.name] = gateway
        self.killed.discard(node.name)
        gateway.ready()

    def kill(self, node: Node) -> None:
        """By SIGKILL."""
        self.killed.add(node.name)
        self.gateways[node.name].kill()

    def start_senders(self, events: int, rate: int) -> None:
        """Start all; *events* of each, *rate* a second."""
        addresses = {edge.name: edge.addresses for edge in self.setup.edges}
        self.senders = [
            Sender(
                traffic,
                addresses[name][traffic.listener],
                self.setup.directory,
                events,
                rate,
            )
            for name, traffic in self.setup.traffic
        ]

    def status(self, node: Node) -> Mapping[str, Any]:
        """The answer of its `/api/status`.  Raises OSError."""
        return status_of(node.admin)

    def in_tables(self) -> Mapping[str, int]:
        """How many events of each edge are in the tables, as the job says."""
        return tables.events_by_node(self.setup.hub.data / "lake")

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """See `Demo`."""
        try:
            with super().running():
                yield self
        finally:
            for line in self.lines.values():
                line.close()

    def _needed(self) -> Sequence[Process | None]:
        return [one for one in self._all() if one and one.name not in self.killed]

    def _all(self) -> Sequence[Process | None]:
        return (*reversed(self.gateways.values()), self.job)
