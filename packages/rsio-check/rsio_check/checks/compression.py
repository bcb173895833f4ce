"""Tests of compression (6): blocks of one zlib stream, each of whole messages."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from rsio_check import wire
from rsio_check.probe import NotJudged, Probe, Target, require
from rsio_check.registry import Role, test
from rsio_check.wire import Block, Message, Subscribe

_C = Role.CONNECTION
_NOBODY = "check/no-such-publisher"


class _Blocks:
    """Messages as blocks of one zlib stream."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj()

    def octets(self, data: bytes) -> Block:
        return Block(self._zlib.compress(data) + self._zlib.flush(zlib.Z_SYNC_FLUSH))

    def of(self, *said: Message) -> Block:
        return self.octets(b"".join(map(wire.encode, said)))


def _compressing(target: Target, *more: int) -> tuple[Probe, _Blocks]:
    """A connection on which blocks are allowed."""
    probe = target.greeted(6, *more)
    probe.say(wire.Compress(1))
    if probe.expect(wire.CompressAck).algorithm != 1:
        raise NotJudged("the target does not want blocks")
    return probe, _Blocks()


def _noted(probe: Probe, blocks: _Blocks, *said: Message) -> Block:
    """A block of messages that the probe takes notice of."""
    for each in said:
        probe.watch.sent(each)
    return blocks.of(*said)


@test(_C)
def compression_is_negotiated(target: Target) -> None:
    """Compress is answered with compressAck; one of an unknown algorithm with 0."""
    probe = target.greeted(6)
    probe.say(wire.Compress(99))
    probe.exactly(wire.CompressAck(0))
    probe.say(wire.Compress(1))
    probe.expect(wire.CompressAck)
    probe.alive()


@test(_C)
def blocks_take_the_place_of_messages(target: Target) -> None:
    """The messages of a block are taken in its place, beside plain ones."""
    probe, blocks = _compressing(target)
    first, second, third = (Subscribe(_NOBODY, number, 1) for number in (1, 2, 3))
    inside = _noted(probe, blocks, second)
    probe.say(first, inside, third)
    for number in (1, 2, 3):
        probe.accepted(number)
        probe.fails(number)


@test(_C)
def blocks_are_one_zlib_stream(target: Target) -> None:
    """Blocks may refer to what came in earlier ones, with plain messages between."""
    probe, blocks = _compressing(target)
    for number in range(1, 30):
        block = _noted(probe, blocks, Subscribe(_NOBODY, number, 1))
        probe.say(block)
        probe.accepted(number)
        probe.fails(number)
        if number % 7 == 0:
            probe.settled()


@test(_C)
def empty_blocks_do_nothing(target: Target) -> None:
    """A block that inflates to nothing is allowed."""
    probe, blocks = _compressing(target)
    probe.say(blocks.of(), blocks.of())
    probe.unaffected()


@test(_C)
def blocks_may_be_cut(target: Target) -> None:
    """A block that arrives octet by octet is the same."""
    probe, blocks = _compressing(target)
    block = _noted(probe, blocks, Subscribe(_NOBODY, 1, 1), Subscribe(_NOBODY, 2, 1))
    probe.pieces([block], range(len(wire.encode(block))))
    for number in (1, 2):
        probe.accepted(number)
        probe.fails(number)


@test(_C)
def block_in_a_block_ends(target: Target) -> None:
    """A block inside a block ends the conversation."""
    probe, blocks = _compressing(target)
    probe.octets(wire.encode(blocks.of(Block(b""))))
    probe.ends()


@test(_C)
def message_cut_by_a_block_ends(target: Target) -> None:
    """A message that is cut by the end of a block ends the conversation."""
    for cut in (1, 5, -1):
        probe, blocks = _compressing(target)
        whole = wire.encode(Subscribe(_NOBODY, 1, 1))
        probe.octets(wire.encode(blocks.octets(whole[:cut])))
        probe.octets(wire.encode(blocks.octets(whole[cut:])))
        probe.ends()


@test(_C)
def damaged_blocks_end(target: Target) -> None:
    """A block that can not be inflated ends the conversation."""
    for data in (b"\x00\x01\x02\x03", zlib.compress(b"")[:2] + b"\xff\xff\xff"):
        probe, _ = _compressing(target)
        probe.octets(wire.encode(Block(data)))
        probe.ends()


@test(_C)
def end_of_the_zlib_stream_ends(target: Target) -> None:
    """A block that ends the zlib stream ends the conversation."""
    probe, _ = _compressing(target)
    probe.octets(wire.encode(Block(zlib.compress(wire.encode(wire.Request(2**40, 1))))))
    probe.ends()


@test(_C)
def block_without_compress_ends(target: Target) -> None:
    """A block of who has not asked for blocks ends the conversation."""
    target.rejects(_Blocks().of(wire.Request(2**40, 1)), extensions=[6])


@test(_C)
def inflated_octets_are_limited(target: Target) -> None:
    """A block that inflates to more than inflated_bytes ends the conversation."""
    probe, blocks = _compressing(target)
    ignored = wire.encode(wire.Request(2**40, 1))
    block = blocks.octets(ignored * (17 * 2**20 // len(ignored)))
    require(len(block.data) < 1 << 20, "the block is too large to be sent")
    probe.octets(wire.encode(block))
    probe.closes()


@test(_C)
def declared_blocks_are_limited(target: Target) -> None:
    """A block that declares more than part_bytes ends the conversation at once."""
    probe, _ = _compressing(target)
    probe.octets(b"\x47" + wire.varint(2**40))
    probe.ends()


@test(Role.SUBSCRIBER)
def elements_in_blocks_are_elements(target: Target) -> None:
    """Elements in blocks are taken, each for a unit of demand."""
    probe, blocks = _compressing(target)
    asked = probe.published()
    window = asked.demand
    sent: Sequence[Message] = [wire.OnNext(asked.subscriber, b"{}")] * min(window, 500)
    probe.say(_noted(probe, blocks, *sent))
    probe.granted(asked, window)
