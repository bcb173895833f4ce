"""Tests of a target that stores what it takes: it is read back through `events`.

`events?from=latest` brings what is stored from now on, as JSON objects with a `payload`
(or `payload_text`, `payload_base64`), a `channel` and a `seq`: docs/rsio-v0.md, in the
section on conformance.  What was acknowledged must be there, once, in order, unchanged.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import zlib
from collections.abc import Sequence
from typing import Any

from rsio_check import wire
from rsio_check.probe import Failed, NotJudged, Probe, Target, require
from rsio_check.registry import Needs, Role, test
from rsio_check.watch import Asked, Element
from rsio_check.wire import Message, OnNext, OnNextLastPart, OnNextPart

_S = Role.SUBSCRIBER
_UNBOUNDED = 2**63 - 1
_END = "the end"


class _Reader:
    """The elements of one test that the target stores from now on."""

    def __init__(self, target: Target) -> None:
        if not target.reads_back:
            raise NotJudged("the target does not publish events")
        self.mark = os.urandom(6).hex()
        self._target = target
        self._probe = target.greeted()
        self._probe.subscribe("events?from=latest", 1, _UNBOUNDED)
        self._probe.settled()

    def element(self, value: object) -> bytes:
        """An element that only this test has sent."""
        return json.dumps({"rsio-check": self.mark, "n": value}).encode()

    def stored(self) -> list[dict[str, Any]]:
        """All that was stored of this test: an element of our own comes last."""
        last, asked = self._target.published()
        last.say(OnNext(asked.subscriber, self.element(_END)))
        found: list[dict[str, Any]] = []
        while True:
            heard = self._probe.hear()
            if not isinstance(heard, Element):
                got = "nothing" if heard is None else wire.spell(heard)
                raise NotJudgedEnd(f"events brings {got} before all is there")
            event = _event(heard.data)
            payload = _payload(event)
            if not isinstance(payload, dict) or payload.get("rsio-check") != self.mark:
                continue
            event["n"] = payload.get("n")
            if event["n"] == _END:
                return found
            found.append(event)

    def numbers(self) -> list[object]:
        """The values of the elements that are stored."""
        return [event["n"] for event in self.stored()]


class NotJudgedEnd(NotJudged):
    """The publisher `events` ended, or is stuck."""


def _event(element: bytes) -> dict[str, Any]:
    """The object that an element of `events` is.  Raises `Failed`."""
    with contextlib.suppress(ValueError):
        event = json.loads(element)
        if isinstance(event, dict):
            return event
    raise Failed(f"events brings {element[:40]!r}, which is no JSON object")


def _payload(event: dict[str, Any]) -> object:
    if "payload" in event:
        return event["payload"]
    text = event.get("payload_text")
    try:
        if text is None:
            text = base64.b64decode(event.get("payload_base64", "")).decode()
        return json.loads(text)
    except (TypeError, ValueError):
        return None


def _acknowledged(probe: Probe, asked: Asked, window: int) -> None:
    """Wait until the demand says that all is on disk."""
    probe.granted(asked, window)


def _require_numbers(found: Sequence[object], wanted: Sequence[object]) -> None:
    missing = [each for each in wanted if each not in found]
    require(not missing, f"acknowledged, and not stored: {missing[:5]}")
    twice = [each for each in wanted if found.count(each) > 1]
    require(not twice, f"stored twice: {twice[:5]}")
    require(list(found) == list(wanted), f"stored in another order: {found[:9]}")


@test(_S)
def acknowledged_elements_are_stored(target: Target) -> None:
    """Elements that demand acknowledges are stored once, in order; seq counts from 1."""
    reader = _Reader(target)
    probe, asked = target.published()
    window = asked.demand
    count = min(window, 100)
    for first in (0, count):
        numbers = range(first, first + count)
        probe.say(*[OnNext(asked.subscriber, reader.element(n)) for n in numbers])
        _acknowledged(probe, asked, window)
    stored = reader.stored()
    _require_numbers([event["n"] for event in stored], range(2 * count))
    seqs = [event.get("seq") for event in stored]
    require(seqs == list(range(1, 2 * count + 1)), f"seq is {seqs[:5]} …")
    channels = {event.get("channel") for event in stored}
    require(channels == {asked.publisher}, f"channel is {channels}")


@test(_S)
def split_elements_are_stored_joined(target: Target) -> None:
    """Split elements are stored whole, in the order of their last parts."""
    reader = _Reader(target)
    probe, asked = target.published()
    number, window = asked.subscriber, asked.demand
    if window < 3:
        raise NotJudged("the target asks for less than three elements")
    first, second = reader.element("first"), reader.element("second")
    probe.say(
        OnNextPart(number, 1, first[:5]), OnNextPart(number, 2, second[:1]),
        OnNextPart(number, 2, second[1:9]), OnNext(number, reader.element("whole")),
        OnNextPart(number, 1, first[5:9]), OnNextLastPart(number, 2, second[9:]),
        OnNextLastPart(number, 1, first[9:]),
    )  # fmt: skip
    _acknowledged(probe, asked, window)
    _require_numbers(reader.numbers(), ["whole", "second", "first"])


@test(_S)
def packed_elements_are_stored_apart(target: Target) -> None:
    """Each element of an onNextPacked is stored by itself."""
    reader = _Reader(target)
    wanted = list(range(100, 110))
    elements = [reader.element(n) for n in wanted]
    probe, asked = target.published(len(elements[0]))
    number, window = asked.subscriber, asked.demand
    if window < len(wanted):
        raise NotJudged("the target asks for less than ten elements")
    probe.say(
        wire.OnNextPacked(number, 7, b"".join(elements[:7])),
        OnNext(number, elements[7], fixed=True),
        wire.OnNextPacked(number, 2, b"".join(elements[8:])),
    )
    _acknowledged(probe, asked, window)
    _require_numbers(reader.numbers(), wanted)


@test(_S)
def large_elements_are_stored_unchanged(target: Target) -> None:
    """An element of 100 000 octets, in parts, keeps each of them."""
    reader = _Reader(target)
    probe, asked = target.published()
    window = asked.demand
    text = os.urandom(50_000).hex()
    element = reader.element(text)
    *parts, last = [element[at : at + 7000] for at in range(0, len(element), 7000)]
    probe.say(*[OnNextPart(asked.subscriber, 1, part) for part in parts])
    probe.say(OnNextLastPart(asked.subscriber, 1, last))
    _acknowledged(probe, asked, window)
    require(reader.numbers() == [text], "the element is not what was sent")


@test(_S)
def unfinished_elements_are_not_stored(target: Target) -> None:
    """An element whose last part never came is not stored, nor is half a message."""
    reader = _Reader(target)
    probe, asked = target.published()
    number, window = asked.subscriber, asked.demand
    probe.say(OnNext(number, reader.element(1)))
    _acknowledged(probe, asked, window)
    probe.say(OnNextPart(number, 1, reader.element(2)))
    probe.octets(wire.encode(OnNext(number, reader.element(3)))[:-1])
    probe.link.reset()
    _require_numbers(reader.numbers(), [1])


@test(_S)
def elements_beyond_demand_are_not_stored(target: Target) -> None:
    """Elements without demand, or behind the target's cancel, are dropped."""
    reader = _Reader(target)
    probe, asked = target.published()
    number, window = asked.subscriber, asked.demand
    if window > 5000:
        raise NotJudged(f"a window of {window}")
    probe.say(*[OnNext(number, reader.element(n)) for n in range(window + 5)])
    probe.cancels(asked)
    probe.say(OnNext(number, reader.element("late")))
    probe.settled()
    numbers = reader.numbers()
    require(len(set(map(str, numbers))) == len(numbers), "stored twice")
    require("late" not in numbers, "stored what came behind its cancel")
    require(window + 4 not in numbers, "stored what it did not request")


@test(_S)
def elements_of_blocks_are_stored(target: Target) -> None:
    """Elements in blocks are stored like plain ones, in their place."""
    reader = _Reader(target)
    probe = target.greeted(6)
    probe.say(wire.Compress(1))
    if probe.expect(wire.CompressAck).algorithm != 1:
        raise NotJudged("the target does not want blocks")
    asked = probe.published()
    number, window = asked.subscriber, asked.demand
    if window < 9:
        raise NotJudged("the target asks for less than nine elements")
    deflate = zlib.compressobj()
    for first in (0, 3, 6):
        said: list[Message] = [
            OnNext(number, reader.element(first + n)) for n in (0, 1)
        ]
        inner = b"".join(map(wire.encode, said))
        data = deflate.compress(inner) + deflate.flush(zlib.Z_SYNC_FLUSH)
        for each in said:
            probe.watch.sent(each)
        probe.say(wire.Block(data), OnNext(number, reader.element(first + 2)))
    _acknowledged(probe, asked, window)
    _require_numbers(reader.numbers(), range(9))


# -- exactly once, with offsets


def _named(target: Target, name: bytes) -> tuple[Probe, Asked]:
    """A connection of a sender that can resume, and its stream, not yet accepted."""
    for each in (2, 4):
        if each not in target.offers:
            raise NotJudged(f"the target does not have extension {each}")
    probe = target.connect()
    probe.say(wire.ClientHello(0, (2, 4)))
    probe.expect(wire.ServerHello)
    probe.say(sender(target, name))
    asked = probe.asked()[0]
    if asked.offset is None:
        raise NotJudged("the target does not resume for a named sender")
    return probe, asked


def _resumed(target: Target) -> tuple[_Reader, bytes, Probe, Asked, int]:
    """A reader of the mark, which is the sender's name; its connection and stream, accepted;
    and how many elements it had stored before.
    """
    reader = _Reader(target)
    name = reader.mark.encode()
    probe, asked = _named(target, name)
    probe.accept(asked)
    return reader, name, probe, asked, asked.offset or 0


def sender(target: Target, name: bytes) -> wire.Token:
    """The sender's proof: the token that was given, or else *name*."""
    return target.identity or wire.Token("name", name)


def _send(probe: Probe, asked: Asked, elements: Sequence[bytes], window: int) -> None:
    probe.say(*[OnNext(asked.subscriber, each) for each in elements])
    _acknowledged(probe, asked, window)


@test(_S)
def named_sender_resumes_exactly(target: Target) -> None:
    """A named sender is asked to go on behind what is stored, and not one further."""
    reader, name, probe, asked, start = _resumed(target)
    for round_ in range(3):
        window = asked.demand
        some = min(window, 5)
        elements = [reader.element(round_ * some + n) for n in range(some)]
        _send(probe, asked, elements, window)
        probe.link.reset()
        probe, asked = _named(target, name)
        wanted = start + (round_ + 1) * some
        require(
            asked.offset == wanted,
            f"{wanted} are acknowledged, and it asks for what follows {asked.offset}",
        )
        probe.accept(asked)
    _require_numbers(reader.numbers(), range(3 * some))


@test(_S)
def unacknowledged_elements_are_stored_once(target: Target) -> None:
    """A named sender that sends again what it is not sure of has it stored once."""
    reader, name, probe, asked, start = _resumed(target)
    some = min(asked.demand, 20)
    elements = [reader.element(n) for n in range(2 * some)]
    probe.say(*[OnNext(asked.subscriber, each) for each in elements[:some]])
    probe.link.reset()  # whether they arrived is not known
    probe, asked = _named(target, name)
    have = (asked.offset or 0) - start
    require(0 <= have <= some, f"asks for what follows {have} of {some} elements")
    probe.accept(asked)
    window = asked.demand
    while have < len(elements):
        few = elements[have : have + window]
        _send(probe, asked, few, window)
        have += len(few)
    _require_numbers(reader.numbers(), range(2 * some))


@test(_S)
def stored_is_what_is_stored(target: Target) -> None:
    """Stored tells a named sender how many elements are safe, in the end all of them."""
    reader, _, probe, asked, start = _resumed(target)
    window = asked.demand
    some = min(window, 10)
    _send(probe, asked, [reader.element(n) for n in range(some)], window)
    probe.settled()
    require(
        asked.stored == start + some,
        f"{start + some} are acknowledged; stored says {asked.stored}",
    )
    _require_numbers(reader.numbers(), range(some))


@test(_S, Needs.NO_IDENTITY)
def senders_have_offsets_of_their_own(target: Target) -> None:
    """Two named senders do not share how far they are."""
    reader = _Reader(target)
    first, asked = _named(target, reader.mark.encode() + b"-a")
    first.accept(asked)
    _send(first, asked, [reader.element(n) for n in range(3)], asked.demand)
    second, other = _named(target, reader.mark.encode() + b"-b")
    require(other.offset == 0, f"a new sender is asked to go on behind {other.offset}")
    second.accept(other)
    _send(second, other, [reader.element(3)], other.demand)
    _require_numbers(reader.numbers(), range(4))


# -- reading


@test(Role.PUBLISHER)
def events_can_be_resumed(target: Target) -> None:
    """SubscribeFrom on `events?from=N` goes on behind the elements that came."""
    reader = _Reader(target)
    probe, asked = target.published()
    _send(probe, asked, [reader.element(n) for n in range(6)], asked.demand)
    first = next(iter(reader.stored()), {}).get("lsn")
    if not isinstance(first, int):
        raise Failed("events has no lsn")
    back = target.greeted(2)
    back.say(wire.SubscribeFrom(f"events?from={first}", 1, 4, 2))
    back.accepted(1)
    heard = [back.hear() for _ in range(4)]
    if isinstance(heard[0], wire.OnError):
        raise NotJudged(f"events can not resume: {heard[0].error}")
    found = [_event(each.data) for each in heard if isinstance(each, Element)]
    require(
        [each.get("lsn") for each in found] == list(range(first + 2, first + 6)),
        f"expected the lsns from {first + 2} on",
    )
