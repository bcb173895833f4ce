"""Faults in reading and writing octets, and in limits."""

from typing import Any

from rsio_check import wire
from rsio_check.wire import Message
from small_rsio.faults.table import fault
from small_rsio.server import Connection, Link, Server, Violated
from small_rsio.streams import Consumed


@fault("octet_by_octet", "cut_anywhere", "blocks_may_be_cut",
       "window_may_be_used_in_any_pieces")  # fmt: skip
class LosesWhatIsCut(Connection):
    """Understands a message only if it arrives in one piece."""

    def received(self, data: bytes) -> None:
        super().received(data)
        self.decoder = wire.Decoder(self.size_of, strict=False)


@fault("ids_of_every_length")
class CutsIdsTo32Bits(Connection):
    """Answers with the lower 32 bits of an Id."""

    def send(self, message: Message) -> None:
        if isinstance(message, wire.OnSubscribe):
            message = wire.OnSubscribe(message.subscriber % 2**32, message.size)
        super().send(message)


@fault("long_varints_are_read")
class ReadsShortestVarintsOnly(Connection):
    """Ends the conversation at 0x85 0x00."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.decoder = wire.Decoder(self.size_of)


@fault("hello_is_answered")
class WritesLongVarints(Connection):
    """Writes 0x80 0x00 for 0."""

    def send(self, message: Message) -> None:
        if isinstance(message, wire.ServerHello):
            self.out += b"\x02\x00\x81\x00\x01"
        else:
            super().send(message)


class _Lenient(wire.Decoder):
    def _varint(self) -> int:
        value = shift = 0
        while True:
            octet = self._take(1)[0]
            value |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                return value % 2**64


@fault("varints_of_eleven_octets_end", "varints_of_65_bits_end")
class ReadsAnyVarint(Connection):
    """Reads varints of eleven octets, modulo 2^64."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.decoder = _Lenient(self.size_of, strict=False)


@fault("unknown_types_end", "violations_are_told")
class SkipsUnknownTypes(Connection):
    """Skips an octet that is no type."""

    def received(self, data: bytes) -> None:
        if len(data) == 1 and data not in b"\x01\x02\x03":
            return
        super().received(data)


class _AnyText(wire.Decoder):
    def _read(self, kind: str) -> Any:
        if kind in ("name", "text"):
            return self._octets(255 if kind == "name" else 4096, kind).decode(
                "utf-8", "replace"
            )
        return super()._read(kind)


@fault("names_are_utf8", "reasons_are_utf8", "errors_are_utf8")
class ReadsTextThatIsNotUtf8(Connection):
    """Reads a String that is not UTF-8, with U+FFFD."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.decoder = _AnyText(self.size_of, strict=False)


@fault("spec109_rejection_is_on_subscribe_and_on_error")
class WritesTextThatIsNotUtf8(Connection):
    """Its errors end within a character."""

    def send(self, message: Message) -> None:
        if isinstance(message, wire.OnError) and message.subscriber < 100:
            self.out += b"\x23" + wire.varint(message.subscriber) + b"\x06E404 \xc3"
        else:
            super().send(message)


@fault("nonsense_costs_its_own_connection", "reset_within_a_message_harms_no_other",
       "reset_within_an_element_harms_no_other")  # fmt: skip
class OneBadConnectionEndsAll(Server):
    """Closes all connections when one is lost or breaks a rule."""

    all: list[Connection]

    def connect(self) -> Link:
        link = super().connect()
        open_ = [each for each in getattr(self, "all", []) if not each.closed]
        self.all = [*open_, link.connection]
        lost = link.connection.lost

        def take_all_along() -> None:
            if not link.connection.closed:
                for each in self.all:
                    each.closed = True
            lost()

        link.connection.lost = take_all_along  # type: ignore[method-assign]
        return link


class _Unlimited(wire.Decoder):
    def _octets(self, most: int, what: str) -> bytes:
        return self._take(self._varint())

    def _packed(self) -> wire.OnNextPacked:
        number = self._varint()
        size = self._known_size(number)
        count = self._varint()
        return wire.OnNextPacked(number, count, self._take(count * size))


@fault(
    "lengths_are_refused_before_the_body", "names_are_limited", "texts_are_limited",
    "pings_are_limited", "errors_are_limited", "tokens_are_limited",
    "declared_elements_are_limited", "declared_parts_are_limited",
    "declared_packs_are_limited", "declared_blocks_are_limited",
)  # fmt: skip
class BelievesAnyLength(Connection):
    """Waits for whatever a length announces."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.decoder = _Unlimited(self.size_of, strict=False)


@fault("names_are_limited")
class RefusesLongNames(Connection):
    """Ends the conversation at a name of 255 octets."""

    def on_Subscribe(self, asked: wire.Subscribe) -> None:
        if len(asked.publisher) > 200:
            raise Violated("a long name")
        super().on_Subscribe(asked)


@fault("texts_are_limited")
class RefusesLongReasons(Connection):
    """Does not answer a goodbye of 4096 octets."""

    def on_Goodbye(self, goodbye: wire.Goodbye) -> None:
        if len(goodbye.reason) < 4000:
            super().on_Goodbye(goodbye)
        self.hang_up()


@fault("too_many_streams_are_rejected_one_by_one")
class HangsUpAtTooManyStreams(Connection):
    """Ends the conversation at the 257th stream."""

    def reject(self, number: int, error: str) -> None:
        if error.startswith("E429"):
            raise Violated(error)
        super().reject(number, error)


@fault("too_many_streams_are_rejected_one_by_one")
class CountsStreamsThatAreOver(Connection):
    """Has no room again when a stream ends."""

    most = 0

    def subscribed(self, publisher: str, number: int, demand: int, offset: int) -> None:
        if not publisher.startswith("check/no"):
            self.most += 1
        if self.most > 256:
            self.reject(number, "E429 too many streams")
        else:
            super().subscribed(publisher, number, demand, offset)


@fault("too_large_an_element_cancels_its_stream")
class HangsUpAtALargeElement(Connection):
    """Ends the conversation at an element above element_bytes."""

    def element(self, stream: Consumed, element: bytes) -> None:
        if len(element) > self.server.element_bytes:
            raise Violated("too large an element")
        super().element(stream, element)


@fault("unfinished_elements_are_limited",
       "too_large_a_joined_element_cancels_its_stream")  # fmt: skip
class HangsUpAtTooMuchUnfinished(Connection):
    """Ends the conversation instead of cancelling the stream."""

    def part(self, part: Any, *, last: bool) -> None:
        stream = self.consumed.get(part.subscriber)
        before = stream is not None and stream.dropped
        super().part(part, last=last)
        if stream is not None and stream.dropped and not before:
            raise Violated("too much is unfinished")


@fault("unfinished_elements_end_with_their_stream")
class CountsWhatEndedUnfinished(Connection):
    """Parts of a stream that has ended still count as unfinished."""

    leaked = 0

    def ended(self, stream: Consumed) -> None:
        self.leaked += len(stream.parts)
        super().ended(stream)

    def too_much_unfinished(self, stream: Consumed, joined: bytes) -> bool:
        held = sum(len(each.parts) for each in self.consumed.values())
        return held + self.leaked > 64


@fault("declared_sizes_are_limited")
class TakesAnySize(Connection):
    """Accepts streams of elements of 2^40 octets."""

    def on_OnSubscribe(self, started: wire.OnSubscribe) -> None:
        super().on_OnSubscribe(wire.OnSubscribe(started.subscriber, 8))
