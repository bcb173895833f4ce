"""The kit can fail: a correct small server passes, and each broken one is found out."""

import pytest

import planted
from rsio_check import TESTS, Needs, Outcome, Target, Token, chosen, run, survey
from small_rsio import Connection, Server
from small_rsio.faults import FAULTS, Fault


def made(server: Server, token: bytes | None = None) -> Target:
    """A target in memory, whose seconds pass when somebody waits."""
    identity = None if token is None else Token("bearer", token)
    return Target(server.connect, identity=identity, patience=3.0)


def broken(fault: Fault) -> Target:
    """A server with one fault; what it has is known."""
    target = made(fault.server(fault.connection, fault.token), fault.token)
    target.offers = frozenset(Server.extensions)
    target.publishers = target.reads_back = True
    target.subscriptions = 2
    return target


@pytest.mark.parametrize("token", [None, b"s3cret"])
def test_a_correct_server_passes(token):
    """Everything is judged, and passes."""
    target = made(Server(Connection, token), token)
    survey(target)
    results = list(run(target, chosen(target)))
    assert [
        (one.test.name, one.why) for one in results if one.outcome is not Outcome.PASSED
    ] == []
    assert len(results) > 160


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    """A broken server fails the tests that name its fault."""
    fault = FAULTS[name]
    for test in fault.tests:
        [result] = run(broken(fault), [TESTS[test]])
        assert result.outcome is Outcome.FAILED, (test, result.why)
        assert result.why


def test_every_test_can_fail():
    """Each test is named by a fault, here or in planted.toml, whose faults the gateway's own
    session has; those of WebSockets are in test_transports.
    """
    faults = (*FAULTS.values(), *planted.FAULTS["python"])
    named = {test for fault in faults for test in fault.tests}
    web = {name for name, test in TESTS.items() if test.needs is Needs.WEBSOCKET}
    assert named | web == set(TESTS)
    assert all(fault.wire for fault in FAULTS.values())


class Plain(Server):
    """Has no extension."""

    extensions = ()


def test_what_a_target_lacks_is_not_judged():
    """… and fails nothing: extensions are optional."""
    target = made(Plain(Connection))
    survey(target)
    results = list(run(target, chosen(target)))
    assert [one.test.name for one in results if one.outcome is Outcome.FAILED] == []
    missing = [one for one in results if one.outcome is Outcome.NOT_JUDGED]
    assert len(missing) > 30
    assert all("does not have extension" in one.why for one in missing), missing


def test_a_target_that_only_publishes():
    """Tests of subscribers are not judged, and nobody waits for them again."""

    class Silent(Server):
        subscribe = ()

    target = made(Silent(Connection))
    survey(target)
    results = list(run(target, chosen(target)))
    assert [one.test.name for one in results if one.outcome is Outcome.FAILED] == []
    for one in results:
        if one.outcome is Outcome.NOT_JUDGED:
            assert "0 subscriptions" in one.why or "events" in one.why, one
