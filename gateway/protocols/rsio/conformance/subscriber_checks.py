"""Conformance checks of a subscriber: the probe publishes what it subscribes to."""

from __future__ import annotations

from gateway.protocols.rsio import wire
from gateway.protocols.rsio.conformance.probe import (
    Failed,
    Probe,
    Target,
    Unavailable,
    require,
)
from gateway.protocols.rsio.conformance.registry import Role, check
from gateway.protocols.rsio.messages import (
    Cancel,
    Goodbye,
    OnComplete,
    OnError,
    OnNextLastPart,
    OnNextPart,
    OnSubscribe,
    Request,
    Subscribe,
)

__all__: list[str] = []

_MANY = 100_000
_S = Role.SUBSCRIBER
_JSON = b'{"rsio-check":true}'


class NotCancelled(Unavailable):
    """The target does not cancel: a failure of test 54, and no other can be made."""


def _next(number: int, count: int = 1) -> bytes:
    return wire.on_next(number, [_JSON] * count)


def _granted(probe: Probe, number: int, at_least: int) -> int:
    """Expect requests until *at_least* so much demand was added; returns the sum."""
    granted = 0
    while granted < at_least:
        request = probe.expect(Request)
        require(request.subscriber == number, "request for another stream")
        require(0 < request.demand < 2**63, "demand is not positive (3.9)")
        granted += request.demand
    return granted


def _window(asked: Subscribe) -> int:
    if asked.demand > _MANY:
        raise Unavailable(f"a window of {asked.demand} is too large to be filled")
    return asked.demand


@check(1, _S)
def _credit(target: Target) -> None:
    """Demand is renewed as elements are taken, one unit each, in whatever form they came."""
    probe, asked = target.published(8)
    number, window = asked.subscriber, _window(asked)
    half = window // 2
    probe.say(wire.on_next_packed(number, half, bytes(8 * half)))
    probe.say(wire.on_next(number, [bytes(8)] * (window - half - 1), fixed=True))
    probe.say(OnNextPart(number, 1, b"1234"), OnNextLastPart(number, 1, b"5678"))
    require(_granted(probe, number, window) == window, "another number of elements")


@check(7, _S)
def _no_terminal(target: Target) -> None:
    """A terminal after the target's cancel breaks nothing, nor does its absence."""
    probe, number = _cancelled(target)
    probe.say(OnComplete(number))
    probe.unaffected()


@check(10, _S)
def _demand(target: Target) -> None:
    """The subscriber signals demand."""
    probe, asked = target.published()
    if not asked.demand:
        _granted(probe, asked.subscriber, 1)


@check(11, _S)
def _after_terminal(target: Target) -> None:
    """No request and no cancel in reply to onComplete or onError."""
    for terminal in (OnComplete, lambda number: OnError(number, "E500 gone")):
        probe, asked = target.published()
        number = asked.subscriber
        probe.say(_next(number, min(1, asked.demand)), terminal(number))
        probe.unaffected()


@check(12, _S)
def _second(target: Target) -> None:
    """A second onSubscribe: cancel, and goodbye."""
    probe, asked = target.published()
    probe.say(OnSubscribe(asked.subscriber, 0))
    probe.exactly(Cancel(asked.subscriber))
    probe.ends_conversation()


def _cancelled(target: Target, size: int = 0) -> tuple[Probe, int]:
    """Send more than requested, so that the target cancels; returns the stream's Id."""
    probe, asked = target.published(size)
    number, window = asked.subscriber, _window(asked)
    if size:
        probe.say(wire.on_next(number, [bytes(size)] * (window + 1), fixed=True))
    else:
        probe.say(_next(number, window + 1))
    while not isinstance(heard := probe.hear(), Cancel):
        if not isinstance(heard, Request):
            raise NotCancelled("the target does not cancel when it gets too much")
    require(heard.subscriber == number, "cancel of another stream")
    return probe, number


@check(13, _S)
def _late(target: Target) -> None:
    """Elements that cross the cancel are ignored."""
    probe, number = _cancelled(target)
    probe.say(_next(number, 5), OnNextPart(number, 1, b"x"))
    probe.unaffected()


@check(14, _S)
def _at_once(target: Target) -> None:
    """A stream may fail before any element."""
    probe, asked = target.published()
    probe.say(OnError(asked.subscriber, "E404 nothing here"))
    probe.unaffected()


@check(30, _S)
def _pairs(target: Target) -> None:
    """One element, many, none, an error: in both directions at once."""
    ends = {
        "check/count?n=1": 1, "check/count?n=9": 9, "check/count?n=0": 0,
        "check/fail?n=2": 2,
    }  # fmt: skip
    for theirs, elements in ends.items() if target.publishers else ():
        for ours, terminal in ((1, OnComplete), (9, OnComplete), (0, OnComplete),
                               (2, OnError)):  # fmt: skip
            probe, asked = target.published()
            number = asked.subscriber
            end = (
                OnComplete(number) if terminal is OnComplete else OnError(number, "E5")
            )
            probe.say(_next(number, ours), Subscribe(theirs, number, 20), end)
            found = 0
            while not isinstance(heard := probe.hear(), OnComplete | OnError):
                require(heard is not None, "the stream does not end")
                found += hasattr(heard, "element")
            require(found == elements, "another number of elements")
            probe.alive()


@check(32, _S)
def _again(target: Target) -> None:
    """After a disconnection a new subscription grants a whole window again."""
    probe, asked = target.published()
    probe.say(_next(asked.subscriber, min(3, asked.demand)))
    probe.close()
    again = target.greeted().subscription()
    require(
        (again.publisher, again.demand) == (asked.publisher, asked.demand),
        "asks for something else",
    )


@check(37, _S)
def _too_large(target: Target) -> None:
    """An element that claims 2^40 octets is refused at once."""
    probe, asked = target.published()
    probe.say(b"\x21" + wire.varint(asked.subscriber) + wire.varint(2**40))
    probe.ends_conversation()


@check(37, _S)
def _too_large_part(target: Target) -> None:
    """A part that claims 2^40 octets is refused at once."""
    probe, asked = target.published()
    head = b"\x25" + wire.varint(asked.subscriber) + b"\x01"
    probe.say(head + wire.varint(2**40))
    probe.ends_conversation()


@check(46, _S)
def _fixed(target: Target) -> None:
    """Packed elements in a stream without a fixed size are refused."""
    probe, asked = target.published()
    probe.say(wire.on_next_packed(asked.subscriber, 2, b"abcd"))
    probe.ends_conversation()


@check(46, _S)
def _none_packed(target: Target) -> None:
    """A packed message of no elements is ignored."""
    probe, asked = target.published(4)
    probe.say(wire.on_next_packed(asked.subscriber, 0, b""))
    probe.unaffected()


@check(46, _S)
def _overflow(target: Target) -> None:
    """A count times a size beyond all limits is refused at once."""
    probe, asked = target.published(8)
    probe.say(b"\x24" + wire.varint(asked.subscriber) + wire.varint(2**61 + 1))
    probe.ends_conversation()


@check(47, _S)
def _parts(target: Target) -> None:
    """Parts of two elements may interleave; each element takes one unit of demand."""
    probe, asked = target.published()
    number = asked.subscriber
    if asked.demand < 2:
        raise Unavailable("the target asks for less than two elements")
    probe.say(OnNextPart(number, 1, b'{"a"'), OnNextPart(number, 2, b'{"b"'))
    probe.say(OnNextLastPart(number, 2, b":2}"), OnNextLastPart(number, 1, b":1}"))
    probe.say(_next(number, max(0, _window(asked) - 2)))
    require(_granted(probe, number, asked.demand) == asked.demand, "another number")


@check(47, _S)
def _unfinished(target: Target) -> None:
    """A stream may end inside a split element."""
    probe, asked = target.published()
    probe.say(OnNextPart(asked.subscriber, 1, b"x"), OnComplete(asked.subscriber))
    probe.unaffected()


@check(47, _S)
def _endless_parts(target: Target) -> None:
    """A split element that never ends gets its stream cancelled."""
    probe, asked = target.published()
    part = wire.encode(OnNextPart(asked.subscriber, 1, b"x" * 60_000))
    for _ in range(2000):
        probe.say(part)
        if (heard := probe.hear(0.001)) is not None:
            require(
                isinstance(heard, Cancel | Goodbye), f"expected cancel, got {heard}"
            )
            return
    raise Unavailable("the target takes elements of 100 MB")


@check(47, _S)
def _total(target: Target) -> None:
    """Parts that do not join to the fixed size end the conversation."""
    probe, asked = target.published(8)
    number = asked.subscriber
    probe.say(OnNextPart(number, 1, b"1234"), OnNextLastPart(number, 1, b"56"))
    probe.ends_conversation()


@check(48, _S)
def _old_size(target: Target) -> None:
    """Late elements of a cancelled stream are read with the size they have."""
    probe, number = _cancelled(target, size=3)
    probe.say(wire.on_next(number, [b"\x7f\x00\xff"] * 2, fixed=True))
    probe.say(wire.on_next_packed(number, 2, b"\x7f\x00\xff" * 2))
    probe.unaffected()


@check(50, _S)
def _both_ways(target: Target) -> None:
    """The same Id in both directions names two streams."""
    probe, asked = target.published()
    number = asked.subscriber
    probe.say(Subscribe("check/no-such-publisher", number, 1))
    probe.exactly(OnSubscribe(number, 0))
    require(probe.expect(OnError).subscriber == number, "onError for another stream")
    probe.say(_next(number, _window(asked)))
    _granted(probe, number, 1)


@check(52, _S)
def _reset(target: Target) -> None:
    """A reset inside an element costs that connection and no other."""
    other, asked = target.published()
    probe, doomed = target.published()
    probe.say(_next(doomed.subscriber)[:-3])
    probe.reset()
    other.say(_next(asked.subscriber, _window(asked)))
    _granted(other, asked.subscriber, 1)


@check(53, _S)
def _window_holds(target: Target) -> None:
    """Never more is requested than has arrived; in the end, as much as has."""
    probe, asked = target.published()
    number, window = asked.subscriber, _window(asked)
    sent = granted = 0
    for count in (1, window // 2, window // 4, 1):
        count = min(count, window + granted - sent)  # noqa: PLW2901 - within demand
        probe.say(_next(number, count))
        sent += count
        while (heard := probe.hear(0.2)) is not None:
            require(isinstance(heard, Request), f"expected request, got {heard}")
            granted += heard.demand if isinstance(heard, Request) else 0
        require(granted <= sent, f"{granted} asked for again, {sent} sent")
    require(granted == sent, f"{sent} sent, {granted} acknowledged")


@check(54, _S)
def _overrun(target: Target) -> None:
    """Too many elements get the stream cancelled; the second time, the connection ends."""
    try:
        probe, _ = _cancelled(target)
    except NotCancelled as why:
        raise Failed(str(why)) from None
    if len(probe.subscriptions) > 1:
        second = probe.subscriptions[1]
        probe.say(OnSubscribe(second.subscriber, 0))
        probe.say(_next(second.subscriber, _window(second) + 1))
        probe.ends_conversation()
