"""A plugin of pytest's: notes which lines of the gateway each test runs, and runs some of them."""

import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--touched", type=Path, help="a folder for what coverage sees")
    parser.addoption("--touching", type=Path, help="has the only tests to be run")


def pytest_configure(config: pytest.Config) -> None:
    if (touched := config.getoption("touched")) is not None:
        file = touched / os.environ.get("PYTEST_XDIST_WORKER", "main")
        seen = coverage.Coverage(
            file, config_file=False, source=["gateway"],
            concurrency=["thread", "greenlet"],
        )  # fmt: skip
        config.stash[_SEEN] = seen
        seen.start()


_SEEN = pytest.StashKey[coverage.Coverage]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    seen = item.config.stash.get(_SEEN, None)
    if seen is not None:
        seen.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        if seen is not None:
            seen.switch_context("")


def pytest_unconfigure(config: pytest.Config) -> None:
    if (seen := config.stash.get(_SEEN, None)) is not None:
        seen.stop()
        seen.save()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    if (listed := config.getoption("touching")) is not None:
        by_id = {item.nodeid: item for item in items}
        wanted = listed.read_text().splitlines()
        items[:] = [by_id[one] for one in wanted if one in by_id]
