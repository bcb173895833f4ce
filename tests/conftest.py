"""What all tests share: plugins, the order of tests, the log, certificates."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import formatEvent, globalLogPublisher

from gateway.sdk.arrow import leave_pandas_out
from gateway.store import finder
from gateway_testkit.certificates import Authority, Pair

pytest_plugins = [
    "deadlines",
    "budgets",
    "chromium",
    "cpu",
    "daemons",
    "disks",
    "fitting",
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
    would be left with them; those that share what one of their module has made lie together,
    or each would make it anew.
    """
    spark = [item for item in items if _has_session(item)]
    others = [item for item in items if not _has_session(item)]
    slow = [item for item in others if item.get_closest_marker("slow")]
    quick = [item for item in others if not item.get_closest_marker("slow")]
    count, shares = len(items), getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = spark
    for share, mine in enumerate(_dealt(slow, shares), 1):
        room = max(0, count * share // shares - len(items) - sum(map(len, mine)))
        items += _mixed(mine, quick[:room])
        quick = quick[room:]
    items += quick


def _has_session(item: pytest.Item) -> bool:
    """It uses the fixture `spark`, and not a parameter of that name."""
    fixtures = getattr(item, "fixturenames", ())
    return "spark" in fixtures and item.get_closest_marker("spark") is not None


def _dealt(slow: list[pytest.Item], shares: int) -> list[list[list[pytest.Item]]]:
    """For each share its groups of tests, about as many tests in each."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in slow:
        module, _, _ = item.nodeid.partition("::")
        groups.setdefault(
            module if _shares_a_fixture(item) else item.nodeid, []
        ).append(item)
    dealt: list[list[list[pytest.Item]]] = [[] for _ in range(shares)]
    for group in groups.values():
        min(dealt, key=lambda mine: sum(map(len, mine))).append(group)
    return dealt


def _shares_a_fixture(item: pytest.Item) -> bool:
    """It uses one that is made once a module."""
    found = getattr(item, "_fixtureinfo", None)
    known = {} if found is None else found.name2fixturedefs
    return any(made[-1].scope == "module" for made in known.values() if made)


def _mixed(
    slow: list[list[pytest.Item]], quick: list[pytest.Item]
) -> list[pytest.Item]:
    """The slow ones evenly among the first three quarters of the others."""
    between = 3 * len(quick) // (4 * max(len(slow), 1))
    return [
        item
        for number, group in enumerate(slow)
        for item in (*group, *quick[number * between : (number + 1) * between])
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
def lines() -> Iterator[list[str]]:
    """Every line that is logged meanwhile, behind its level."""
    texts: list[str] = []

    def observe(event: dict[str, Any]) -> None:
        texts.append(f"{event['log_level'].name}: {formatEvent(event)}")

    globalLogPublisher.addObserver(observe)
    yield texts
    globalLogPublisher.removeObserver(observe)


@pytest.fixture
def ambush(monkeypatch) -> list[Callable[[], None]]:
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
def authority(tmp_path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def server_pair(authority) -> Pair:
    return authority.issue("gateway.example")
