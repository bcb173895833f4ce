"""Batches to store, and a reactor whose turns are the test's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.event import Batch, Origin


@pytest.fixture
def origin() -> Origin:
    return Origin("plain", "beats", "s-1", "127.0.0.1:9", "CN=a", {"tls": "TLSv1.3"})


@pytest.fixture
def make(origin: Origin) -> Callable[..., Batch]:
    def make(body: bytes = b"x", count: int = 1, of: Origin = origin) -> Batch:
        return Batch(of, 1_763_700_000_000_000, count, body, len(body))

    return make


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "journal"
    path.mkdir()
    return path


class Turns:
    """`callFromThread` collects; the test runs the turns."""

    def __init__(self) -> None:
        import queue

        self.calls: queue.Queue[tuple[Any, tuple[Any, ...]]] = queue.Queue()

    def callFromThread(self, f: Callable[..., Any], *args: Any) -> None:
        self.calls.put((f, args))

    def run(self, until: Callable[[], bool]) -> None:
        """Run turns until the condition holds (the test's own time-out bounds it)."""
        while not until():
            f, args = self.calls.get(timeout=20)
            f(*args)


@pytest.fixture
def turns() -> Turns:
    return Turns()
