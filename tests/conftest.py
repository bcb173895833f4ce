"""What all tests share: plugins, the order of tests, the log, certificates."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import globalLogPublisher

from gateway.store import finder
from gateway.testing.certificates import Authority, Pair

pytest_plugins = ["deadlines", "chromium", "daemons", "pravega_python", "quick_java"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones evenly among the others: workers share what lies together."""
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]
    between = len(quick) // max(len(slow), 1)
    items[:] = [
        item
        for number, one in enumerate(slow)
        for item in (one, *quick[number * between : (number + 1) * between])
    ] + quick[len(slow) * between :]


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the collector need not look at them."""
    gc.freeze()


@pytest.fixture
def logged() -> Iterator[list[dict[str, Any]]]:
    """Every event that is logged meanwhile."""
    events: list[dict[str, Any]] = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)


@pytest.fixture
def ambush(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What is put in here happens while a reader looks for a file, one at each look."""
    waiting: list[Callable[[], None]] = []
    names = finder.list_names

    def looked(place: Path) -> list[str]:
        found = names(place)
        if waiting:
            waiting.pop(0)()
        return found

    monkeypatch.setattr(finder, "list_names", looked)
    return waiting


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def server_pair(authority: Authority) -> Pair:
    return authority.issue("gateway.example")
