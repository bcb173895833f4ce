"""Tests of split elements and of elements of a fixed size, as the target reads them."""

from __future__ import annotations

from rsio_check import wire
from rsio_check.probe import NotJudged, Probe, Target
from rsio_check.registry import Role, test
from rsio_check.watch import Asked
from rsio_check.wire import OnComplete, OnError, OnNext, OnNextLastPart, OnNextPart

_S = Role.SUBSCRIBER


def _published(target: Target, least: int, words: str) -> tuple[Probe, Asked, int, int]:
    """A stream, its number, and its demand: *least* elements, in *words*, or more."""
    probe, asked = target.published()
    if asked.demand < least:
        raise NotJudged(f"the target asks for less than {words} elements")
    return probe, asked, asked.subscriber, asked.demand


@test(_S)
def parts_of_elements_may_interleave(target: Target) -> None:
    """Parts of two elements may interleave; each element takes one unit."""
    probe, asked, number, window = _published(target, 2, "two")
    probe.say(OnNextPart(number, 1, b'{"a"'), OnNextPart(number, 2, b'{"b"'))
    probe.say(OnNextLastPart(number, 2, b":2}"), OnNextLastPart(number, 1, b":1}"))
    probe.say(*[OnNext(number, b"{}")] * (window - 2))
    probe.granted(asked, window)


@test(_S)
def parts_may_be_empty(target: Target) -> None:
    """Parts may be empty, and an element may be its last part alone."""
    probe, asked, number, window = _published(target, 2, "two")
    probe.say(OnNextPart(number, 1, b""), OnNextPart(number, 1, b"{}"))
    probe.say(OnNextLastPart(number, 1, b""), OnNextLastPart(number, 2, b"{}"))
    probe.granted(asked, window)


@test(_S)
def element_ids_may_be_used_again(target: Target) -> None:
    """An element's Id is free when it is whole; two streams may use the same."""
    probe, asked = target.published()
    number, window = asked.subscriber, asked.demand
    for _ in range(3):
        probe.say(OnNextPart(number, 2**64 - 1, b"{"))
        probe.say(OnNextLastPart(number, 2**64 - 1, b"}"))
        probe.granted(asked, window)


@test(_S)
def whole_elements_may_come_between_parts(target: Target) -> None:
    """Whole elements may come between the parts of another."""
    probe, asked, number, window = _published(target, 3, "three")
    probe.say(OnNextPart(number, 1, b"{"), OnNext(number, b"{}"))
    probe.say(OnNextPart(number, 1, b" "), OnNext(number, b"{}"))
    probe.say(OnNextLastPart(number, 1, b"}"))
    probe.granted(asked, window)


@test(_S)
def stream_may_end_within_an_element(target: Target) -> None:
    """A terminal drops unfinished elements, and is no violation."""
    for terminal in (OnComplete, lambda number: OnError(number, "E500 x")):
        probe, asked = target.published()
        probe.say(OnNextPart(asked.subscriber, 1, b"x"), terminal(asked.subscriber))
        probe.unaffected()


@test(_S)
def parts_of_a_fixed_size_join_to_it(target: Target) -> None:
    """A stream of fixed size: parts of more or fewer octets end the conversation."""
    for last in (b"56", b"56789"):
        probe, asked = target.published(8)
        probe.say(OnNextPart(asked.subscriber, 1, b"1234"))
        probe.octets(wire.encode(OnNextLastPart(asked.subscriber, 1, last)))
        probe.ends()


@test(_S)
def sizes_of_streams_are_their_own(target: Target) -> None:
    """Two streams of different sizes, one of none: each is read with its own."""
    probe = target.greeted()
    first, second = probe.asked(2)
    probe.accept(first, 3)
    probe.accept(second, 0)
    windows = first.demand, second.demand
    probe.say(
        OnNext(first.subscriber, b"abc", fixed=True), OnNext(second.subscriber, b"{}"),
        wire.OnNextPacked(first.subscriber, 2, b"abcdef"),
        OnNext(second.subscriber, b"!" * 33),
    )  # fmt: skip
    probe.renewed((first, windows[0]), (second, windows[1]))
    probe.unaffected()


@test(_S)
def elements_may_be_empty(target: Target) -> None:
    """An element may have no octets."""
    probe, asked = target.published()
    window = asked.demand
    probe.say(*[OnNext(asked.subscriber, b"")] * window)
    probe.granted(asked, window)
