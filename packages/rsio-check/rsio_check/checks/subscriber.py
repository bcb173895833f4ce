"""Tests of a subscriber: the signals of its streams, legal and not."""

from __future__ import annotations

from rsio_check import wire
from rsio_check.probe import Probe, Target, require
from rsio_check.registry import Role, test
from rsio_check.watch import Asked, Element
from rsio_check.wire import OnComplete, OnError, OnNext, OnSubscribe, Request, Subscribe

_S = Role.SUBSCRIBER
_JSON = b'{"rsio-check":true}'
_NEVER = 2**50


def _next(asked: Asked, count: int = 1) -> list[OnNext]:
    if asked.size:
        return [OnNext(asked.subscriber, bytes(asked.size), fixed=True)] * count
    return [OnNext(asked.subscriber, _JSON)] * count


def _overrun(target: Target, size: int = 0) -> tuple[Probe, Asked]:
    """A stream that the target has cancelled, because it got too much."""
    probe, asked = target.published(size)
    probe.say(*_next(asked, asked.demand + 1))
    probe.cancels(asked)
    return probe, asked


@test(_S)
def spec201_demand_is_signalled(target: Target) -> None:
    """The subscriber asks for elements, at once or when it was accepted."""
    _, asked = target.published()
    require(asked.demand > 0, "no demand")


@test(_S)
def spec203_nothing_answers_on_complete(target: Target) -> None:
    """No request and no cancel in reply to onComplete."""
    probe, asked = target.published()
    probe.say(*_next(asked), OnComplete(asked.subscriber))
    probe.unaffected()


@test(_S)
def spec203_nothing_answers_on_error(target: Target) -> None:
    """No request and no cancel in reply to onError."""
    probe, asked = target.published()
    probe.say(*_next(asked), OnError(asked.subscriber, "E500 gone"))
    probe.unaffected()


@test(_S)
def spec205_second_on_subscribe_ends(target: Target) -> None:
    """A second onSubscribe: cancel, and the conversation ends."""
    probe, asked = target.published()
    probe.say(OnSubscribe(asked.subscriber, 0))
    probe.cancels(asked)
    probe.ends()


@test(_S)
def spec208_late_elements_are_dropped(target: Target) -> None:
    """Elements that cross the cancel are read and dropped, in any form."""
    probe, asked = _overrun(target)
    number = asked.subscriber
    probe.say(*_next(asked, 5), wire.OnNextPart(number, 1, b"x"))
    probe.say(wire.OnNextLastPart(number, 1, b"y"), wire.OnNextPart(number, 2, b"z"))
    probe.unaffected()


@test(_S)
def spec208_late_elements_keep_their_size(target: Target) -> None:
    """Late elements of a cancelled stream are read with the elementSize that it had."""
    probe, asked = _overrun(target, 3)
    probe.say(*_next(asked, 2))
    probe.say(wire.OnNext(asked.subscriber, b"\x7f\x00\xff", fixed=True))
    probe.say(wire.OnNextPacked(asked.subscriber, 2, b"\x7f\x00\xff" * 2))
    probe.unaffected()


@test(_S)
def spec108_terminal_may_follow_cancel(target: Target) -> None:
    """The target takes a terminal after its cancel, and its absence too."""
    probe, asked = _overrun(target)
    probe.say(OnComplete(asked.subscriber))
    probe.unaffected()
    probe, _ = _overrun(target)
    probe.unaffected()


@test(_S)
def cancelled_stream_ends_with_its_terminal(target: Target) -> None:
    """The Id of a cancelled stream is not known any more behind its terminal."""
    probe, asked = _overrun(target)
    probe.say(OnComplete(asked.subscriber))
    probe.octets(wire.encode(OnNext(asked.subscriber, _JSON)))
    probe.ends()


@test(_S)
def spec209_stream_may_end_at_once(target: Target) -> None:
    """A stream may complete, or fail, before any element."""
    for terminal in (OnComplete, lambda number: OnError(number, "E404 nothing here")):
        probe, asked = target.published()
        probe.say(terminal(asked.subscriber))
        probe.unaffected()


@test(_S)
def spec109_element_before_on_subscribe_ends(target: Target) -> None:
    """An element before onSubscribe ends the conversation, and so does a part."""
    for make in (
        lambda number: OnNext(number, b"x"),
        lambda number: wire.OnNextPart(number, 1, b"x"),
        lambda number: wire.OnNextLastPart(number, 1, b"x"),
    ):
        probe = target.greeted()
        probe.say(make(probe.asked()[0].subscriber))
        probe.ends()


@test(_S)
def spec109_terminal_before_on_subscribe_ends(target: Target) -> None:
    """A terminal before onSubscribe ends the conversation."""
    for make in (OnComplete, lambda number: OnError(number, "E500 x")):
        probe = target.greeted()
        probe.say(make(probe.asked()[0].subscriber))
        probe.ends()


@test(_S)
def spec107_signal_after_terminal_ends(target: Target) -> None:
    """Any signal after a stream's terminal ends the conversation."""
    for make in (
        OnComplete, lambda number: OnError(number, "E500 x"),
        lambda number: OnNext(number, b"x"), lambda number: OnSubscribe(number, 0),
        lambda number: wire.OnNextPart(number, 1, b"x"),
    ):  # fmt: skip
        probe, asked = target.published()
        probe.say(OnComplete(asked.subscriber))
        probe.octets(wire.encode(make(asked.subscriber)))
        probe.ends()


@test(Role.CONNECTION)
def signals_for_unknown_ids_end(target: Target) -> None:
    """Signals for an Id that was never subscribed end the conversation."""
    target.rejects(
        OnSubscribe(_NEVER, 0), OnComplete(_NEVER), OnError(_NEVER, "x"),
        OnNext(_NEVER, b"x"), wire.OnNextPart(_NEVER, 1, b"x"),
        wire.OnNextLastPart(_NEVER, 1, b"x"), wire.OnNextPacked(_NEVER, 1, b"x"),
    )  # fmt: skip


@test(_S)
def packed_elements_need_a_size(target: Target) -> None:
    """An onNextPacked in a stream without a fixed size ends the conversation."""
    probe, asked = target.published()
    probe.octets(wire.encode(wire.OnNextPacked(asked.subscriber, 2, b"abcd")))
    probe.ends()


@test(_S)
def packs_of_none_do_nothing(target: Target) -> None:
    """An onNextPacked of no element is allowed, and takes no demand."""
    probe, asked = target.published(4)
    probe.say(*[wire.OnNextPacked(asked.subscriber, 0, b"")] * 50)
    probe.unaffected()


@test(_S)
def own_ids_are_not_reused(target: Target) -> None:
    """The target's own Ids differ."""
    probe = target.greeted()
    probe.asked()
    probe.settled()
    require(
        len(probe.watch.asked) == target.subscriptions, "subscribes with one Id twice"
    )


@test(_S)
def same_id_both_ways_is_two_streams(target: Target) -> None:
    """The same Id in both directions names two streams."""
    probe, asked = target.published()
    number, window = asked.subscriber, asked.demand
    probe.subscribe("check/no-such-publisher", number, 1)
    probe.fails(number)
    probe.say(*_next(asked, window))
    probe.granted(asked, window)
    probe.say(wire.Cancel(number), Request(number, 1))
    probe.say(*_next(asked, window))
    probe.granted(asked, window)


@test(_S)
def both_roles_at_once(target: Target) -> None:
    """One element, many, none, an error: in both directions at once."""
    ends = {"count?n=1": 1, "count?n=9": 9, "count?n=0": 0, "fail?n=2": 2}
    for theirs, elements in ends.items() if target.publishers else ():
        for ours, terminal in ((1, OnComplete), (9, OnComplete), (0, OnComplete),
                               (2, OnError)):  # fmt: skip
            probe, asked = target.published()
            number = asked.subscriber
            end = (
                OnComplete(number)
                if terminal is OnComplete
                else OnError(number, "E5 x")
            )
            sent = _next(asked, min(ours, asked.demand))
            probe.say(*sent, Subscribe(f"check/{theirs}", number, 20), end)
            found = 0
            while not isinstance(heard := probe.hear(), OnComplete | OnError):
                require(heard is not None, "the stream does not end")
                found += isinstance(heard, Element)
            require(found == elements, f"{found} elements of {theirs}")
            probe.alive()


@test(_S)
def reset_within_an_element_harms_no_other(target: Target) -> None:
    """A publisher that is reset within an element costs itself and no other."""
    other, asked = target.published()
    window = asked.demand
    probe, doomed = target.published()
    probe.octets(wire.encode(OnNext(doomed.subscriber, _JSON))[:-3])
    probe.link.reset()
    other.say(*_next(asked, window))
    other.granted(asked, window)


@test(_S)
def next_connection_asks_for_a_whole_window(target: Target) -> None:
    """The next connection is asked for the same again, the whole window."""
    probe, asked = target.published()
    probe.say(*_next(asked, min(3, asked.demand)))
    probe.close()
    again = target.greeted().asked()[0]
    require(
        (again.publisher, again.window) == (asked.publisher, asked.window),
        f"asks for {again.window} of {again.publisher!r}",
    )
