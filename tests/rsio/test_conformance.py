"""The 57 tests, against our own server, in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.rsio.conformance import TESTS, Bench, Outcome, run


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """A listener that also serves what the tests subscribe to."""
    return make_bench()


def test_there_are_57() -> None:
    """By number; each has checks, or says where it is tested."""
    assert list(TESTS) == list(range(1, 58))
    for test in TESTS.values():
        assert bool(test.checks) != bool(test.inside), test.name
        assert all(each.promise for each in test.checks), test.name


@pytest.mark.parametrize(
    "number", [number for number, test in TESTS.items() if test.checks]
)
def test_conformance(bench: Bench, number: int) -> None:
    """Our server passes, as publisher, as subscriber and as such."""
    for result in run(bench, [number]):
        assert result.outcome is Outcome.PASSED, (result.check, result.why)
