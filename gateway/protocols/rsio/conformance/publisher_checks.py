"""Conformance checks of a publisher: the probe subscribes to `check/…`."""

from __future__ import annotations

from gateway.protocols.rsio.conformance.probe import Next, Target, require
from gateway.protocols.rsio.conformance.registry import Role, check
from gateway.protocols.rsio.messages import (
    Cancel,
    OnComplete,
    OnError,
    OnSubscribe,
    Request,
    Subscribe,
)

__all__: list[str] = []

_UNBOUNDED = 2**63 - 1
_NEGATIVE = 2**64 - 1
_IN_FLIGHT = 10_000_000
"""Elements that may be on their way when cancel is sent."""
_P = Role.PUBLISHER


@check(1, _P)
def _exactly(target: Target) -> None:
    """request(n) yields n elements and then silence."""
    probe = target.subscribed("check/endless", 3)
    probe.expect_numbers(0, 3)
    probe.silent()
    probe.say(Request(1, 5))
    probe.expect_numbers(3, 8)
    probe.silent()


@check(1, _P)
def _exactly_packed(target: Target) -> None:
    """Packed elements count one each."""
    probe = target.subscribed("check/count?n=1000&size=4", 10)
    require(len(probe.elements(10)) == 10, "not ten")
    probe.silent()


@check(1, _P)
def _exactly_split(target: Target) -> None:
    """An element in parts counts one."""
    probe = target.subscribed("check/large?n=3&octets=200000", 2)
    require([len(one) for one in probe.elements(2)] == [200_000] * 2, "other sizes")
    probe.silent()


@check(2, _P)
def _fewer(target: Target) -> None:
    """A stream may end before its demand is met."""
    probe = target.subscribed("check/count?n=2", 10)
    probe.elements(2)
    probe.expect_complete()


@check(3, _P)
def _serial(target: Target) -> None:
    """A thousand elements come in order, however they were asked for."""
    probe = target.subscribed("check/endless")
    for _ in range(100):
        probe.say(Request(1, 3), Request(1, 7))
    probe.expect_numbers(0, 1000)


@check(4, _P)
def _failure(target: Target) -> None:
    """A failure is told by onError."""
    probe = target.subscribed("check/fail?n=1", 5)
    probe.elements(1)
    probe.expect_error()


@check(5, _P)
def _finite(target: Target) -> None:
    """A finite stream ends with onComplete."""
    probe = target.subscribed("check/count?n=3", 3)
    probe.elements(3)
    probe.expect_complete()


@check(5, _P)
def _empty(target: Target) -> None:
    """optional_spec105: an empty stream completes without demand."""
    probe = target.subscribed("check/count?n=0")
    probe.expect_complete()


@check(6, _P)
def _nothing_after(target: Target) -> None:
    """Nothing follows onComplete or onError, whatever is asked."""
    probe = target.subscribed("check/count?n=1", 1)
    probe.elements(1)
    probe.expect_complete()
    probe.subscribe("check/fail?n=0", 2, 1)
    probe.expect_error(2)
    probe.say(Request(1, 5), Request(2, 5), Cancel(1), Cancel(2))
    probe.silent()


@check(8, _P)
def _unknown(target: Target) -> None:
    """An unknown publisher is an onSubscribe and an onError."""
    probe = target.greeted()
    probe.subscribe("check/no-such-publisher", 7, 1)
    probe.expect_error(7)
    probe.alive()


@check(9, _P)
def _two(target: Target) -> None:
    """Two subscribers of one publisher get the same, in the same order."""
    probe = target.greeted()
    probe.subscribe("check/count?n=50", 1)
    probe.subscribe("check/count?n=50", 2)
    probe.say(Request(1, 50))
    probe.expect_numbers(0, 50, stream=1)
    probe.expect_complete()
    probe.say(Request(2, 50))
    probe.expect_numbers(0, 50, stream=2)
    probe.expect_complete(2)


@check(14, _P)
def _terminal(target: Target) -> None:
    """OnComplete and onError come with and without a request."""
    probe = target.subscribed("check/count?n=0", 9)
    probe.expect_complete()
    probe.subscribe("check/fail?n=0", 2)
    probe.expect_error(2)


@check(15, _P)
def _deep(target: Target) -> None:
    """Ten thousand requests of one element each, all at once."""
    probe = target.subscribed("check/endless")
    probe.say(*[Request(1, 1)] * 10_000)
    probe.expect_numbers(0, 10_000)
    probe.silent()


@check(16, _P)
def _no_ops(target: Target) -> None:
    """Request and cancel after cancel do nothing."""
    probe = target.subscribed("check/endless")
    probe.say(Cancel(1), Request(1, 5), Cancel(1), Cancel(1), Request(1, 0))
    probe.unaffected()


@check(17, _P)
def _add_up(target: Target) -> None:
    """Requests add up, the first demand included."""
    probe = target.greeted()
    probe.say(Subscribe("check/endless", 1, 2), Request(1, 3), Request(1, 4))
    probe.exactly(OnSubscribe(1, 0))
    probe.elements(9)
    probe.silent()


@check(18, _P)
def _not_positive(target: Target) -> None:
    """request(0) and request(-1) end the stream with an onError that names rule 3.9."""
    probe = target.greeted()
    for number, demand in ((1, 0), (2, _NEGATIVE), (3, 2**63)):
        probe.subscribe("check/endless", number)
        probe.say(Request(number, demand))
        require("3.9" in probe.expect_error(number), "onError does not name 3.9")
        probe.say(Request(number, 1))
        probe.silent()


@check(18, _P)
def _not_positive_at_once(target: Target) -> None:
    """A negative first demand is an onSubscribe and such an onError."""
    probe = target.subscribed("check/endless", _NEGATIVE)
    require("3.9" in probe.expect_error(), "onError does not name 3.9")


@check(19, _P)
def _stops(target: Target) -> None:
    """Cancel stops even an unbounded stream."""
    probe = target.subscribed("check/endless", _UNBOUNDED)
    probe.elements(100)
    probe.say(Cancel(1), Subscribe("check/count?n=0", 2, 0))
    last = None
    for _ in range(_IN_FLIGHT):
        heard = probe.hear()
        if not isinstance(heard, Next):
            last = heard
            break
    require(last == OnSubscribe(2, 0), f"expected onSubscribe(2), got {last}")
    probe.expect_complete(2)
    probe.silent()


@check(21, _P)
def _unbounded(target: Target) -> None:
    """2^63-1, twice, and many more requests: no error, no wrap."""
    probe = target.subscribed("check/count?n=500", _UNBOUNDED)
    probe.say(*[Request(1, _UNBOUNDED)] * 3, *[Request(1, 1)] * 20)
    probe.elements(500)
    probe.expect_complete()


@check(21, _P)
def _unbounded_before(target: Target) -> None:
    """The same while nothing can be delivered yet."""
    probe = target.subscribed("check/never")
    probe.say(*[Request(1, _UNBOUNDED)] * 5, *[Request(1, 2**62)] * 5)
    probe.unaffected()


@check(21, _P)
def _no_wrap(target: Target) -> None:
    """Demand that sums up to 2^63, 2^64 or a little more is not little, nor negative."""
    for number, more in enumerate(([1], [2], [_UNBOUNDED, 1], [_UNBOUNDED, 2, 1])):
        probe = target.greeted()
        probe.subscribe("check/slow?n=2", number)
        probe.say(*[Request(number, each) for each in (_UNBOUNDED, *more)])
        probe.expect_numbers(0, 2, stream=number)
        probe.expect_complete(number)


@check(22, _P)
def _active(target: Target) -> None:
    """A publisher with its own rhythm delivers each element when it has it."""
    probe = target.subscribed("check/slow?n=3", 100)
    probe.expect_numbers(0, 3)
    probe.expect_complete()
    probe.subscribe("check/slow?n=1000", 2, 1000)  # longer than we wait for one
    probe.expect_numbers(0, 3, stream=2)


@check(23, _P)
def _long_ago(target: Target) -> None:
    """Demand from before another stream's life is still honoured."""
    probe = target.subscribed("check/slow?n=2", 2)
    probe.subscribe("check/count?n=2", 2, 2)
    probe.expect_numbers(0, 2, stream=2)
    probe.expect_complete(2)
    probe.expect_numbers(0, 2, stream=1)
    probe.expect_complete()


@check(24, _P)
def _single(target: Target) -> None:
    """A single element: passed, failed, cancelled."""
    probe = target.subscribed("check/count?n=1", 1)
    probe.exactly(Next(1, b"0"), OnComplete(1))
    probe.subscribe("check/fail?n=0", 2, 1)
    probe.expect_error(2)
    probe.subscribe("check/count?n=1", 3)
    probe.say(Cancel(3), Request(3, 1))
    probe.silent()


@check(25, _P)
def _three(target: Target) -> None:
    """Three streams, a request here and there."""
    probe = target.greeted()
    for number in (1, 2, 3):
        probe.subscribe("check/count?n=6", number)
    for step in range(3):
        for number in (2, 1, 3):
            probe.say(Request(number, 2))
            probe.expect_numbers(2 * step, 2 * step + 2, stream=number)
            if step == 2:
                probe.expect_complete(number)


@check(26, _P)
def _kinds(target: Target) -> None:
    """Empty, single, multi, infinite, values and then an error."""
    probe = target.greeted()
    for number, length in ((1, 0), (2, 1), (3, 300)):
        probe.subscribe(f"check/count?n={length}", number, length + 1)
        probe.expect_numbers(0, length, stream=number)
        probe.expect_complete(number)
    probe.subscribe("check/endless", 4, 300)
    probe.elements(300, 4)
    probe.subscribe("check/fail?n=2", 5, 9)
    probe.elements(2, 5)
    probe.expect_error(5)


@check(27, _P)
def _four(target: Target) -> None:
    """request(4), four elements, two seconds of silence."""
    probe = target.subscribed("check/endless")
    probe.silent()
    probe.say(Request(1, 4))
    probe.elements(4)
    probe.silent(2.0)


@check(28, _P)
def _silence(target: Target) -> None:
    """cancel, then silence, though there was demand."""
    probe = target.subscribed("check/slow?n=3", 9)
    probe.elements(1)
    probe.say(Cancel(1))
    probe.silent(1.0)


@check(29, _P)
def _differently(target: Target) -> None:
    """One stream completes, the other fails; neither touches the other."""
    probe = target.greeted()
    probe.subscribe("check/count?n=2", 1)
    probe.subscribe("check/fail?n=2", 2)
    probe.say(Request(2, 9))
    probe.elements(2, 2)
    probe.expect_error(2)
    probe.say(Request(1, 9))
    probe.elements(2, 1)
    probe.expect_complete()


@check(31, _P)
def _clients(target: Target) -> None:
    """Several clients, one behind the other and at once."""
    for _ in range(3):
        probe = target.subscribed("check/count?n=3", 3)
        probe.elements(3)
        probe.alive()
        probe.close()
    probes = [target.greeted() for _ in range(5)]
    for probe in probes:
        probe.subscribe("check/endless", 1, 5)
    for probe in reversed(probes):
        probe.expect_numbers(0, 5)
        probe.silent(0.05)


@check(35, _P)
def _streams(target: Target) -> None:
    """Too many streams are rejected one by one; when one ends there is room again."""
    probe = target.greeted()
    opened = 0
    refused = False
    while opened < 5000 and not refused:
        opened += 1
        probe.say(Subscribe("check/never", opened, 0), Request(2**40, 1))
        probe.exactly(OnSubscribe(opened, 0))
        if opened >= 256:
            refused = isinstance(probe.hear(0.05), OnError)
    require(refused, "5000 streams were let in")
    probe.say(Cancel(1))
    probe.subscribe("check/count?n=0", 1)
    probe.expect_complete()


@check(36, _P)
def _live(target: Target) -> None:
    """A subscribe with an Id in use ends the connection (1.10)."""
    probe = target.greeted()
    probe.subscribe("check/never", 1)
    probe.say(Subscribe("check/never", 1, 0))
    probe.ends_conversation()


@check(46, _P)
def _packed(target: Target) -> None:
    """A stream of a fixed size carries exactly that."""
    probe = target.greeted()
    probe.say(Subscribe("check/count?n=600&size=8", 1, 600))
    require(probe.expect(OnSubscribe) == OnSubscribe(1, 8), "another size")
    found = probe.elements(600)
    require(found == [number.to_bytes(8) for number in range(600)], "others")
    probe.expect_complete()


@check(49, _P)
def _reuse(target: Target) -> None:
    """An Id is free after onComplete, onError and cancel."""
    probe = target.greeted()
    probe.subscribe("check/count?n=0", 1)
    probe.expect_complete()
    probe.subscribe("check/fail?n=0", 1)
    probe.expect_error()
    probe.subscribe("check/never", 1)
    probe.say(Cancel(1))
    probe.subscribe("check/count?n=2", 1, 2)
    probe.expect_numbers(0, 2)
