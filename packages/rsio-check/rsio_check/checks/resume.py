"""Tests of offsets (2) of a publisher: a subscription goes on where another ended."""

from __future__ import annotations

from rsio_check import wire
from rsio_check.probe import NotJudged, Probe, Target, require
from rsio_check.registry import Role, test
from rsio_check.wire import OnError, OnSubscribe, Request, Stored, SubscribeFrom

_P = Role.PUBLISHER
_NEGATIVE = 2**64 - 1


def _resumed(
    probe: Probe, publisher: str, number: int, demand: int, offset: int
) -> None:
    """Subscribe behind *offset* elements.  NotJudged if the publisher can not."""
    probe.say(SubscribeFrom(publisher, number, demand, offset))
    probe.accepted(number)
    found = [] if demand else probe.settled()
    if found and isinstance(found[0], OnError):
        raise NotJudged(f"{publisher} can not resume: {found[0].error}")


@test(_P)
def resumes_behind_the_offset(target: Target) -> None:
    """SubscribeFrom brings what follows the first so many elements, exactly."""
    probe = target.greeted(2)
    for number, offset in enumerate((0, 1, 2, 7, 19), 1):
        _resumed(probe, "check/count?n=20", number, 0, offset)
        probe.say(Request(number, 30))
        probe.rest(offset, 20, stream=number)


@test(_P)
def resumes_at_the_end(target: Target) -> None:
    """The terminal comes behind a publisher's last element."""
    probe = target.greeted(2)
    probe.say(SubscribeFrom("check/count?n=20", 1, 0, 20))
    probe.accepted(1)
    heard = probe.hear()
    if isinstance(heard, OnError):
        raise NotJudged(f"check/count can not resume: {heard.error}")
    require(heard == wire.OnComplete(1), f"expected onComplete(1), got {heard}")


@test(_P)
def resumes_across_connections(target: Target) -> None:
    """Elements of one connection and of the next are one stream."""
    first = target.greeted(2)
    _resumed(first, "check/count?n=50", 1, 0, 0)
    first.say(Request(1, 17))
    first.numbers(0, 17)
    first.say(Stored(1, 17))
    first.link.reset()
    second = target.greeted(2)
    _resumed(second, "check/count?n=50", 1, 0, 17)
    second.say(Request(1, 50))
    second.rest(17, 50)


@test(_P)
def impossible_offsets_are_errors(target: Target) -> None:
    """Where a publisher can not resume, it answers onSubscribe and onError."""
    probe = target.greeted(2)
    for number, offset in enumerate((21, 2**62, 2**63, _NEGATIVE), 1):
        probe.say(SubscribeFrom("check/count?n=20", number, 5, offset))
        probe.exactly(OnSubscribe(number, 0))
        probe.fails(number)
    probe.say(SubscribeFrom("check/no-such-publisher", 9, 5, 3))
    probe.exactly(OnSubscribe(9, 0))
    probe.fails(9)


@test(_P)
def subscribe_from_has_demand_like_subscribe(target: Target) -> None:
    """InitialDemand of subscribeFrom adds up, and may not be negative."""
    probe = target.greeted(2)
    probe.say(SubscribeFrom("check/count?n=20", 1, _NEGATIVE, 0))
    probe.accepted(1)
    require("3.9" in probe.fails(1), "onError does not name 3.9")
    _resumed(probe, "check/count?n=20", 2, 0, 3)
    probe.say(Request(2, 2))
    probe.numbers(3, 5, stream=2)
    probe.silent()


@test(_P)
def stored_may_come_at_any_time(target: Target) -> None:
    """Stored changes nothing for a subscriber; for an Id not in use it is ignored."""
    probe = target.greeted(2)
    probe.subscribe("check/endless", 1, 2)
    probe.numbers(0, 2)
    probe.say(
        Stored(1, 1), Stored(1, 2), Stored(2**40, 7), wire.Cancel(1), Stored(1, 2)
    )
    probe.unaffected()
