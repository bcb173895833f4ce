"""Tests of instances (7): of two senders with one name, the later life goes on."""

from __future__ import annotations

import os

from rsio_check import wire
from rsio_check.probe import NotJudged, Probe, Target, require
from rsio_check.registry import Needs, Role, test
from rsio_check.watch import Asked
from rsio_check.wire import Announce, OnNext, Token

_S = Role.SUBSCRIBER
_JSON = b'{"rsio-check":true}'


def _life() -> bytes:
    return os.urandom(8)


def _sender(target: Target, name: bytes) -> tuple[Probe, str]:
    """A connection of the sender *name*, and a publisher that the target takes."""
    for each in (2, 4, 7):
        if each not in target.offers:
            raise NotJudged(f"the target does not have extension {each}")
    plain = target.greeted()
    publisher = plain.asked()[0].publisher
    plain.close()
    probe = target.connect()
    probe.say(wire.ClientHello(0, (2, 4, 7)))
    probe.expect(wire.ServerHello)
    if target.identity is not None and target.identity.scheme == "bearer":
        probe.say(target.identity)
    probe.say(Token("name", name))
    return probe, publisher


def _announced(
    target: Target, name: bytes, life: bytes, *, resumed: bool = False
) -> tuple[Probe, Asked]:
    """The same, and the subscription that follows the announcement."""
    probe, publisher = _sender(target, name)
    probe.say(Announce(publisher, life, int(resumed)))
    while not probe.watch.asked:
        require(probe.waits(target.patience), "does not subscribe to what is announced")
    require(len(probe.watch.asked) == 1, "subscribes to more than is announced")
    [asked] = probe.watch.asked.values()
    require(asked.publisher == publisher, f"subscribes to {asked.publisher!r}")
    require(asked.offset is not None, "does not subscribe from an offset")
    return probe, asked


def _stored(probe: Probe, asked: Asked, count: int) -> None:
    probe.accept(asked)
    window = asked.demand
    count = min(count, window)
    probe.say(*[OnNext(asked.subscriber, _JSON)] * count)
    probe.granted(asked, window)


def _fenced(probe: Probe) -> None:
    """The conversation ends with E412."""
    reason = probe.ends().reason
    require(reason.startswith("E412"), f"the reason is {reason!r}")


@test(_S)
def only_what_is_announced_is_subscribed(target: Target) -> None:
    """Extension 7: the target subscribes to what is announced, and to no more."""
    name = os.urandom(6).hex().encode()
    probe, publisher = _sender(target, name)
    probe.settled()
    require(not probe.watch.asked, "subscribes to what is not announced")
    probe.say(Announce(publisher, _life(), 0))
    probe.settled()
    while not probe.watch.asked:
        require(probe.waits(target.patience), "does not subscribe to what is announced")
    require(len(probe.watch.asked) == 1, "subscribes to more than is announced")


@test(_S)
def life_goes_on_over_connections(target: Target) -> None:
    """The same life is asked to go on behind what is stored, on the next connection."""
    name, life = os.urandom(6).hex().encode(), _life()
    probe, asked = _announced(target, name, life)
    _stored(probe, asked, 5)
    sent = asked.sent
    probe.link.reset()
    _, again = _announced(target, name, life, resumed=True)
    require(again.offset == sent, f"{sent} are stored; asks behind {again.offset}")


@test(_S)
def later_life_fences_the_earlier(target: Target) -> None:
    """A life that begins ends the stream of an earlier one, with E412."""
    name = os.urandom(6).hex().encode()
    older, asked = _announced(target, name, _life())
    _stored(older, asked, 3)
    newer, again = _announced(target, name, _life())
    require(again.offset == asked.sent, f"asks behind {again.offset} of {asked.sent}")
    _fenced(older)
    newer.settled()


@test(_S)
def fenced_life_is_refused(target: Target) -> None:
    """An earlier life that goes on is refused with E412, and harms no other."""
    name, first = os.urandom(6).hex().encode(), _life()
    older, _ = _announced(target, name, first)
    older.link.reset()
    newer, asked = _announced(target, name, _life())
    late, publisher = _sender(target, name)
    late.say(Announce(publisher, first, 1))
    _fenced(late)
    require(not late.watch.asked, "subscribes to a fenced life")
    _stored(newer, asked, 3)


@test(_S)
def unknown_life_may_go_on(target: Target) -> None:
    """A life that goes on under a name of which nothing is known is taken."""
    _, asked = _announced(target, os.urandom(6).hex().encode(), _life(), resumed=True)
    require(asked.offset == 0, f"asks for what follows {asked.offset}")


@test(_S)
def life_of_an_unknown_sender_is_refused(target: Target) -> None:
    """A life that goes on is refused if what is stored came without an instance."""
    name = os.urandom(6).hex().encode()
    probe, asked = _announced(target, name, b"")
    _stored(probe, asked, 3)
    probe.close()
    late, publisher = _sender(target, name)
    late.say(Announce(publisher, _life(), 1))
    _fenced(late)


@test(_S)
def sender_without_instance_takes_over(target: Target) -> None:
    """A sender without an instance has the name; the life that had it may not go on."""
    name, life = os.urandom(6).hex().encode(), _life()
    older, asked = _announced(target, name, life)
    _stored(older, asked, 3)
    newer, again = _announced(target, name, b"")
    require(again.offset == asked.sent, f"asks behind {again.offset} of {asked.sent}")
    heard = older.hear()
    if isinstance(heard, wire.Goodbye):
        require(heard.reason.startswith("E412"), f"the reason is {heard.reason!r}")
    else:
        require(isinstance(heard, wire.Cancel), f"expected cancel, got {heard}")
    _stored(newer, again, 3)
    late, publisher = _sender(target, name)
    late.say(Announce(publisher, life, 1))
    _fenced(late)


@test(_S)
def stream_may_be_cancelled_before_it_began(target: Target) -> None:
    """OnSubscribe may cross a cancel: its size is noted, what follows is dropped."""
    name, life = os.urandom(6).hex().encode(), _life()
    older, asked = _announced(target, name, life)
    _announced(target, name, life, resumed=True)
    older.settled()
    require(asked.cancelled, "the older stream goes on")
    older.say(wire.OnSubscribe(asked.subscriber, 3))
    older.say(OnNext(asked.subscriber, b"abc", fixed=True))
    older.say(wire.OnNextPacked(asked.subscriber, 2, b"abcdef"))
    older.unaffected()


@test(_S)
def newest_connection_of_a_life_takes_over(target: Target) -> None:
    """The newer of two connections of one life has the stream; neither is fenced."""
    name, life = os.urandom(6).hex().encode(), _life()
    older, asked = _announced(target, name, life)
    older.accept(asked)
    newer, again = _announced(target, name, life, resumed=True)
    older.settled()
    require(asked.cancelled, "the older stream goes on")
    _stored(newer, again, 3)


@test(_S)
def announce_is_checked(target: Target) -> None:
    """Values of resumed above 1, or 1 without an instance, and a long instance, are violations."""
    name = os.urandom(6).hex().encode()
    for wrong in (Announce("events", b"x", 2), Announce("events", b"", 1)):
        probe, _ = _sender(target, name)
        probe.octets(wire.encode(wrong))
        probe.ends()
    probe, _ = _sender(target, name)
    probe.octets(b"\x48\x06events" + wire.varint(65))
    probe.ends()


@test(_S)
def announce_comes_once_for_a_stream(target: Target) -> None:
    """An announce while the stream of the last one is not over is a violation."""
    probe, asked = _announced(target, os.urandom(6).hex().encode(), life := _life())
    probe.accept(asked)
    probe.octets(wire.encode(Announce(asked.publisher, life, 1)))
    probe.ends()


@test(_S)
def stream_may_be_announced_again(target: Target) -> None:
    """When the stream is over, announce begins another one."""
    probe, asked = _announced(target, os.urandom(6).hex().encode(), life := _life())
    _stored(probe, asked, 3)
    probe.say(wire.OnComplete(asked.subscriber), Announce(asked.publisher, life, 1))
    while len(probe.watch.asked) < 2:
        require(probe.waits(target.patience), "does not subscribe again")
    again = max(probe.watch.asked.values(), key=lambda one: one.subscriber)
    require(again.offset == asked.sent, f"asks behind {again.offset} of {asked.sent}")


@test(_S)
def stream_may_be_announced_at_once(target: Target) -> None:
    """Elements from before the announce are counted, however soon that follows."""
    probe, asked = _announced(target, os.urandom(6).hex().encode(), life := _life())
    probe.accept(asked)
    count = min(asked.demand, 3)
    probe.say(
        *[OnNext(asked.subscriber, _JSON)] * count,
        wire.OnComplete(asked.subscriber),
        Announce(asked.publisher, life, 1),
    )
    while len(probe.watch.asked) < 2:
        require(probe.waits(target.patience), "does not subscribe again")
    again = max(probe.watch.asked.values(), key=lambda one: one.subscriber)
    require(again.offset == count, f"asks behind {again.offset} of {count}")


@test(Role.CONNECTION)
def instances_need_offsets(target: Target) -> None:
    """Extension 7 is in use only together with 2."""
    if 7 not in target.offers:
        raise NotJudged("the target does not have extension 7")
    probe = target.connect()
    probe.hello(7)
    probe.octets(wire.encode(Announce("events", b"x", 0)))
    probe.ends()


@test(_S, Needs.TOKEN)
def names_of_one_token_are_senders_apart(target: Target) -> None:
    """Two names with one token are two senders, each with its offset."""
    first, asked = _announced(target, os.urandom(6).hex().encode(), _life())
    _stored(first, asked, 4)
    _, other = _announced(target, os.urandom(6).hex().encode(), _life())
    require(other.offset == 0, f"a new name is asked for what follows {other.offset}")
    first.settled()
    require(not asked.cancelled, "another name takes the stream over")
