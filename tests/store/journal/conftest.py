"""Batches to store, and a reactor whose turns are the test's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.event import Batch, Origin
from gateway.testing.reactor import QueuedReactor


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


@pytest.fixture
def turns() -> QueuedReactor:
    return QueuedReactor()
