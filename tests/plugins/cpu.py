"""Seconds of CPU of the tests by group, beside what each group may take (`cpu.toml`).

A test's CPU is what its process and all processes below that used while it ran, but for the
fixtures of the whole session.  The table stands at the end of each run; a group over its
budget is red there, and no failure.
`CPU_SECONDS=FILE` writes what each test took, as JSON.
"""

import contextlib
import json
import os
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["BUDGETS", "group_of"]

_TICK = os.sysconf("SC_CLK_TCK")
_BRIEF_SECONDS = 0.05
"""After a shorter test nobody looks at other processes: what they used is the next one's."""
_MOST_SECONDS = 5.0
"""Of CPU that a single test may take."""
_COLLECTION = "collection"
_SESSIONS = "sessions"
"""What is made once for all tests of a process, as Spark's session is, is no test's."""

BUDGETS: dict[str, int] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
"""Seconds of CPU by group: a folder of tests, or `.` for what lies beside the folders."""


def group_of(test: str) -> str:
    """The group of a test by its id: the folder with a budget that is nearest to it."""
    folders = Path(test.partition("::")[0]).parent.parts[1:]
    for many in range(len(folders), 0, -1):
        if (group := "/".join(folders[:many])) in BUDGETS:
            return group
    return "."


def _used() -> float:
    """Seconds that this process and its descendants have used, with those that ended."""
    own = sum(os.times()[:4])
    parents: dict[int, list[tuple[int, float]]] = {}
    for entry in os.scandir("/proc") if Path("/proc/self/stat").exists() else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                text = Path(entry.path, "stat").read_text()
                fields = text.rpartition(") ")[2].split()
                used = sum(map(int, fields[11:15])) / _TICK
                parents.setdefault(int(fields[1]), []).append((int(entry.name), used))
    below = [os.getpid()]
    while below:
        for child, used in parents.get(below.pop(), []):
            own += used
            below.append(child)
    return own


class _Clock:
    """What this process's tests have used so far."""

    def __init__(self) -> None:
        self.seen = 0.0
        self.own = 0.0
        self.test = _COLLECTION

    def since(self, *, brief: bool) -> float:
        """Seconds since the last call; where *brief*, of this process alone."""
        own = time.process_time()
        if brief:
            spent, self.own = own - self.own, own
            self.seen += spent
            return spent
        seen = _used()
        spent, self.seen, self.own = seen - self.seen, seen, time.process_time()
        return max(spent, 0.0)


_clock = _Clock()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    begun = time.monotonic()
    _clock.test = item.nodeid
    try:
        return (yield)
    finally:
        brief = time.monotonic() - begun < _BRIEF_SECONDS
        _send(item.config, item.nodeid, _clock.since(brief=brief))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Iterator[None]:
    if fixturedef.scope != "session":
        return (yield)
    _send(request.config, _clock.test, _clock.since(brief=False))
    try:
        return (yield)
    finally:
        _send(request.config, _SESSIONS, _clock.since(brief=False))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    _send(session.config, _COLLECTION, _clock.since(brief=False))


def _send(config: pytest.Config, test: str, seconds: float) -> None:
    """Note it; what a worker noted goes to who asked for the run when the worker ends."""
    kept: dict[str, float] = config.stash.setdefault(_KEPT, {})
    kept[test] = kept.get(test, 0.0) + seconds


_KEPT = pytest.StashKey[dict[str, float]]()


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["cpu"] = session.config.stash.get(_KEPT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended, or has crashed and says nothing."""
    for test, seconds in getattr(node, "workeroutput", {}).get("cpu", {}).items():
        _send(node.config, test, seconds)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    by_test = config.stash.get(_KEPT, {})
    if file := os.environ.get("CPU_SECONDS"):
        Path(file).write_text(json.dumps(by_test, indent=1, sort_keys=True))
    if len(by_test) < 2:
        return
    total = Counter[str]()
    tests = Counter[str]()
    for test, seconds in by_test.items():
        group = group_of(test) if "::" in test else test
        total[group] += seconds
        tests[group] += "::" in test
    terminalreporter.section("seconds of CPU by group")
    for group, seconds in total.most_common():
        over = seconds > BUDGETS[group]
        terminalreporter.write_line(
            f"{group:<24}{tests[group]:6} tests{seconds:8.1f} of {BUDGETS[group]:4}"
            + (" OVER" if over else ""),
            red=over,
        )
    terminalreporter.write_line(
        f"{'all':<24}{sum(tests.values()):6} tests{sum(total.values()):8.1f} of "
        f"{sum(BUDGETS.values()):4}",
        red=sum(total.values()) > sum(BUDGETS.values()),
    )
    for test, seconds in sorted(by_test.items(), key=lambda one: -one[1]):
        if seconds > _MOST_SECONDS and "::" in test:
            terminalreporter.write_line(f"{seconds:6.1f} s  {test}", red=True)
