"""Tests of a publisher's demand: never more than requested, and all of it."""

from __future__ import annotations

from rsio_check import wire
from rsio_check.probe import Target, require
from rsio_check.registry import Role, test
from rsio_check.watch import Element
from rsio_check.wire import Cancel, OnSubscribe, Request, Subscribe

_P = Role.PUBLISHER
_UNBOUNDED = 2**63 - 1
_NEGATIVE = 2**64 - 1
_IN_FLIGHT = 2_000_000
"""Elements that may be on their way when cancel is sent."""


@test(_P)
def spec101_never_more_than_requested(target: Target) -> None:
    """request(n) brings n elements and then nothing; no demand brings nothing."""
    probe = target.subscribed("check/endless")
    probe.silent()
    probe.say(Request(1, 3))
    probe.numbers(0, 3)
    probe.silent()
    probe.say(Request(1, 5))
    probe.numbers(3, 8)
    probe.silent()


@test(_P)
def spec101_packed_elements_count_each(target: Target) -> None:
    """Each element of an onNextPacked takes a unit of demand."""
    probe = target.subscribed("check/count?n=1000&size=4", 10)
    probe.elements(10)
    probe.silent()
    probe.say(Request(1, 100))
    probe.elements(100)
    probe.silent()


@test(_P)
def spec101_split_elements_count_once(target: Target) -> None:
    """An element in parts takes one unit, with its first part."""
    probe = target.subscribed("check/large?n=3&octets=200000", 2)
    require([len(one) for one in probe.elements(2)] == [200_000] * 2, "other sizes")
    probe.silent()


@test(_P)
def spec303_many_requests_at_once(target: Target) -> None:
    """Ten thousand requests of one element each, all at once."""
    probe = target.subscribed("check/endless")
    probe.say(*[Request(1, 1)] * 10_000)
    probe.numbers(0, 10_000)
    probe.silent()


@test(_P)
def spec306_request_after_cancel_is_ignored(target: Target) -> None:
    """A request after a cancel does nothing, not even one that is not positive."""
    probe = target.subscribed("check/endless")
    probe.say(Cancel(1), Request(1, 5), Request(1, 0), Request(1, _NEGATIVE))
    probe.unaffected()


@test(_P)
def spec307_cancel_after_cancel_is_ignored(target: Target) -> None:
    """A second cancel does nothing."""
    probe = target.subscribed("check/endless")
    probe.say(Cancel(1), Cancel(1), Cancel(1))
    probe.unaffected()


@test(Role.CONNECTION)
def unknown_ids_are_ignored(target: Target) -> None:
    """Request and cancel for Ids that were never used are ignored."""
    probe = target.greeted()
    probe.say(Request(2**40, 1), Cancel(2**40), Request(0, 0), Cancel(0))
    probe.unaffected()


@test(_P)
def spec308_requests_add_up(target: Target) -> None:
    """Requests add up, initialDemand included."""
    probe = target.greeted()
    probe.say(Subscribe("check/endless", 1, 2), Request(1, 3), Request(1, 4))
    probe.exactly(OnSubscribe(1, 0))
    probe.numbers(0, 9)
    probe.silent()


@test(_P)
def spec309_not_positive_is_an_error(target: Target) -> None:
    """request(0) and request(-1) end the stream with an onError that names 3.9."""
    probe = target.greeted()
    for number, demand in ((1, 0), (2, _NEGATIVE), (3, 2**63)):
        probe.subscribe("check/endless", number)
        probe.say(Request(number, demand))
        require("3.9" in probe.fails(number), "onError does not name 3.9")
        probe.say(Request(number, 1))
        probe.silent()


@test(_P)
def spec309_first_demand_may_be_none(target: Target) -> None:
    """An initialDemand of 0 is none, and no error."""
    probe = target.subscribed("check/endless", 0)
    probe.silent()
    probe.say(Request(1, 1))
    probe.numbers(0, 1)


@test(_P)
def spec309_first_demand_may_not_be_negative(target: Target) -> None:
    """An initialDemand above 2^63-1 is an onSubscribe, and an onError that names 3.9."""
    probe = target.greeted()
    for number, demand in ((1, 2**63), (2, _NEGATIVE)):
        probe.subscribe("check/endless", number, demand)
        require("3.9" in probe.fails(number), "onError does not name 3.9")


@test(_P)
def spec312_cancel_stops_a_stream(target: Target) -> None:
    """Cancel stops even a stream of unbounded demand."""
    probe = target.subscribed("check/endless", _UNBOUNDED)
    probe.elements(100)
    probe.say(Cancel(1), Subscribe("check/count?n=0", 2, 0))
    heard = None
    for _ in range(_IN_FLIGHT):
        heard = probe.hear()
        if not isinstance(heard, Element):
            break
    require(heard == OnSubscribe(2, 0), f"expected onSubscribe(2, 0), got {heard}")
    probe.completes(2)
    probe.silent()


@test(_P)
def spec312_cancel_ends_demand(target: Target) -> None:
    """Nothing follows a cancel, though there was demand."""
    probe = target.subscribed("check/slow?n=3", 9)
    probe.elements(1)
    probe.say(Cancel(1))
    probe.settled()  # an element may have been on its way
    probe.silent()
    probe.silent()


@test(_P)
def spec317_unbounded_demand_is_no_error(target: Target) -> None:
    """2^63-1, again and again, and more: no error, no wrap."""
    probe = target.subscribed("check/count?n=500", _UNBOUNDED)
    probe.say(*[Request(1, _UNBOUNDED)] * 3, *[Request(1, 1)] * 20)
    probe.rest(0, 500)


@test(_P)
def spec317_demand_saturates(target: Target) -> None:
    """Demand that sums up to 2^63, 2^64 or a little more is not little."""
    for number, more in enumerate(([1], [2], [_UNBOUNDED, 1], [_UNBOUNDED, 2, 1]), 1):
        probe = target.greeted()
        probe.subscribe("check/slow?n=2", number)
        probe.say(*[Request(number, each) for each in (_UNBOUNDED, *more)])
        probe.rest(0, 2, stream=number)


@test(_P)
def spec317_demand_saturates_while_nothing_comes(target: Target) -> None:
    """The same in a stream that has nothing to deliver."""
    probe = target.subscribed("check/never")
    probe.say(*[Request(1, _UNBOUNDED)] * 5, *[Request(1, 2**62)] * 5)
    probe.unaffected()


@test(_P)
def old_demand_is_honoured(target: Target) -> None:
    """Demand from before another stream's life is not forgotten."""
    probe = target.subscribed("check/slow?n=2", 2)
    probe.say(wire.Subscribe("check/count?n=2", 2, 2))
    # The first stream may go on before the second is accepted.
    found = [probe.hear() for _ in range(7)]
    for number in (1, 2):
        mine = [each for each in found if getattr(each, "subscriber", 0) == number]
        if number == 2:
            accepted = mine.pop(0) if mine else None
            require(
                isinstance(accepted, wire.OnSubscribe), f"stream 2 brings {accepted}"
            )
        wanted = [Element(number, b"0"), Element(number, b"1"), wire.OnComplete(number)]
        require(mine == wanted, f"stream {number} brings {mine}")


@test(_P)
def demand_of_one_stream_is_its_own(target: Target) -> None:
    """Demand of one stream brings nothing in another."""
    probe = target.subscribed("check/endless", 1)
    probe.numbers(0, 1)
    probe.subscribe("check/endless", 2)
    probe.say(Request(2, 4))
    probe.numbers(0, 4, stream=2)
    probe.silent()


@test(_P)
def demand_is_met_in_full(target: Target) -> None:
    """All that was requested comes, in streams of any form."""
    probe = target.greeted()
    for number, name in enumerate(
        ("check/count?n=5000", "check/count?n=5000&size=8", "check/large?n=20&octets=70000"), 1
    ):  # fmt: skip
        count = 20 if "large" in name else 5000
        probe.subscribe(name, number, count - 1)
        probe.elements(count - 1, number)
        require(probe.settled() == [], "more than was requested")
        probe.say(Request(number, 1))
        probe.elements(1, number)
        probe.completes(number)
