"""Tests of the octets: how they are cut, varints, unknown types, UTF-8, nonsense."""

from __future__ import annotations

import random

from rsio_check import wire
from rsio_check.probe import Probe, Target, require
from rsio_check.registry import Role, test
from rsio_check.wire import ClientHello, Goodbye, Subscribe, varint

_C = Role.CONNECTION
_NOBODY = "check/no-such-publisher"
_TALK = (Subscribe(_NOBODY, 300, 129), wire.Request(2**40, 1), Goodbye("bye"))
_TALK_OCTETS = sum(len(wire.encode(each)) for each in _TALK)


def _talked(probe: Probe) -> None:
    probe.exactly(wire.OnSubscribe(300, 0))
    probe.fails(300)
    probe.expect(Goodbye)


@test(_C)
def octet_by_octet(target: Target) -> None:
    """A conversation that arrives octet by octet is understood."""
    probe = target.connect()
    hello = ClientHello(0, target.always)
    probe.pieces([hello], range(len(wire.encode(hello))))
    probe.expect(wire.ServerHello)
    if target.identity is not None and 4 in probe.watch.extensions:
        probe.say(target.identity)
    probe.pieces(_TALK, range(_TALK_OCTETS))
    _talked(probe)


@test(_C)
def cut_anywhere(target: Target) -> None:
    """Messages may be cut in two, anywhere, or arrive in one piece."""
    for cut in range(_TALK_OCTETS):
        probe = target.greeted()
        probe.pieces(_TALK, [cut])
        _talked(probe)
        probe.close()


@test(_C)
def ids_of_every_length(target: Target) -> None:
    """Ids are kept, from 0 to 2^64-1."""
    probe = target.greeted()
    for number in (0, 127, 128, 16383, 16384, 2**32, 2**63 - 1, 2**63, 2**64 - 1):
        probe.subscribe(_NOBODY, number, 1)
        probe.fails(number)


@test(_C)
def long_varints_are_read(target: Target) -> None:
    """A varint in more octets than it needs, ten at most, is the same number."""
    probe = target.greeted()
    name = b"\x10" + varint(len(_NOBODY)) + _NOBODY.encode()
    for octets in (b"\x85\x00", b"\x85\x80\x00", b"\x85" + b"\x80" * 8 + b"\x00"):
        probe.say_as(Subscribe(_NOBODY, 5, 1), name + octets + b"\x01")
        probe.accepted(5)
        probe.fails(5)
    longer = b"\x10\x97\x80\x00" + _NOBODY.encode() + b"\x05\x01"
    probe.say_as(Subscribe(_NOBODY, 5, 1), longer)
    probe.accepted(5)
    probe.fails(5)


@test(_C)
def varints_of_eleven_octets_end(target: Target) -> None:
    """A varint of more than ten octets ends the conversation."""
    target.rejects(
        b"\x12" + b"\x80" * 10 + b"\x00", b"\x11\x01" + b"\xff" * 10 + b"\x00"
    )


@test(_C)
def varints_of_65_bits_end(target: Target) -> None:
    """A varint of more than 64 bits ends the conversation."""
    target.rejects(b"\x12" + b"\xff" * 9 + b"\x02", b"\x11\x01" + b"\x80" * 9 + b"\x7f")


@test(_C)
def unknown_types_end(target: Target) -> None:
    """A message of an unknown, reserved or private type ends the conversation."""
    defined = {kind.CODE for kind in wire.Message.__subclasses__()}
    target.rejects(*[bytes([code]) for code in range(256) if code not in defined])


@test(_C)
def names_are_utf8(target: Target) -> None:
    """A publisher's name that is not UTF-8 ends the conversation."""
    target.rejects(
        b"\x10\x02\xff\xfe\x01\x00",
        b"\x10\x03\xed\xa0\x80\x01\x00",  # half of a surrogate pair
        b"\x10\x02\xc0\x80\x01\x00",  # NUL in two octets
    )


@test(_C)
def reasons_are_utf8(target: Target) -> None:
    """A goodbye's reason that is not UTF-8 is a violation, and is told as one."""
    probe = target.greeted()
    probe.octets(b"\x03\x01\xc0")
    require(probe.ends().reason != "", "it is answered like any goodbye")


@test(Role.SUBSCRIBER)
def errors_are_utf8(target: Target) -> None:
    """An onError's text that is not UTF-8 ends the conversation."""
    for text in (b"\xff", b"E500 \xc3", b"\xed\xbf\xbf"):
        probe, asked = target.published()
        head = b"\x23" + varint(asked.subscriber) + varint(len(text))
        probe.octets(head + text)
        probe.ends()


@test(_C)
def nonsense_costs_its_own_connection(target: Target) -> None:
    """Random octets harm no other connection."""
    other = target.greeted()
    chance = random.Random(57)  # noqa: S311 - the same nonsense every time
    for _ in range(50):
        probe = target.connect()
        hello = wire.encode(ClientHello(0, target.always))
        probe.octets(hello + chance.randbytes(chance.randrange(1, 300)))
        probe.close()
    other.unaffected()


@test(_C)
def reset_within_a_message_harms_no_other(target: Target) -> None:
    """A connection that is reset within a message costs itself and no other."""
    other = target.greeted()
    probe = target.greeted()
    probe.octets(wire.encode(Subscribe(_NOBODY, 1, 1))[:-4])
    probe.link.reset()
    require(other.settled() == [], "another connection is told")
    other.alive()
