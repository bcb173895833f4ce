"""The conformance tests of `rsio_check` against our own server, in memory."""

import pytest

from rsio_check import TESTS, Needs, Outcome, Target, Token, run
from rsio_check.checks import publisher

READ_BACK = "the target does not publish events"


def known(target: Target) -> Target:
    """What a survey would find out."""
    target.offers = frozenset({1, 2, 3, 4, 5, 6, 7, 8})
    target.publishers = True
    target.subscriptions = 2
    return target


@pytest.fixture(autouse=True)
def _no_more_than_some_turns(monkeypatch) -> None:
    """Where nothing waits in a socket, all that is asked for comes in each."""
    monkeypatch.setattr(publisher, "_MANY", 100_000)
    monkeypatch.setattr(publisher, "_PATIENT", 200_000)


@pytest.mark.parametrize(
    "name", [name for name, test in TESTS.items() if test.needs is not Needs.WEBSOCKET]
)
def test_conformance(make_target, name):
    """Our server passes, as publisher, as subscriber and as a connection.

    What it stores is read back from a daemon: tests/integration/test_senders.py.
    """
    test = TESTS[name]
    target = known(make_target())
    if test.needs is Needs.TOKEN:
        target = known(make_target(tokens={"check": "s3cret"}))
        target.identity = Token("bearer", b"s3cret")
    [result] = run(target, [test])
    if result.why == READ_BACK:
        return
    assert result.outcome is Outcome.PASSED, result.why
