"""What all tests share: plugins, the order of tests, the log, certificates."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import globalLogPublisher

from gateway.store import finder
from gateway.store.spool.columns import leave_pandas_out
from gateway_testkit.certificates import Authority, Pair

pytest_plugins = [
    "deadlines",
    "budgets",
    "chromium",
    "daemons",
    "disks",
    "pravega_python",
    "quick_java",
    "seaweeds",
]


leave_pandas_out()  # each worker would import it, for arrays that modules make


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Workers begin with a share each, and then take from the ends of others' shares.

    Those of one Spark session lie together, at the beginning: few workers start one.  The
    slow ones lie evenly among the others, and not at the end of a share, where one worker
    would be left with them.
    """
    spark = [item for item in items if _has_session(item)]
    others = [item for item in items if not _has_session(item)]
    slow = [item for item in others if item.get_closest_marker("slow")]
    quick = [item for item in others if not item.get_closest_marker("slow")]
    count, shares = len(items), getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = spark
    for share in range(shares):
        mine = slow[share::shares]
        room = max(0, count * (share + 1) // shares - len(items) - len(mine))
        items += _mixed(mine, quick[:room])
        quick = quick[room:]
    items += quick


def _has_session(item: pytest.Item) -> bool:
    """It uses the fixture `spark`, and not a parameter of that name."""
    fixtures = getattr(item, "fixturenames", ())
    return "spark" in fixtures and item.get_closest_marker("spark") is not None


def _mixed(slow: list[pytest.Item], quick: list[pytest.Item]) -> list[pytest.Item]:
    """The slow ones evenly among the first three quarters of the others."""
    between = 3 * len(quick) // (4 * max(len(slow), 1))
    return [
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
