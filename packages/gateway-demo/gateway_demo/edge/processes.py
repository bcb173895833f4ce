"""The child processes of two edges and a hub, and the lines between them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from gateway_demo import tables
from gateway_demo.edge.line import Line
from gateway_demo.edge.setup import Setup
from gateway_demo.nodes import Nodes
from gateway_demo.processes import Job, Process

__all__ = ["Processes"]

_JOB_SECONDS = 240.0


class Processes(Nodes):
    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.setup = setup
        self.lines: dict[str, Line] = {}
        self.job: Job | None = None

    def start(self) -> None:
        """Start lines, hub, edges and job, and wait until they are ready."""
        setup = self.setup
        for node in (setup.hub, *setup.edges):
            self.start_gateway(node)
        for edge in setup.edges:
            self.lines[edge.name] = Line(setup.lines[edge.name], setup.port)
        self.job = Job(setup.hub.config, setup.directory / "spark.log")
        self.job.wait_to_read(_JOB_SECONDS)

    def start_senders(self, events: int, rate: int) -> None:
        """Start all; *events* of each, *rate* a second."""
        setup = self.setup
        self.send(setup.traffic, setup.edges, setup.directory, events, rate)

    def in_tables(self) -> Mapping[str, int]:
        """How many events of each edge are in the tables, as the job says."""
        return tables.events_by_node(self.setup.hub.data / "lake")

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        try:
            with super().running():
                yield self
        finally:
            for line in self.lines.values():
                line.close()

    def _needed(self) -> Sequence[Process | None]:
        return [one for one in self._all() if one and one.name not in self.away]

    def _all(self) -> Sequence[Process | None]:
        return (*reversed(self.gateways.values()), self.job)
