"""Runs the conformance tests against a target."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum

from gateway.protocols.rsio.conformance import (  # noqa: F401 - they register their checks
    connection_checks,
    framing_checks,
    publisher_checks,
    subscriber_checks,
)
from gateway.protocols.rsio.conformance.probe import Failed, Target, Unavailable
from gateway.protocols.rsio.conformance.registry import TESTS, Check, Role, Test
from gateway.protocols.rsio.messages import OnComplete, OnSubscribe, Subscribe

__all__ = ["Outcome", "Result", "run", "serves_checks"]


class Outcome(Enum):
    """The outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(slots=True)
class Result:
    """The result of one check, or that of a test without checks."""

    test: Test
    check: Check | None
    outcome: Outcome
    why: str = ""


def run(
    target: Target,
    numbers: Collection[int] | None = None,
    roles: Collection[Role] = tuple(Role),
) -> Iterator[Result]:
    """Run all tests, or those with *numbers*; yields each result as it is known.

    Checks of other *roles* are left out.
    """
    for number, test in TESTS.items():
        if numbers is not None and number not in numbers:
            continue
        if not test.checks:
            yield Result(test, None, Outcome.SKIPPED, test.inside)
        for each in test.checks:
            if each.role in roles:
                yield _one(target, test, each)


def serves_checks(target: Target) -> bool:
    """Whether the target has the publishers `check/…`.  Raises OSError or `Failed`."""
    try:
        probe = target.greeted()
        probe.say(Subscribe("check/count?n=0", 1, 0))
        return isinstance(probe.hear(), OnSubscribe) and isinstance(
            probe.hear(), OnComplete
        )
    finally:
        target.close()


def _one(target: Target, test: Test, each: Check) -> Result:
    if each.needs_publishers and not target.publishers:
        return Result(test, each, Outcome.SKIPPED, "the target does not serve check/…")
    try:
        each.body(target)
    except Failed as why:
        return Result(test, each, Outcome.FAILED, str(why))
    except Unavailable as why:
        return Result(test, each, Outcome.SKIPPED, str(why))
    except OSError as why:
        return Result(test, each, Outcome.FAILED, f"no connection: {why}")
    finally:
        target.close()
    return Result(test, each, Outcome.PASSED)
