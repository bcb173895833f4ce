"""Conformance checks of the octets: slicing, varints, types, UTF-8, lengths, fuzz."""

from __future__ import annotations

import random

from gateway.protocols.rsio import wire
from gateway.protocols.rsio.conformance.probe import Probe, Target, require
from gateway.protocols.rsio.conformance.registry import Role, check
from gateway.protocols.rsio.messages import (
    ClientHello,
    Goodbye,
    OnError,
    OnSubscribe,
    Request,
    ServerHello,
    Subscribe,
)

__all__: list[str] = []

_C = Role.CONNECTION
_HELLO = wire.encode(ClientHello(0, ()))
_ASK = wire.encode(Subscribe("check/no-such-publisher", 300, 129))
_TALK = _HELLO + _ASK + wire.encode(Request(2**40, 1)) + wire.encode(Goodbye("bye"))


def _answered(probe: Probe) -> None:
    probe.expect(ServerHello)
    probe.exactly(OnSubscribe(300, 0))
    probe.expect(OnError)
    probe.expect(Goodbye)


@check(41, _C)
def _drip(target: Target) -> None:
    """A conversation that arrives octet by octet is understood."""
    probe = target.connect()
    probe.drip(_TALK)
    _answered(probe)


@check(41, _C)
def _splits(target: Target) -> None:
    """So is one that is cut in two, anywhere, or arrives in one piece."""
    for cut in range(len(_TALK)):
        probe = target.connect()
        probe.say(_TALK[:cut])
        probe.say(_TALK[cut:])
        _answered(probe)
        probe.close()


@check(42, _C)
def _ids(target: Target) -> None:
    """Ids of every length are kept, 0 and 2^64-1 among them."""
    probe = target.greeted()
    for number in (0, 127, 128, 16383, 16384, 2**32, 2**63 - 1, 2**64 - 1):
        probe.say(Subscribe("check/no-such-publisher", number, 1))
        probe.exactly(OnSubscribe(number, 0))
        require(probe.expect(OnError).subscriber == number, "another Id")


@check(42, _C)
def _overlong(target: Target) -> None:
    """A varint in more octets than it needs, ten at most, is the same number."""
    probe = target.greeted()
    name = b"check/no-such-publisher"
    for octets in (b"\x85\x00", b"\x85\x80\x00", b"\x85" + b"\x80" * 8 + b"\x00"):
        probe.say(b"\x10" + wire.varint(len(name)) + name + octets + b"\x01")
        probe.exactly(OnSubscribe(5, 0))
        probe.expect(OnError)


@check(42, _C)
def _too_long(target: Target) -> None:
    """A varint of eleven octets, or of more than 64 bits, ends the conversation."""
    target.rejects(b"\x12" + b"\x80" * 10 + b"\x00", b"\x12" + b"\xff" * 9 + b"\x02")


@check(43, _C)
def _types(target: Target) -> None:
    """An unknown type ends the conversation, because it can not be skipped."""
    target.rejects(b"\x00", b"\x27", b"\x3f", b"\x7f", b"\x80", b"\xff")


@check(44, _C)
def _utf8(target: Target) -> None:
    """A String that is not UTF-8 ends the conversation."""
    target.rejects(b"\x10\x02\xff\xfe\x01\x00", b"\x03\x01\xc0")


@check(45, _C)
def _lengths(target: Target) -> None:
    """A length beyond every limit is refused before what it announces arrives."""
    huge = wire.varint(2**40)
    target.rejects(b"\x03" + huge, b"\x10" + huge)
    probe = target.connect()
    probe.say(b"\x01\x00" + huge)
    probe.ends_conversation()


@check(57, _C)
def _nonsense(target: Target) -> None:
    """Random octets cost their own connection, and no other."""
    chance = random.Random(57)  # noqa: S311 - the same nonsense every time
    for _ in range(50):
        probe = target.connect()
        probe.say(_HELLO + chance.randbytes(chance.randrange(1, 300)))
        probe.hear(0.01)
        probe.close()
    probe = target.greeted()
    probe.say(Goodbye(""))
    probe.closes()
