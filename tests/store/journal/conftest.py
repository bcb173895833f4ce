"""Batches to store, a reactor whose turns are the test's, and journals on it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.event import Batch, Origin
from gateway_testkit.reactor import QueuedReactor
from journals import Running
from making import Make


@pytest.fixture
def origin() -> Origin:
    return Origin("plain", "beats", "s-1", "127.0.0.1:9", "CN=a", {"tls": "TLSv1.3"})


@pytest.fixture
def make(origin) -> Make[Batch]:
    def make(body: bytes = b"x", count: int = 1, of: Origin = origin) -> Batch:
        return Batch(of, 1_763_700_000_000_000, count, body, len(body))

    return make


@pytest.fixture
def directory(tmp_path) -> Path:
    path = tmp_path / "journal"
    path.mkdir()
    return path


@pytest.fixture
def turns() -> QueuedReactor:
    return QueuedReactor()


@pytest.fixture
def start(directory, turns) -> Iterator[Make[Running]]:
    made: list[Running] = []

    def start(*, wait: bool = False, **settings: Any) -> Running:
        running = Running(directory, turns, **settings)
        made.append(running)
        if not wait:
            running.journal.start()
        return running

    yield start
    for running in made:
        if running.journal._thread.is_alive() and not running.journal._queues.stopping:
            running.stop()
