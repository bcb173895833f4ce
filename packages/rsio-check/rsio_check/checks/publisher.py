"""Tests of a publisher: what a stream brings, how it ends, and that streams are apart."""

from __future__ import annotations

from rsio_check import wire
from rsio_check.probe import Failed, Target, require
from rsio_check.registry import Role, test
from rsio_check.watch import Element
from rsio_check.wire import (
    Cancel,
    OnComplete,
    OnError,
    OnSubscribe,
    Request,
    Subscribe,
    spell,
)

_P = Role.PUBLISHER
_LARGE = 200_000
_MANY = 1_000_000
_TURN = 1 << 14
_PATIENT = 4_000_000
"""Numbers, within which so many octets of another stream have come."""


@test(_P)
def spec102_may_end_before_demand_is_met(target: Target) -> None:
    """A stream of fewer elements than were requested ends with its terminal."""
    probe = target.subscribed("check/count?n=2", 10)
    probe.rest(0, 2)


@test(_P)
def spec103_elements_are_in_order(target: Target) -> None:
    """A thousand elements come in order, however they were requested."""
    probe = target.subscribed("check/endless")
    for _ in range(100):
        probe.say(Request(1, 3), Request(1, 7))
    probe.numbers(0, 1000)


@test(_P)
def spec104_failure_is_on_error(target: Target) -> None:
    """A failure is told by onError, behind the elements before it."""
    probe = target.subscribed("check/fail?n=3", 5)
    probe.numbers(0, 3)
    probe.fails()


@test(_P)
def spec105_end_is_on_complete(target: Target) -> None:
    """A finite stream ends with onComplete."""
    probe = target.subscribed("check/count?n=3", 3)
    probe.rest(0, 3)


@test(_P)
def spec105_empty_stream_completes(target: Target) -> None:
    """An empty stream completes, without demand."""
    probe = target.subscribed("check/count?n=0")
    probe.completes()


@test(_P)
def spec107_nothing_follows_on_complete(target: Target) -> None:
    """Nothing follows onComplete, whatever is requested or cancelled."""
    probe = target.subscribed("check/count?n=1", 1)
    probe.rest(0, 1)
    probe.say(Request(1, 5), Cancel(1), Request(1, 0))
    probe.unaffected()


@test(_P)
def spec107_nothing_follows_on_error(target: Target) -> None:
    """Nothing follows onError, whatever is requested or cancelled."""
    probe = target.subscribed("check/fail?n=0", 1)
    probe.fails()
    probe.say(Request(1, 5), Cancel(1), Request(1, 0))
    probe.unaffected()


@test(_P)
def spec109_rejection_is_on_subscribe_and_on_error(target: Target) -> None:
    """An unknown publisher is an onSubscribe and an onError, with demand and without."""
    probe = target.greeted()
    for number, demand in ((7, 1), (8, 0), (9, 2**63 - 1)):
        probe.subscribe("check/no-such-publisher", number, demand)
        probe.fails(number)
    probe.alive()


@test(_P)
def spec110_id_in_use_ends(target: Target) -> None:
    """A subscribe with an Id in use ends the conversation."""
    probe = target.subscribed("check/never")
    probe.octets(wire.encode(Subscribe("check/never", 1, 0)))
    probe.ends()


@test(_P)
def spec111_two_subscribers_get_the_same(target: Target) -> None:
    """Two subscribers of one publisher get the same, in the same order."""
    probe = target.greeted()
    probe.subscribe("check/count?n=50", 1)
    probe.subscribe("check/count?n=50", 2)
    for number in (1, 2):
        probe.say(Request(number, 50))
        probe.rest(0, 50, stream=number)


@test(_P)
def spec209_completes_with_and_without_demand(target: Target) -> None:
    """OnComplete comes with a request and without one."""
    probe = target.subscribed("check/count?n=0", 9)
    probe.completes()
    probe.subscribe("check/count?n=2", 2, 2)
    probe.rest(0, 2, stream=2)


@test(_P)
def spec210_fails_with_and_without_demand(target: Target) -> None:
    """OnError comes with a request and without one."""
    probe = target.greeted()
    probe.subscribe("check/fail?n=0", 1)
    probe.fails(1)
    probe.subscribe("check/fail?n=0", 2, 9)
    probe.fails(2)


@test(_P)
def elements_come_as_they_are_there(target: Target) -> None:
    """A publisher with its own rhythm does not wait until demand can be met."""
    probe = target.subscribed("check/slow?n=3", 100)
    probe.rest(0, 3)
    probe.subscribe("check/slow?n=100000", 2, 100_000)
    probe.numbers(0, 3, stream=2)


@test(_P)
def streams_interleave(target: Target) -> None:
    """Three streams, a request here and there: each brings its own elements."""
    probe = target.greeted()
    for number in (1, 2, 3):
        probe.subscribe("check/count?n=6", number)
    for step in range(3):
        for number in (2, 1, 3):
            probe.say(Request(number, 2))
            probe.numbers(2 * step, 2 * step + 2, stream=number)
            if step == 2:
                probe.completes(number)


@test(_P)
def streams_end_apart(target: Target) -> None:
    """One stream fails, another completes, a third goes on."""
    probe = target.greeted()
    probe.subscribe("check/count?n=2", 1)
    probe.subscribe("check/fail?n=2", 2)
    probe.subscribe("check/endless", 3)
    probe.say(Request(2, 9))
    probe.numbers(0, 2, stream=2)
    probe.fails(2)
    probe.say(Request(1, 9))
    probe.rest(0, 2)
    probe.say(Request(3, 9))
    probe.numbers(0, 9, stream=3)


@test(_P)
def clients_are_served_apart(target: Target) -> None:
    """Several clients, one behind the other and at once, each with its own streams."""
    for _ in range(3):
        probe = target.subscribed("check/count?n=3", 3)
        probe.rest(0, 3)
        probe.alive()
        probe.close()
    probes = [target.subscribed("check/endless", 5) for _ in range(5)]
    for probe in reversed(probes):
        probe.numbers(0, 5)
    for probe in probes:
        require(probe.settled() == [], "elements that nobody requested here")
        probe.say(Request(1, 3))
        probe.numbers(5, 8)


@test(_P)
def fixed_size_is_kept(target: Target) -> None:
    """A stream of a fixed size carries elements of just that."""
    probe = target.greeted()
    for number, size in enumerate((8, 4, 1), 1):
        probe.say(Subscribe(f"check/count?n=600&size={size}", number, 600))
        probe.exactly(OnSubscribe(number, size))
        wanted = [(each % (1 << 8 * size)).to_bytes(size) for each in range(600)]
        require(probe.elements(600, number) == wanted, "other elements")
        probe.completes(number)


@test(_P)
def large_elements_are_whole(target: Target) -> None:
    """Large elements have all their octets, in parts or not."""
    probe = target.subscribed(f"check/large?n=3&octets={_LARGE}", 3)
    for element in probe.elements(3):
        require(len(element) == _LARGE, f"an element of {len(element)} octets")
    probe.completes()


@test(_P)
def cancel_within_large_elements(target: Target) -> None:
    """A stream of large elements may be cancelled within one; nothing else is hurt."""
    probe = target.subscribed(f"check/large?n=1000&octets={_LARGE}", 50)
    probe.elements(1)
    probe.say(Cancel(1), Subscribe("check/count?n=3", 2, 3))
    while isinstance(heard := probe.hear(), Element) and heard.subscriber == 1:
        require(len(heard.data) == _LARGE, "a cut element")
    require(heard == OnSubscribe(2, 0), f"expected onSubscribe(2, 0), got {heard}")
    probe.rest(0, 3, stream=2)
    probe.silent()


@test(_P)
def large_elements_leave_others_their_turns(target: Target) -> None:
    """No more than 16 KiB of an element of 1 MB come between two of a stream of numbers."""
    _takes_turns(target, count=1, octets=_MANY)


@test(_P)
def many_elements_leave_others_their_turns(target: Target) -> None:
    """The same of 1 MB in small elements, which a publisher may have all at once."""
    _takes_turns(target, count=_MANY // 4000, octets=4000)


def _takes_turns(target: Target, count: int, octets: int) -> None:
    probe = target.subscribed("check/endless", _PATIENT)
    probe.elements(1)
    probe.say(Subscribe(f"check/large?n={count}&octets={octets}", 2, count))
    numbers = 1
    while not isinstance(heard := probe.hear(), OnComplete):
        if isinstance(heard, Element) and heard.subscriber == 1:
            numbers += 1
            what = f"{numbers} elements of another, and the large stream is not over"
            require(numbers < _PATIENT, what)
        elif isinstance(heard, Element):
            require(len(heard.data) == octets, f"{len(heard.data)} octets")
        elif heard != OnSubscribe(2, 0):
            raise Failed(f"expected an element, got {heard and spell(heard)}")
    run = probe.watch.longest_run.get(2, 0)
    require(run <= _TURN, f"{run} octets of one stream, and another had elements")


@test(_P)
def id_is_free_after_a_terminal(target: Target) -> None:
    """An Id may be used again after onComplete and after onError."""
    probe = target.subscribed("check/count?n=0")
    probe.completes()
    probe.subscribe("check/fail?n=0", 1)
    probe.fails()
    probe.subscribe("check/count?n=2", 1, 2)
    probe.rest(0, 2)


@test(_P)
def id_is_free_after_cancel(target: Target) -> None:
    """An Id may be used again after a cancel; the new stream has only its own demand."""
    probe = target.subscribed("check/never", 50)
    probe.say(Cancel(1))
    probe.settled()
    probe.subscribe("check/endless", 1, 2)
    probe.numbers(0, 2)
    probe.silent()


@test(_P)
def subscriber_that_goes_costs_no_other(target: Target) -> None:
    """A subscriber that is reset within its stream ends no other."""
    other = target.subscribed("check/endless", 3)
    probe = target.subscribed("check/endless", 2**62)
    probe.elements(10)
    probe.link.reset()
    other.numbers(0, 3)
    other.say(Request(1, 2))
    other.numbers(3, 5)


@test(_P)
def packed_and_single_elements_are_one_stream(target: Target) -> None:
    """Whether elements come packed or not, they are the same stream, in order."""
    probe = target.greeted()
    probe.subscribe("check/count?n=64&size=4", 1)
    found: list[int] = []
    for demand in (1, 2, 30, 1, 30):
        probe.say(Request(1, demand))
        found += [int.from_bytes(each) for each in probe.elements(demand)]
    require(found == list(range(64)), "other elements, or another order")
    probe.completes()


@test(_P)
def request_may_follow_subscribe_at_once(target: Target) -> None:
    """A request need not wait for onSubscribe, nor a cancel."""
    probe = target.greeted()
    probe.say(Subscribe("check/count?n=2", 1, 0), Request(1, 5))
    probe.accepted()
    probe.rest(0, 2)
    probe.say(Subscribe("check/never", 2, 0), Cancel(2))
    for heard in probe.settled():
        require(isinstance(heard, OnSubscribe | OnComplete | OnError), f"got {heard}")
