"""Who calls, and with which token they come to the segment store."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Any

import pytest

from gateway.protocols.pravega.controller.grpc import Code
from gateway.protocols.pravega.controller.tokens import DelegationTokens
from gateway.protocols.pravega.errors import Need
from pravega_messages import new

from .conftest import basic

SEGMENT = "sc/st/0.#epoch.0"
EXISTS = new("ScopeInfo", scope="sc").SerializeToString()


@pytest.fixture
def guarded(make_service) -> Any:
    """A controller with a user and a bearer's token."""
    return make_service(
        users={"ann": "s3cret:ä"}, tokens={"bot": "t0ken"}, token_lifetime=600.0
    )


@pytest.mark.parametrize(
    ("authorization", "name"),
    [
        (basic("ann", "s3cret:ä"), "ann"),
        (basic("ann", "s3cret:ä").replace("Basic ", "basic  "), "ann"),
        ("Bearer t0ken", "bot"),
        ("bearer t0ken", "bot"),
    ],
)
def test_those_who_may(guarded, authorization, name):
    """Both schemes; the events of a call carry the name."""
    peer = guarded.peer(authorization=authorization)
    assert peer.send("checkScopeExists", EXISTS).status == 0
    assert peer.connection.origin.principal == name
    assert peer.connection.refused is None


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        basic("ann", "wrong"),
        basic("bob", "s3cret:ä"),
        basic("bob", ""),
        basic("", ""),
        "Basic !!!",
        "Basic",
        "Bearer",
        "Bearer wrong",
        "Digest t0ken",
        "t0ken",
    ],
)
def test_those_who_may_not(guarded, authorization):
    """UNAUTHENTICATED thrice, then GOAWAY, and a line that names the keys."""
    headers = {} if authorization is None else {"authorization": authorization}
    peer = guarded.peer(**headers)
    for _ in range(3):
        assert peer.connection.refused is None
        answer = peer.send("createScope", EXISTS)
        assert answer.status == Code.UNAUTHENTICATED
    assert "options.users" in str(peer.connection.refused)
    assert guarded.journal.pending == []


@pytest.fixture
def guess(guarded) -> Callable[[], Any]:
    """Makes a client with a wrong password, whose answers wait for 5 s."""

    def make() -> Any:
        peer = guarded.peer(authorization=basic("ann", "wrong"))
        peer.connection.penalty = 5.0
        return peer

    return make


def test_guessing_is_slow(guarded, guess):
    """The first call, too, waits as long as its address has to."""
    peer = guess()
    answer = peer.send("createScope", EXISTS)
    assert answer.status is None
    assert peer.connection.waiting
    right = {"authorization": "Bearer t0ken"}
    assert peer.send("checkScopeExists", EXISTS, right).status == 0
    guarded.clock.advance(4.9)
    peer.exchange()
    assert answer.status is None
    guarded.clock.advance(0.1)
    peer.exchange()
    assert answer.status == Code.UNAUTHENTICATED
    assert not peer.connection.waiting
    assert peer.connection.refused is None


def test_all_guesses_are_answered_with_the_last(guarded, guess):
    """The network delays that refusal by more than the others would wait."""
    timers = len(guarded.clock.getDelayedCalls())
    peer = guess()
    answers = [peer.send("createScope", EXISTS) for _ in range(3)]
    assert [answer.status for answer in answers] == [Code.UNAUTHENTICATED] * 3
    assert peer.connection.refused is not None
    assert len(guarded.clock.getDelayedCalls()) == timers


def test_who_leaves_before_the_answer_is_gone(guarded, guess):
    """Nothing is sent, nothing is left to do; nor for a call that was reset."""
    timers = len(guarded.clock.getDelayedCalls())
    peer = guess()
    peer.send("createScope", EXISTS)
    assert len(guarded.clock.getDelayedCalls()) == timers + 1
    peer.connection.lose()
    assert len(guarded.clock.getDelayedCalls()) == timers
    reset = guess()
    answer = reset.send("createScope", EXISTS)
    reset.h2.reset_stream(max(reset.answers))
    reset.exchange()
    guarded.clock.advance(5)
    reset.exchange()
    assert answer.status is None
    assert reset.connection.failure is None


def test_a_guess_is_answered_before_the_daemon_stops(guarded, guess):
    """Then the connection closes."""
    peer = guess()
    peer.send("createScope", EXISTS)
    peer.connection.drain()
    peer.connection.clear()
    assert not peer.connection.closed
    guarded.clock.advance(5)
    assert peer.connection.sent
    assert peer.connection.closed


def test_nobody_has_to_say(service):
    """Without users and tokens, whatever a client says of itself is not looked at."""
    peer = service.peer(authorization="Basic !!!")
    assert peer.send("checkScopeExists", EXISTS).status == 0
    assert peer.connection.origin.principal is None
    request = new("StreamInfo", scope="sc", stream="st")
    assert peer.call("getDelegationToken", request).token == ""


# -- delegation tokens ------------------------------------------------------------------


def token(guarded: Any, stream: str = "st") -> str:
    peer = guarded.peer(authorization="Bearer t0ken")
    request = new("StreamInfo", scope="sc", stream=stream)
    found: str = peer.call("getDelegationToken", request).token
    return found


def test_a_token(guarded):
    """A JWT whose middle says when it ends; good for all that belongs to its stream."""
    made = token(guarded)
    middle = made.split(".")[1]
    claims = json.loads(urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    assert claims["exp"] == 1_700_000_000 + 600
    assert claims["sub"] == "bot"
    check = guarded.controller.tokens.check
    for name in (SEGMENT, f"{SEGMENT}#transaction.{'0' * 32}"):
        assert check(made, name, Need.WRITE) is None
    for name in ("sc/other/0.#epoch.0", "sc/st", "sc/stx/0.#epoch.0", "sc/st/a/b", ""):
        assert check(made, name, Need.WRITE) == 0


def test_tokens_that_are_not_ours(guarded):
    """Changed, cut, empty, signed by others, not even text."""
    made = token(guarded)
    check = guarded.controller.tokens.check
    head, body, signature = made.split(".")
    for bad in (
        "",
        "a.b.c",
        "\ud800.ä.☃",
        f"{head}.{body}.",
        f"{head}.{body}",
        f"{head}.{body[:-1]}.{signature}",
        f"{head}.{token(guarded, 'other').split('.')[1]}.{signature}",
    ):
        assert check(bad, SEGMENT, Need.WRITE) == 0, bad


def test_a_token_ends(guarded):
    """Its code tells the client to get another one."""
    made = token(guarded)
    check = guarded.controller.tokens.check
    guarded.clock.advance(599)
    assert check(made, SEGMENT, Need.WRITE) is None
    guarded.clock.advance(1)
    assert check(made, SEGMENT, Need.WRITE) == 1


def test_tokens_outlive_a_restart(guarded):
    """The key is in the journal like everything else."""
    made = token(guarded)
    again = guarded.restarted()
    assert again.controller.tokens.check(made, SEGMENT, Need.WRITE) is None
    other = DelegationTokens(guarded.clock.seconds, lifetime=1, required=True)
    other.key = b"x" * 32
    assert other.check(made, SEGMENT, Need.WRITE) == 0


def test_the_cache_of_tokens_is_bounded():
    """However many there are, each is still checked right."""
    tokens = DelegationTokens(lambda: 0.0, lifetime=10, required=True)
    made = [tokens.make("sc", f"s{number}", "n") for number in range(10_002)]
    for number, each in enumerate(made):
        assert tokens.check(each, f"sc/s{number}/0", Need.WRITE) is None
    assert len(tokens._checked) <= 10_000


def test_tokens_come_with_segments(guarded, config):
    """Java clients take the first one from where they hear of segments."""
    peer = guarded.peer(authorization="Bearer t0ken")
    peer.call("createScope", new("ScopeInfo", scope="sc"))
    peer.call("createStream", config())
    info = new("StreamInfo", scope="sc", stream="st")
    for method, request in {
        "getCurrentSegments": info,
        "getSegments": new("GetSegmentsRequest", stream_info=info),
        "getEpochSegments": new("GetEpochSegmentsRequest", stream_info=info),
        "getSegmentsImmediatelyFollowing": new("SegmentId", stream_info=info),
        "getSegmentsBetween": new("StreamCutRange", stream_info=info),
        "createTransaction": new("CreateTxnRequest", stream_info=info, lease=1),
    }.items():
        found = peer.call(method, request).token
        assert guarded.controller.tokens.check(found, SEGMENT, Need.WRITE) is None


@pytest.mark.parametrize("users", [{}, {"ann": "x"}])
def test_our_own_tables_are_nobodys_business(make_service, users):
    """Not with a token, not without; the key of all tokens is in there."""
    service = make_service(users=users)
    check = service.controller.tokens.check
    assert check("", "_system/controller", Need.WRITE) == 0
    made = service.controller.tokens.make("_system", "controller", "ann")
    assert check(made, "_system/controller", Need.WRITE) == 0
    assert check(made, "_system/controller/0.#epoch.0", Need.WRITE) == 0
