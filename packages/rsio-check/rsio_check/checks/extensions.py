"""Tests of keepalive (1), auth (4) and codes (5)."""

from __future__ import annotations

import re

from rsio_check import wire
from rsio_check.probe import NotJudged, Probe, Target, require
from rsio_check.registry import Needs, Role, test
from rsio_check.wire import Ping, Pong, Token

_C = Role.CONNECTION
_NOBODY = "check/no-such-publisher"
_NAME = Token("name", b"rsio-check")


@test(_C)
def ping_is_answered_with_its_octets(target: Target) -> None:
    """A ping is answered with a pong of the same octets, any octets."""
    probe = target.greeted(1)
    for data in (b"", b"\x00\xff", bytes(range(256)), b"x" * 1000):
        probe.say(Ping(data))
        probe.exactly(Pong(data))


@test(_C)
def pings_are_answered_in_order(target: Target) -> None:
    """Each of many pings has its pong, in order."""
    probe = target.greeted(1)
    data = [b"%d" % number for number in range(100)]
    probe.say(*map(Ping, data))
    probe.exactly(*map(Pong, data))


@test(Role.SUBSCRIBER)
def ping_is_answered_within_a_stream(target: Target) -> None:
    """Pings are answered while a stream's demand is used up, and within an element."""
    probe = target.greeted(1)
    asked = probe.published()
    for _ in range(min(asked.demand, 4096)):
        probe.say(wire.OnNextPart(asked.subscriber, 1, b"{"), Ping(b"?"))
        while not isinstance(heard := probe.hear(), Pong):
            require(isinstance(heard, wire.Request), "ping was not answered")
        probe.say(wire.OnNextLastPart(asked.subscriber, 1, b"}"))
        if asked.sent > 3:
            break


@test(_C)
def codes_begin_errors_and_reasons(target: Target) -> None:
    """Extension 5: errors and reasons begin with E, a number and a space."""
    probe = target.greeted(5)
    probe.subscribe(_NOBODY, 1, 1)
    coded = re.compile(r"E\d+ .")
    error = probe.fails(1)
    require(bool(coded.match(error)), f"the error is {error!r}")
    probe.octets(b"\x00")
    reason = probe.ends().reason
    require(bool(coded.match(reason)), f"the reason is {reason!r}")


def _before_the_token(target: Target, *more: int) -> Probe:
    """A connection whose hello lists extension 4, and that has shown no token.

    NotJudged unless the target has extension 4.
    """
    if 4 not in target.offers:
        raise NotJudged("the target does not have extension 4")
    probe = target.connect()
    probe.say(wire.ClientHello(0, tuple(sorted((4, *more)))))
    probe.expect(wire.ServerHello)
    return probe


@test(_C)
def token_comes_before_subscriptions(target: Target) -> None:
    """A subscribe, subscribeFrom or announce before the token ends it, with E401."""
    for early in (
        wire.Subscribe("check/count?n=1", 1, 1),
        wire.SubscribeFrom("check/count?n=1", 1, 1, 0),
        wire.Announce("events", b"x", 0),
    ):
        probe = _before_the_token(target, 2, 7)
        needs = {wire.SubscribeFrom: 2, wire.Announce: 7}.get(type(early), 4)
        if needs not in probe.watch.extensions:
            continue
        probe.say(early)
        heard = probe.hear()
        reason = heard.reason if isinstance(heard, wire.Goodbye) else ""
        what = wire.spell(early)
        require(reason.startswith("E401"), f"{what} is answered with {heard}")
        probe.closes()


@test(_C)
def pings_may_come_before_the_token(target: Target) -> None:
    """Only subscriptions wait for the token: a ping before it is answered."""
    probe = _before_the_token(target, 1)
    if 1 not in probe.watch.extensions:
        raise NotJudged("the target does not have extension 1")
    probe.say(Ping(b"early"))
    probe.exactly(Pong(b"early"))
    probe.say(target.identity or _NAME)
    probe.settled()


@test(Role.SUBSCRIBER)
def token_is_awaited_before_subscribing(target: Target) -> None:
    """The target subscribes to a client's publishers when it knows who that is."""
    probe = _before_the_token(target)
    idle = target.greeted()
    idle.asked()
    idle.settled()
    require(not probe.watch.asked, "subscribed before the token")
    probe.say(target.identity or _NAME)
    probe.asked()


@test(_C)
def token_times_out(target: Target) -> None:
    """A client that lists extension 4 and sends no token is ended after hello_timeout."""
    probe = _before_the_token(target)
    patience = target.patience
    target.patience = target.hello_seconds + patience
    try:
        probe.closes()
    finally:
        target.patience = patience


@test(_C)
def second_token_ends(target: Target) -> None:
    """A second token ends the conversation."""
    probe = _before_the_token(target)
    identity = target.identity or _NAME
    probe.say(identity, identity)
    probe.ends()


@test(_C)
def unknown_scheme_is_refused(target: Target) -> None:
    """A token of a scheme that the server does not know is refused with E401."""
    probe = _before_the_token(target)
    probe.say(Token("rsio-check", b"x"))
    reason = probe.ends().reason
    require(reason.startswith("E401"), f"the reason is {reason!r}")


@test(_C)
def tokens_are_limited(target: Target) -> None:
    """A token of more than 4096 octets, or a scheme of more than 255, ends it."""
    for octets in (
        b"\x44\x04name" + wire.varint(4097), b"\x44" + wire.varint(256),
        b"\x44\x01\xff\x00",
    ):  # fmt: skip
        probe = _before_the_token(target)
        probe.octets(octets)
        probe.ends()


@test(_C, Needs.TOKEN)
def wrong_token_is_refused(target: Target) -> None:
    """A wrong token, where one is needed, is refused with E401."""
    identity = target.identity
    assert identity is not None
    for wrong in (identity.data + b"x", identity.data[:-1], b""):
        probe = _before_the_token(target)
        probe.say(Token("bearer", wrong))
        reason = probe.ends().reason
        require(reason.startswith("E401"), f"the reason is {reason!r}")


@test(_C, Needs.TOKEN)
def missing_token_is_refused(target: Target) -> None:
    """A client without extension 4 can show no token: E401 if one is needed."""
    probe = target.connect()
    probe.say(wire.ClientHello(0, ()), wire.Subscribe(_NOBODY, 1, 1))
    probe.expect(wire.ServerHello)
    heard = probe.hear()
    if isinstance(heard, wire.OnSubscribe):
        raise NotJudged("the target serves who shows no token")
    reason = heard.reason if isinstance(heard, wire.Goodbye) else ""
    require(reason.startswith("E401"), f"expected E401, got {heard}")
    require(not probe.watch.asked, "subscribed to who showed no token")
