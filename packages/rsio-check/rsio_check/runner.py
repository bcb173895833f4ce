"""Runs the tests against a target."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum

from rsio_check import wire
from rsio_check.checks import load
from rsio_check.probe import Failed, NotJudged, Target, require
from rsio_check.registry import TESTS, Needs, Role, Test
from rsio_check.transports import reason

EXTENSIONS = (1, 2, 3, 4, 5, 6)

load()


class Outcome(Enum):
    """The outcome of a test."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_JUDGED = "not judged"


@dataclass(slots=True)
class Result:
    """The result of one test."""

    test: Test
    outcome: Outcome
    why: str = ""


def survey(target: Target) -> None:
    """Find out what the target has.  Raises OSError, or `Failed` if it is no RS.io."""
    try:
        probe = target.connect()
        probe.hello(*EXTENSIONS)
        target.offers = frozenset(
            probe.watch.hello.extensions if probe.watch.hello else ()
        )
        _without_token(target)
        probe = target.greeted()
        target.publishers = _has(target, "check/count?n=0")
        target.reads_back = _has(target, "events?from=latest")
        probe = target.greeted()
        target.subscriptions = 0
        if probe.watch.asked or probe.waits(target.patience):
            probe.settled()
            target.subscriptions = len(probe.watch.asked)
    finally:
        target.close()


def _without_token(target: Target) -> None:
    """See that the target serves who does not prove anything, if we can not."""
    probe = target.greeted()
    probe.say(wire.Subscribe("check/no-such-publisher", 1, 1))
    heard = probe.hear()
    if isinstance(heard, wire.Goodbye):
        raise Failed(f"it refuses us: {heard.reason}")
    require(isinstance(heard, wire.OnSubscribe), "it does not answer a subscription")


def _has(target: Target, publisher: str) -> bool:
    probe = target.greeted()
    probe.subscribe(publisher)
    probe.say(wire.Cancel(1))
    return not any(isinstance(each, wire.OnError) for each in probe.settled())


def chosen(
    target: Target,
    names: Collection[str] | None = None,
    roles: Collection[Role] = tuple(Role),
) -> list[Test]:
    """The tests of a run: those with *names*, of *roles*, that fit the target's way."""
    there = {Needs.NOTHING}
    if target.identity is None:
        there.add(Needs.NO_IDENTITY)
    elif target.identity.scheme == "bearer":
        there.add(Needs.TOKEN)
    if target.websocket:
        there.add(Needs.WEBSOCKET)
    return [
        each
        for each in TESTS.values()
        if (names is None or each.name in names)
        and each.role in roles
        and each.needs in there
    ]


def run(target: Target, tests: Collection[Test]) -> Iterator[Result]:
    """Run *tests*; yields each result as it is known."""
    for each in tests:
        yield _one(target, each)


def _one(target: Target, test: Test) -> Result:
    if test.role is Role.PUBLISHER and not target.publishers:
        return Result(test, Outcome.NOT_JUDGED, "the target does not publish check/…")
    try:
        test.body(target)
    except Failed as why:
        return Result(test, Outcome.FAILED, str(why))
    except NotJudged as why:
        return Result(test, Outcome.NOT_JUDGED, str(why))
    except OSError as why:
        return Result(test, Outcome.FAILED, f"no connection: {reason(why)}")
    finally:
        target.close()
    return Result(test, Outcome.PASSED)
