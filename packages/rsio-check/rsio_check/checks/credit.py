"""Tests of a subscriber's demand: what it renews, and what it does about too much."""

from __future__ import annotations

from collections.abc import Callable

from rsio_check import wire
from rsio_check.probe import NotJudged, Probe, Target, require
from rsio_check.registry import Role, test
from rsio_check.watch import Asked
from rsio_check.wire import OnNext, OnNextLastPart, OnNextPacked, OnNextPart, Request

_S = Role.SUBSCRIBER
_JSON = b"{}"
_MANY = 100_000


def _next(asked: Asked, count: int = 1) -> list[wire.Message]:
    if asked.size:
        return [OnNext(asked.subscriber, bytes(asked.size), fixed=True)] * count
    return [OnNext(asked.subscriber, _JSON)] * count


def _packed(asked: Asked, count: int) -> OnNextPacked:
    return OnNextPacked(asked.subscriber, count, bytes(asked.size * count))


def _window(asked: Asked, at_least: int = 1) -> int:
    if not at_least <= asked.demand <= _MANY:
        raise NotJudged(f"a window of {asked.demand}; this needs {at_least} to {_MANY}")
    return asked.demand


def _overrun(target: Target, size: int, send: Callable[[Probe, Asked], None]) -> None:
    """*send* sends more than the window, and the target must cancel and go on."""
    probe, asked = target.published(size)
    _window(asked, 3)
    send(probe, asked)
    probe.gives_up(asked, "takes more elements than it requested")


@test(_S)
def demand_is_renewed_for_each_element(target: Target) -> None:
    """When all elements of a window are taken, just as many are asked for again."""
    probe, asked = target.published()
    window = _window(asked)
    for _ in range(3):
        probe.say(*_next(asked, window))
        probe.granted(asked, window)
    probe.unaffected()


@test(_S)
def demand_is_renewed_in_any_form(target: Target) -> None:
    """One unit for each element, whole, packed or in parts."""
    probe, asked = target.published(8)
    window = _window(asked)
    half = window // 2
    for _ in range(2):
        probe.say(_packed(asked, half), *_next(asked, window - half - 1))
        probe.say(OnNextPart(asked.subscriber, 1, b"1234"))
        probe.say(OnNextLastPart(asked.subscriber, 1, b"5678"))
        probe.granted(asked, window)
    probe.unaffected()


@test(_S)
def demand_follows_what_came(target: Target) -> None:
    """Never more is requested than has arrived; in the end, as much as has."""
    probe, asked = target.published()
    window = _window(asked)
    for count in (1, window // 2, window // 4, 1):
        probe.say(*_next(asked, min(count, asked.demand)))
        for heard in probe.settled():
            require(isinstance(heard, Request), f"expected request, got {heard}")
        require(
            asked.demand <= window,
            f"{asked.granted} asked for again, {asked.sent} sent",
        )
    probe.granted(asked, window)


@test(_S)
def stored_comes_in_any_stream(target: Target) -> None:
    """Extension 2: stored tells how many elements are safe, of any sender."""
    probe = target.greeted(2)
    asked = probe.published()
    window = _window(asked)
    some = min(window, 5)
    for count in (some, 2 * some):
        probe.say(*_next(asked, some))
        probe.granted(asked, window)
        probe.settled()
        wanted = (asked.offset or 0) + count
        require(
            asked.stored == wanted,
            f"{wanted} are acknowledged; stored says {asked.stored}",
        )


@test(_S)
def demand_waits_for_last_parts(target: Target) -> None:
    """Nothing is requested for elements that are not whole."""
    probe, asked = target.published()
    window = _window(asked, 2)
    some = min(window, 60)
    for element in range(some):
        probe.say(OnNextPart(asked.subscriber, element, b"{"))
    before = asked.granted
    probe.silent()
    require(asked.granted == before, "asks for more for no element")
    for element in range(some):
        probe.say(OnNextLastPart(asked.subscriber, element, b"}"))
    probe.granted(asked, window)


@test(_S)
def overrun_cancels_the_stream(target: Target) -> None:
    """More elements than requested: the target cancels, and the conversation goes on."""
    _overrun(target, 0, lambda probe, asked: probe.say(*_next(asked, asked.demand + 1)))
    _overrun(target, 4, lambda probe, asked: probe.say(*_next(asked, asked.demand + 1)))


@test(_S)
def overrun_within_a_pack_cancels_the_stream(target: Target) -> None:
    """Each element of an onNextPacked takes a unit of demand: one too many is one."""
    _overrun(
        target, 4, lambda probe, asked: probe.say(_packed(asked, asked.demand + 1))
    )

    def behind_others(probe: Probe, asked: Asked) -> None:
        few = asked.demand // 4
        probe.say(*_next(asked, few), _packed(asked, asked.demand - few + 1))

    _overrun(target, 4, behind_others)


@test(_S)
def overrun_by_a_first_part_cancels_the_stream(target: Target) -> None:
    """A split element takes its unit with its first part, not with its last."""

    def unfinished(probe: Probe, asked: Asked) -> None:
        first, more = (OnNextPart(asked.subscriber, n, b"{") for n in (1, 2))
        probe.say(first, *_next(asked, asked.demand - 1), more)

    _overrun(target, 0, unfinished)


@test(_S)
def second_overrun_ends(target: Target) -> None:
    """The second time on a connection that too much is sent ends the conversation."""
    probe = target.greeted()
    first, second = probe.asked(2)
    for asked in (first, second):
        probe.accept(asked)
        _window(asked)
    probe.say(*_next(first, first.demand + 1))
    probe.settled()
    require(first.cancelled, "takes more elements than it requested")
    probe.say(*_next(second, second.demand + 1))
    probe.ends()


@test(_S)
def window_may_be_used_in_any_pieces(target: Target) -> None:
    """A window that arrives octet by octet, or all at once, is the same."""
    probe, asked = target.published()
    window = _window(asked)
    some = min(window, 20)
    probe.pieces(_next(asked, some), range(some * 5))
    probe.granted(asked, window)
    probe.pieces(_next(asked, window), [])
    probe.granted(asked, window)
