"""Tests of the limits: each is checked on the declared length, and has its effect."""

from __future__ import annotations

from rsio_check import wire
from rsio_check.probe import NotJudged, Target, require
from rsio_check.registry import Role, test
from rsio_check.wire import varint

_C, _P, _S = Role.CONNECTION, Role.PUBLISHER, Role.SUBSCRIBER
_HUGE = varint(2**40)
_STREAMS = 256
_MOST_STREAMS = 5000
_CONTROL = 1 << 14
_DECLARED = 16 << 20


@test(_C)
def lengths_are_refused_before_the_body(target: Target) -> None:
    """A length beyond its limit ends the conversation before what it announces comes."""
    target.rejects(b"\x03" + _HUGE, b"\x10" + _HUGE, b"\x23\x01" + _HUGE)
    probe = target.connect()
    probe.octets(b"\x01\x00" + _HUGE)
    probe.ends()


@test(_C)
def names_are_limited(target: Target) -> None:
    """A publisher's name may have 255 octets; 256 end the conversation."""
    probe = target.greeted()
    probe.subscribe("n" * 255, 1, 1)
    probe.fails(1)
    target.rejects(b"\x10" + varint(256))


@test(_C)
def texts_are_limited(target: Target) -> None:
    """A reason may have 4096 octets; 4097 end the conversation."""
    probe = target.greeted()
    probe.say(wire.Goodbye("x" * 4096))
    probe.expect(wire.Goodbye)
    target.rejects(b"\x03" + varint(4097))


@test(_S)
def errors_are_limited(target: Target) -> None:
    """An error may have 4096 octets; 4097 end the conversation."""
    probe, asked = target.published()
    probe.say(wire.OnError(asked.subscriber, "x" * 4096))
    probe.settled()
    probe, asked = target.published()
    probe.octets(b"\x23" + varint(asked.subscriber) + varint(4097))
    probe.ends()


@test(_C)
def pings_are_limited(target: Target) -> None:
    """A ping may have 4096 octets; 4097 end the conversation."""
    probe = target.greeted(1)
    probe.say(wire.Ping(b"x" * 4096))
    probe.exactly(wire.Pong(b"x" * 4096))
    target.rejects(b"\x40" + varint(4097), extensions=[1])


@test(_C)
def control_messages_are_limited(target: Target) -> None:
    """Messages that move no element are refused when there are too many."""
    probe = target.greeted()
    many = wire.encode(wire.Request(2**40, 1)) * 1024
    for _ in range(2 * _CONTROL // 1024):
        probe.octets(many)
    probe.ends()


@test(_P)
def too_many_streams_are_rejected_one_by_one(target: Target) -> None:
    """The 257th stream is an onSubscribe and an onError; when one ends there is room."""
    probe = target.greeted()
    opened: list[wire.Message] = []
    rejected: list[wire.Message] = []
    while len(opened) < _MOST_STREAMS and not rejected:
        first = len(opened) + 1
        asked = range(first, first + 64)
        probe.say(*[wire.Subscribe("check/never", number, 0) for number in asked])
        for heard in probe.settled():
            if isinstance(heard, wire.OnSubscribe):
                opened.append(heard)
            elif isinstance(heard, wire.OnError):
                rejected.append(heard)
        answered = [wire.OnSubscribe(number, 0) for number in asked]
        require(opened[first - 1 :] == answered, "not each has its onSubscribe")
    require(bool(rejected), f"{_MOST_STREAMS} streams were let in")
    let_in = len(opened) - len(rejected)
    require(let_in >= _STREAMS, f"only {let_in} streams were let in")
    probe.say(wire.Cancel(1))
    probe.subscribe("check/count?n=0", 1)
    probe.completes()


@test(_S)
def too_large_an_element_cancels_its_stream(target: Target) -> None:
    """An element above element_bytes is skipped, its stream cancelled, and no more."""
    probe = target.greeted(8)
    asked = probe.published()
    most = _below_declared(probe.watch.element_bytes)
    probe.say(wire.OnNext(asked.subscriber, b" " * (most + 1)))
    probe.settled()
    require(asked.cancelled, "takes an element that is larger than it has told")
    probe.alive()


@test(_S)
def limits_are_told(target: Target) -> None:
    """Extension 8: the most octets of an element are told before the first subscribe."""
    probe = target.greeted(8)
    probe.asked()  # `Watch` has judged the order
    require(bool(probe.watch.element_bytes), "does not say what it takes")


@test(_S)
def element_of_the_told_size_is_taken(target: Target) -> None:
    """An element of as many octets as were told is taken, and demand renewed for it."""
    probe = target.greeted(8)
    asked = probe.published()
    window, most = asked.demand, probe.watch.element_bytes or 0
    part = b" " * (1 << 13)
    whole, rest = divmod(most - 2, len(part))
    if most < 2 or most > _DECLARED:
        raise NotJudged(f"the target takes {most} octets")
    probe.say(wire.OnNextPart(asked.subscriber, 1, b"{" + b" " * rest))
    for _ in range(whole):
        probe.say(wire.OnNextPart(asked.subscriber, 1, part))
    probe.say(wire.OnNextLastPart(asked.subscriber, 1, b"}"))
    probe.granted(asked, window)


@test(_S)
def too_large_an_element_is_named(target: Target) -> None:
    """A publisher without extension 8 is told why: by a goodbye with E413 and the size."""
    most = _told(target)
    for size in (most + 1, most + 70_000):
        probe = target.connect()
        probe.hello(without=[8])
        asked = probe.published()
        probe.say(wire.OnNext(asked.subscriber, b" " * size))
        reason = probe.ends().reason
        named = (
            reason.startswith("E413 ") and str(size) in reason and str(most) in reason
        )
        require(
            named, f"says {reason!r} of an element of {size} octets, {most} at most"
        )
        require(asked.cancelled, "the stream is not cancelled")


def _told(target: Target) -> int:
    probe = target.greeted(8)
    probe.asked()
    return _below_declared(probe.watch.element_bytes)


def _below_declared(most: int | None) -> int:
    """The limit that was told, if a larger element is not yet beyond declared_bytes."""
    if not most or most > _DECLARED - (1 << 17):
        raise NotJudged(
            f"the target takes {most} octets, which is all that one may have"
        )
    return most


@test(_P)
def told_limits_are_kept(target: Target) -> None:
    """No element is larger than was told: instead of it comes an onError with E413."""
    probe = target.greeted(8)
    probe.say(wire.Limits(5000))
    probe.subscribe("check/large?n=1&octets=5000", 1, 2)
    require(len(probe.elements(1)[0]) == 5000, "the element has another size")
    probe.completes()
    probe.subscribe("check/large?n=1&octets=5001", 2, 2)
    error = probe.fails(2)
    require(error.startswith("E413 "), f"the error is {error!r}")
    probe.subscribe("check/large?n=1&octets=20000", 3, 2)
    probe.fails(3)
    probe.subscribe("check/count?n=2", 4, 2)
    probe.rest(0, 2, stream=4)


@test(_C)
def limits_come_once_and_first(target: Target) -> None:
    """A second limits, one behind a subscribe and one of 0 end the conversation."""
    target.rejects(wire.Limits(0), extensions=[8])
    for early in (wire.Limits(9), wire.Subscribe("check/no-such-publisher", 1, 1)):
        probe = target.greeted(8)
        probe.say(early, wire.Limits(9))
        probe.ends()


@test(_S)
def too_large_a_joined_element_cancels_its_stream(target: Target) -> None:
    """An element in parts that is too large cancels its stream, however many parts it has."""
    probe = target.greeted(8)
    asked = probe.published()
    part = wire.OnNextPart(asked.subscriber, 1, b" " * 600_000)
    for _ in range(30):
        probe.say(part)
    probe.gives_up(asked, "parts of 18 MB are joined")


@test(_S)
def declared_elements_are_limited(target: Target) -> None:
    """An element that declares more than declared_bytes ends the conversation at once."""
    probe, asked = target.published()
    probe.octets(b"\x21" + varint(asked.subscriber) + _HUGE)
    probe.ends()


@test(_S)
def declared_parts_are_limited(target: Target) -> None:
    """A part that declares more than part_bytes ends the conversation at once."""
    for code in (b"\x25", b"\x26"):
        probe, asked = target.published()
        probe.octets(code + varint(asked.subscriber) + b"\x01" + _HUGE)
        probe.ends()


@test(_S)
def declared_packs_are_limited(target: Target) -> None:
    """A count times a size beyond declared_bytes ends the conversation, also past 2^64."""
    for count in (2**61 + 1, 2**40, 2**64 - 1):
        probe, asked = target.published(8)
        probe.octets(b"\x24" + varint(asked.subscriber) + varint(count))
        probe.ends()


@test(_S)
def declared_sizes_are_limited(target: Target) -> None:
    """An elementSize beyond declared_bytes ends the conversation."""
    probe = target.greeted()
    asked = probe.asked()[0]
    probe.say(wire.OnSubscribe(asked.subscriber, 2**40))
    probe.ends()


@test(_S)
def unfinished_elements_are_limited(target: Target) -> None:
    """More than 64 unfinished elements of a connection cancel the stream, and no more."""
    probe, asked = target.published()
    if asked.demand < 66:
        raise NotJudged(f"the target asks for {asked.demand} elements, of 66 needed")
    for element in range(66):
        probe.say(wire.OnNextPart(asked.subscriber, element, b"x"))
    probe.gives_up(asked, "66 unfinished elements are kept")


@test(_S)
def finished_elements_are_not_counted(target: Target) -> None:
    """Elements that were finished do not count as unfinished ones, ever again."""
    probe, asked = target.published()
    number = asked.subscriber
    for element in range(200):
        while asked.demand < 1:
            heard = probe.hear()
            require(isinstance(heard, wire.Request), "expected request")
        probe.say(wire.OnNextPart(number, element, b'{"a"'))
        probe.say(wire.OnNextLastPart(number, element, b":1}"))
    probe.settled()
    require(not asked.cancelled, "cancelled after 200 elements, one at a time")
    probe.alive()


@test(_S)
def unfinished_elements_end_with_their_stream(target: Target) -> None:
    """A terminal drops its stream's unfinished elements: they do not count any more."""
    probe = target.greeted()
    first, second = probe.asked(2)
    for asked in (first, second):
        probe.accept(asked)
        if asked.demand < 40:
            raise NotJudged(
                f"the target asks for {asked.demand} elements, of 40 needed"
            )
    for element in range(40):
        probe.say(wire.OnNextPart(first.subscriber, element, b"x"))
    probe.say(wire.OnComplete(first.subscriber))
    for element in range(40):
        probe.say(wire.OnNextPart(second.subscriber, element, b"x"))
    probe.settled()
    require(not second.cancelled, "counts what a finished stream left unfinished")
    probe.alive()
