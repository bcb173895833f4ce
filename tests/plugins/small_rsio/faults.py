"""Servers that break one rule each, and the tests of the kit that must say so.

A fault is a connection, or a server, of `small_rsio.server` with a method replaced; its
docstring is what shows on the wire.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rsio_check import wire
from rsio_check.wire import Message
from small_rsio.server import Connection, Link, Server, Violated
from small_rsio.streams import UNBOUNDED, Consumed, Refused, Served, Source, numbers


@dataclass(frozen=True)
class Fault:
    """A way to be wrong."""

    name: str
    wire: str
    """What it does on the wire."""
    tests: tuple[str, ...]
    """The tests that must fail."""
    server: type[Server]
    connection: type[Connection]
    token: bytes | None = None


FAULTS: dict[str, Fault] = {}


def fault(*tests: str, token: bytes | None = None) -> Callable[[type], type]:
    """A connection or a server that must fail these *tests*."""

    def register(broken: type) -> type:
        is_server = issubclass(broken, Server)
        FAULTS[broken.__name__] = Fault(
            broken.__name__,
            " ".join((broken.__doc__ or "").split()),
            tests,
            broken if is_server else Server,
            Connection if is_server else broken,
            token,
        )
        return broken

    return register


# -- the connection


@fault("hello_is_answered")
class SaysNoHello(Connection):
    """Begins without serverHello."""

    def send(self, message: Message) -> None:
        if not isinstance(message, wire.ServerHello):
            super().send(message)


@fault("hello_is_answered")
class SaysHelloTwice(Connection):
    """Answers clientHello with two serverHellos."""

    def send(self, message: Message) -> None:
        super().send(message)
        if isinstance(message, wire.ServerHello):
            super().send(message)


@fault("hello_is_answered")
class ListsAnExtensionTwice(Server):
    """Its hello lists extension 1 twice."""

    extensions = (1, 1, 2, 3, 4, 5, 6)


@fault("hello_comes_first", "goodbye_may_come_before_hello")
class TakesMessagesBeforeHello(Connection):
    """Waits for a hello, whatever comes first."""

    def take(self, message: Message) -> None:
        if self.greeted or isinstance(message, wire.ClientHello):
            super().take(message)


@fault("second_hello_ends")
class TakesASecondHello(Connection):
    """Answers a second clientHello like the first."""

    def check_order(self, message: Message) -> None:
        if not isinstance(message, wire.ClientHello):
            super().check_order(message)


@fault("hello_of_the_other_side_ends")
class TakesAServersHello(Connection):
    """Takes serverHello for clientHello."""

    def take(self, message: Message) -> None:
        if isinstance(message, wire.ServerHello):
            message = wire.ClientHello(0, message.extensions)
            if self.greeted:
                return
        super().take(message)


@fault("other_version_is_refused", "refused_hello_discards_what_follows")
class TakesAnyVersion(Connection):
    """Answers a hello of version 9 as if it were 0."""

    def on_ClientHello(self, hello: wire.ClientHello) -> None:
        super().on_ClientHello(wire.ClientHello(0, hello.extensions))


@fault("other_version_is_refused")
class DoesNotNameTheVersion(Connection):
    """Refuses a version with another reason."""

    def violated(self, why: str) -> None:
        super().violated("no" if "version" in why else why)


@fault("client_need_not_wait_for_hello")
class DropsWhatFollowsHello(Connection):
    """Forgets what arrived together with clientHello."""

    def received(self, data: bytes) -> None:
        super().received(data[:3] if not self.greeted and data[:1] == b"\x01" else data)


@fault("unknown_extensions_are_ignored", "number_of_extensions_is_limited")
class RefusesUnknownExtensions(Connection):
    """Ends the conversation at extension 300."""

    def on_ClientHello(self, hello: wire.ClientHello) -> None:
        if any(each > 6 for each in hello.extensions):
            raise Violated("unknown extension")
        super().on_ClientHello(hello)


@fault("number_of_extensions_is_limited")
class TakesAnyNumberOfExtensions(Connection):
    """Takes a hello of 65 extensions."""

    def received(self, data: bytes) -> None:
        if data[:3] == b"\x01\x00\x41":
            data = b"\x01\x00\x00"
        super().received(data)


@fault("extensions_need_both_hellos")
class TakesExtensionsUnasked(Connection):
    """Takes and answers messages of extensions that are not in use."""

    def check_order(self, message: Message) -> None:
        used, self.used = self.used, frozenset({1, 2, 3, 4, 5, 6})
        try:
            super().check_order(message)
        finally:
            self.used = used

    def on_GoodbyeAck(self, ack: wire.GoodbyeAck) -> None:
        pass


@fault("hello_is_answered", "spec201_demand_is_signalled")
class SendsExtensionsUnasked(Connection):
    """Sends stored to a client that does not have extension 2."""

    def subscribe_to(self, publisher: str) -> None:
        super().subscribe_to(publisher)
        self.send(wire.Stored(self.next_id - 1, 0))


@fault("hello_times_out")
class WaitsForeverForHello(Connection):
    """Has no hello_timeout."""

    def timed_out(self) -> None:
        if self.greeted:
            super().timed_out()


@fault("token_times_out")
class WaitsForeverForTheToken(Connection):
    """Has no time-out between hello and token."""

    def timed_out(self) -> None:
        if not self.greeted:
            super().timed_out()


# -- octets


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


# -- limits


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


@fault("control_messages_are_limited")
class TakesAnyNumberOfMessages(Server):
    """Reads messages that bring nothing without an end."""

    control = 10**9


@fault("too_many_streams_are_rejected_one_by_one")
class TakesAnyNumberOfStreams(Server):
    """Never answers E429."""

    streams = 10**9


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


@fault(
    "too_large_a_joined_element_cancels_its_stream", "unfinished_elements_are_limited"
)
class KeepsAnyNumberOfUnfinishedElements(Connection):
    """Joins parts without a limit."""

    def too_much_unfinished(self, stream: Consumed, joined: bytes) -> bool:
        return False


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


@fault("finished_elements_are_not_counted")
class CountsFinishedElements(Connection):
    """A counter of unfinished elements that leaks: it is never taken back."""

    begun = 0

    def too_much_unfinished(self, stream: Consumed, joined: bytes) -> bool:
        self.begun += 1
        return self.begun > 64


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


# -- goodbye


@fault("goodbye_is_answered", "goodbye_is_acknowledged", "nothing_follows_goodbye",
       "texts_are_limited")  # fmt: skip
class DoesNotAnswerGoodbye(Connection):
    """Closes without a word."""

    def on_Goodbye(self, goodbye: wire.Goodbye) -> None:
        self.hang_up()


@fault("goodbye_is_answered", "violations_are_told", "unknown_types_end",
       "goodbye_may_come_before_hello")  # fmt: skip
class NeverCloses(Connection):
    """Stays after goodbye, its own and the client's."""

    def hang_up(self) -> None:
        pass


@fault("goodbye_is_acknowledged")
class AnswersGoodbyeWithGoodbyeAlways(Connection):
    """Does not use goodbyeAck, though extension 3 is in use."""

    def on_Goodbye(self, goodbye: wire.Goodbye) -> None:
        self.send(wire.Goodbye(""))
        self.hang_up()


@fault("goodbye_is_answered")
class AnswersGoodbyeWithGoodbyeAckAlways(Connection):
    """Uses goodbyeAck, though extension 3 is not in use."""

    def on_Goodbye(self, goodbye: wire.Goodbye) -> None:
        self.send(wire.GoodbyeAck(""))
        self.hang_up()


@fault("acknowledgement_without_goodbye_ends")
class TakesAnAcknowledgementOfNothing(Connection):
    """Ignores a goodbyeAck that answers no goodbye."""

    def on_GoodbyeAck(self, ack: wire.GoodbyeAck) -> None:
        pass


@fault("nothing_follows_goodbye")
class ReadsOnAfterGoodbye(Connection):
    """Answers what arrives behind a goodbye."""

    def on_Goodbye(self, goodbye: wire.Goodbye) -> None:
        self.send(wire.Goodbye(""))

    def turn(self) -> None:
        super().turn()
        if b"\x03\x00" in self.out:
            self.closed = True


@fault("goodbye_ends_streams_without_a_word")
class CompletesStreamsAtGoodbye(Connection):
    """Sends onComplete for each stream before it answers goodbye."""

    def on_Goodbye(self, goodbye: wire.Goodbye) -> None:
        for stream in list(self.served.values()):
            self.complete(stream)
        super().on_Goodbye(goodbye)


@fault("goodbye_ends_what_the_target_consumes")
class WaitsForStreamsAtGoodbye(Connection):
    """Answers a goodbye only when no element is unfinished."""

    def on_Goodbye(self, goodbye: wire.Goodbye) -> None:
        if not any(each.parts for each in self.consumed.values()):
            super().on_Goodbye(goodbye)


@fault("violations_are_told")
class GivesNoReason(Connection):
    """Ends conversations with an empty goodbye."""

    def send(self, message: Message) -> None:
        if isinstance(message, wire.Goodbye):
            message = wire.Goodbye("")
        super().send(message)


@fault("violations_are_told", "unknown_types_end", "second_hello_ends",
       "acknowledgement_without_goodbye_ends", "extensions_need_both_hellos",
       "hello_comes_first", "signals_for_unknown_ids_end",
       "spec205_second_on_subscribe_ends", "packed_elements_need_a_size")  # fmt: skip
class ClosesWithoutGoodbye(Connection):
    """Ends conversations by closing."""

    def violated(self, why: str) -> None:
        self.hang_up()


# -- keepalive, codes, auth


@fault("ping_is_answered_with_its_octets")
class CutsPongs(Connection):
    """A pong has no more than 255 octets of its ping."""

    def on_Ping(self, ping: wire.Ping) -> None:
        self.send(wire.Pong(ping.data[:255]))


@fault("ping_is_answered_with_its_octets", "pings_are_answered_in_order",
       "ping_is_answered_within_a_stream", "pings_are_limited")  # fmt: skip
class DoesNotAnswerPings(Connection):
    """Takes pings and says nothing."""

    def on_Ping(self, ping: wire.Ping) -> None:
        pass


@fault("pings_are_answered_in_order")
class AnswersTheLastPing(Connection):
    """Answers only the last of several pings."""

    last: wire.Ping | None = None

    def on_Ping(self, ping: wire.Ping) -> None:
        self.last = ping

    def turn(self) -> None:
        super().turn()
        if self.last is not None:
            self.send(wire.Pong(self.last.data))
            self.last = None


@fault("ping_is_answered_within_a_stream")
class AnswersPingsBetweenElements(Connection):
    """Does not answer while an element is unfinished."""

    def on_Ping(self, ping: wire.Ping) -> None:
        if not any(each.parts for each in self.consumed.values()):
            super().on_Ping(ping)


@fault("codes_begin_errors_and_reasons")
class GivesNoCodes(Connection):
    """Errors and reasons are words, though extension 5 is in use."""

    def send(self, message: Message) -> None:
        if isinstance(message, wire.OnError):
            message = wire.OnError(message.subscriber, message.error[5:])
        super().send(message)


@fault("codes_begin_errors_and_reasons")
class GivesNoCodesInGoodbye(Connection):
    """Reasons have no code, though extension 5 is in use."""

    def violated(self, why: str) -> None:
        self.send(wire.Goodbye("no"))
        self.hang_up()


@fault("token_comes_before_all_else")
class ServesBeforeTheToken(Connection):
    """A subscribe is answered before the token has come."""

    def check_order(self, message: Message) -> None:
        waits, self.awaits_token = self.awaits_token, False
        super().check_order(message)
        self.awaits_token = waits


@fault("token_is_awaited_before_subscribing")
class SubscribesBeforeTheToken(Connection):
    """Subscribes right after hello, though a token is to come."""

    def on_ClientHello(self, hello: wire.ClientHello) -> None:
        super().on_ClientHello(hello)
        if self.awaits_token:
            self.begin()


@fault("second_token_ends")
class TakesTokensAtAnyTime(Connection):
    """Ignores a second token."""

    def on_Token(self, token: wire.Token) -> None:
        if self.awaits_token:
            super().on_Token(token)


@fault("unknown_scheme_is_refused")
class TakesAnyScheme(Connection):
    """Lets in who shows a token of an unknown scheme."""

    def on_Token(self, token: wire.Token) -> None:
        super().on_Token(wire.Token("name", token.data))


@fault("wrong_token_is_refused", token=b"s3cret")
class TakesAnyToken(Connection):
    """Lets in whoever shows any token."""

    def on_Token(self, token: wire.Token) -> None:
        super().on_Token(wire.Token("bearer", b"s3cret"))


@fault("wrong_token_is_refused", token=b"s3cret")
class TakesTokensThatBeginRight(Connection):
    """Compares the first octets of a token only."""

    def on_Token(self, token: wire.Token) -> None:
        super().on_Token(wire.Token("bearer", token.data[:6]))


@fault("missing_token_is_refused", token=b"s3cret")
class SubscribesToWhoHasNoToken(Connection):
    """Subscribes to a client that can show no token, before it hangs up."""

    def on_ClientHello(self, hello: wire.ClientHello) -> None:
        if not hello.extensions:
            self.greeted = True
            self.send(wire.ServerHello(0, self.server.extensions))
            self.begin()
            raise Violated("E401 a token is required")
        super().on_ClientHello(hello)


# -- compression


@fault("compression_is_negotiated")
class AllowsAnyAlgorithm(Connection):
    """Answers compress(99) with compressAck(1)."""

    def on_Compress(self, compress: wire.Compress) -> None:
        super().on_Compress(wire.Compress(1))


@fault("compression_is_negotiated", "blocks_take_the_place_of_messages")
class DoesNotAnswerCompress(Connection):
    """Takes compress and says nothing."""

    def on_Compress(self, compress: wire.Compress) -> None:
        self.inflate = zlib.decompressobj()


@fault("blocks_are_one_zlib_stream", "elements_of_blocks_are_stored")
class InflatesEachBlockAfresh(Connection):
    """Has a fresh zlib state for each block."""

    def inflated(self, data: bytes) -> bytes:
        self.inflate = zlib.decompressobj()
        return super().inflated(data)


@fault("blocks_take_the_place_of_messages", "elements_of_blocks_are_stored")
class TakesBlocksLater(Connection):
    """What is in a block is taken after what follows it."""

    later: bytes = b""

    def on_Block(self, block: wire.Block) -> None:
        self.later += self.inflated(block.data)

    def grant_all(self) -> None:
        later, self.later = self.later, b""
        inner = wire.Decoder(self.size_of, strict=False)
        for message in inner.feed(later):
            self.take(message)
        super().grant_all()


@fault("block_in_a_block_ends")
class SkipsBlocksInBlocks(Connection):
    """Ignores a block inside a block."""

    def on_Block(self, block: wire.Block) -> None:
        inner = wire.Decoder(self.size_of, strict=False)
        for message in inner.feed(self.inflated(block.data)):
            if not isinstance(message, wire.Block):
                self.take(message)
        if inner.unread:
            raise Violated("cut")


@fault("message_cut_by_a_block_ends")
class JoinsMessagesOverBlocks(Connection):
    """A message may begin in one block and end in the next."""

    inner: wire.Decoder | None = None

    def on_Block(self, block: wire.Block) -> None:
        if self.inner is None:
            self.inner = wire.Decoder(self.size_of, strict=False)
        for message in self.inner.feed(self.inflated(block.data)):
            if isinstance(message, wire.Block):
                raise Violated("a block in a block")
            self.take(message)


@fault("damaged_blocks_end")
class IgnoresDamagedBlocks(Connection):
    """Skips what can not be inflated."""

    def inflated(self, data: bytes) -> bytes:
        try:
            found: bytes = self.inflate.decompress(data)
        except zlib.error:
            return b""
        return found


@fault("end_of_the_zlib_stream_ends", "inflated_octets_are_limited")
class InflatesWithoutAnEnd(Connection):
    """Takes a block that ends the zlib stream, and any that inflates to 17 MiB."""

    def on_Block(self, block: wire.Block) -> None:
        self.inflate.decompress(block.data)


@fault("block_without_compress_ends")
class TakesBlocksUnasked(Connection):
    """Takes a block without compress."""

    def on_Block(self, block: wire.Block) -> None:
        if self.inflate is None:
            self.inflate = zlib.decompressobj()
        super().on_Block(block)


@fault("empty_blocks_do_nothing")
class RefusesEmptyBlocks(Connection):
    """Ends the conversation at a block of nothing."""

    def inflated(self, data: bytes) -> bytes:
        found = super().inflated(data)
        if not found:
            raise Violated("an empty block")
        return found


@fault("elements_in_blocks_are_elements")
class CountsBlocksAsElements(Connection):
    """Asks for one element again for each block."""

    def on_Block(self, block: wire.Block) -> None:
        super().on_Block(block)
        for stream in self.consumed.values():
            if stream.taken > stream.granted:
                stream.granted = stream.taken - 1


# -- publishing


@fault(
    "spec101_never_more_than_requested", "spec308_requests_add_up", "demand_is_met_in_full",
    "spec103_elements_are_in_order", "spec303_many_requests_at_once",
)  # fmt: skip
class SendsOneMore(Connection):
    """Each request brings an element more than it asks for."""

    def wanted(self, stream: Served, more: int) -> None:
        super().wanted(stream, more + 1)


@fault("spec101_packed_elements_count_each", "demand_is_met_in_full")
class CountsPacksAsOne(Connection):
    """An onNextPacked takes one unit, however many elements it has."""

    def charge_demand(self, stream: Served, count: int) -> None:
        stream.demand -= 1 if stream.source.size else count


@fault("spec101_split_elements_count_once")
class ChargesSplitElementsLate(Connection):
    """Begins the next large element before there is demand for it."""

    def emit_parts(self, stream: Served, element: bytes) -> None:
        if stream.split:
            self.send(wire.OnNextPart(stream.id, stream.split + 1, element[:100]))
        super().emit_parts(stream, element)


@fault("spec101_split_elements_count_once", "large_elements_are_whole")
class ChargesEachPart(Connection):
    """Each part takes a unit of demand, so that elements stay unfinished."""

    def emit_parts(self, stream: Served, element: bytes) -> None:
        if stream.split < 1:
            super().emit_parts(stream, element)


@fault("large_elements_are_whole", "spec101_split_elements_count_once")
class LosesParts(Connection):
    """Leaves out the first part of a large element."""

    def emit_parts(self, stream: Served, element: bytes) -> None:
        super().emit_parts(stream, element[1 << 16 :])


@fault("cancel_within_large_elements")
class CutsCancelledElements(Connection):
    """Ends a large element early when its stream is cancelled."""

    def on_Cancel(self, cancel: wire.Cancel) -> None:
        stream = self.served.get(cancel.subscriber)
        super().on_Cancel(cancel)
        if stream is not None and stream.split:
            self.send(wire.OnNextLastPart(stream.id, 10**6, b"x"))


@fault("spec103_elements_are_in_order", "spec111_two_subscribers_get_the_same",
       "spec303_many_requests_at_once")  # fmt: skip
class ReversesElements(Connection):
    """Elements of one turn come in the wrong order."""

    def emit(self, stream: Served, elements: list[bytes]) -> None:
        super().emit(stream, elements[::-1])


@fault("spec111_two_subscribers_get_the_same", "clients_are_served_apart",
       "streams_interleave")  # fmt: skip
class SharesElements(Connection):
    """Subscribers of one publisher share its elements instead of having each all."""

    sources: dict[str, Source] = {}

    def source(self, publisher: str, offset: int) -> Source:
        if publisher.startswith(
            ("check/count?n=50", "check/endless", "check/count?n=6")
        ):
            known = self.sources.get(publisher)
            if known is None:
                known = self.sources[publisher] = super().source(publisher, offset)
            return known
        return super().source(publisher, offset)


@fault("spec104_failure_is_on_error", "spec109_rejection_is_on_subscribe_and_on_error",
       "spec210_fails_with_and_without_demand", "streams_end_apart",
       "spec309_not_positive_is_an_error", "id_is_free_after_a_terminal")  # fmt: skip
class CompletesInsteadOfFailing(Connection):
    """Sends onComplete where onError belongs."""

    def send(self, message: Message) -> None:
        if isinstance(message, wire.OnError):
            message = wire.OnComplete(message.subscriber)
        super().send(message)


@fault("spec102_may_end_before_demand_is_met", "spec105_end_is_on_complete",
       "spec105_empty_stream_completes", "spec209_completes_with_and_without_demand",
       "fixed_size_is_kept")  # fmt: skip
class NeverCompletes(Connection):
    """A finite stream just stops."""

    def complete(self, stream: Served) -> None:
        del self.served[stream.id]


@fault("spec105_empty_stream_completes", "spec209_completes_with_and_without_demand",
       "spec210_fails_with_and_without_demand")  # fmt: skip
class EndsOnlyWithDemand(Connection):
    """A terminal waits for demand."""

    def finish(self, stream: Served) -> None:
        if stream.demand:
            super().finish(stream)


@fault("spec102_may_end_before_demand_is_met")
class EndsOnlyWithoutDemand(Connection):
    """A terminal waits until all demand is met."""

    def finish(self, stream: Served) -> None:
        if not stream.demand:
            super().finish(stream)


@fault("spec107_nothing_follows_on_complete", "id_is_free_after_a_terminal")
class CompletesTwice(Connection):
    """Each onComplete comes twice."""

    def complete(self, stream: Served) -> None:
        super().complete(stream)
        self.send(wire.OnComplete(stream.id))


@fault("spec107_nothing_follows_on_complete", "spec107_nothing_follows_on_error",
       "unknown_ids_are_ignored", "spec306_request_after_cancel_is_ignored")  # fmt: skip
class AnswersUnknownIds(Connection):
    """A request for a stream that is over is answered with onError."""

    def unknown(self, number: int) -> None:
        self.send(wire.OnError(number, "E404 no such stream"))


@fault("unknown_ids_are_ignored", "spec307_cancel_after_cancel_is_ignored",
       "spec306_request_after_cancel_is_ignored")  # fmt: skip
class HangsUpAtUnknownIds(Connection):
    """A request or a cancel for a stream that is over ends the conversation."""

    def unknown(self, number: int) -> None:
        raise Violated("who is that?")


@fault("spec109_rejection_is_on_subscribe_and_on_error",
       "spec309_first_demand_may_not_be_negative",
       "client_need_not_wait_for_hello", "impossible_offsets_are_errors")  # fmt: skip
class RejectsWithoutOnSubscribe(Connection):
    """A subscription is rejected with an onError alone."""

    def reject(self, number: int, error: str) -> None:
        self.send(wire.OnError(number, error))


@fault("spec110_id_in_use_ends")
class TakesAnIdInUse(Connection):
    """A second subscribe with an Id replaces the first."""

    def subscribed(self, publisher: str, number: int, demand: int, offset: int) -> None:
        self.served.pop(number, None)
        super().subscribed(publisher, number, demand, offset)


@fault("id_is_free_after_a_terminal", "id_is_free_after_cancel")
class KeepsIdsForever(Connection):
    """An Id stays in use when its stream is over."""

    def subscribed(self, publisher: str, number: int, demand: int, offset: int) -> None:
        ids = self.__dict__.setdefault("ids", set())
        if number in ids:
            raise Violated("the Id is in use (1.10)")
        ids.add(number)
        super().subscribed(publisher, number, demand, offset)


@fault("id_is_free_after_cancel")
class InheritsDemand(Connection):
    """A stream has the demand that an older one of its Id had left."""

    def subscribed(self, publisher: str, number: int, demand: int, offset: int) -> None:
        left = self.__dict__.setdefault("left", {})
        super().subscribed(publisher, number, demand + left.pop(number, 0), offset)

    def on_Cancel(self, cancel: wire.Cancel) -> None:
        stream = self.served.get(cancel.subscriber)
        if stream is not None:
            self.__dict__.setdefault("left", {})[stream.id] = stream.demand
        super().on_Cancel(cancel)


@fault("elements_come_as_they_are_there")
class WaitsUntilDemandCanBeMet(Connection):
    """Sends slow elements only when all that was requested is there."""

    def publish(self) -> None:
        for stream in self.served.values():
            ready = stream.source.ready()
            if ready < stream.demand < UNBOUNDED:
                return
        super().publish()


@fault("streams_interleave", "streams_end_apart")
class SharesDemand(Connection):
    """A request brings elements of the oldest stream."""

    def on_Request(self, request: wire.Request) -> None:
        if self.served and request.subscriber in self.served:
            request = wire.Request(min(self.served), request.demand)
        super().on_Request(request)


@fault("demand_of_one_stream_is_its_own")
class AddsDemandToAll(Connection):
    """A request adds to the demand of all streams."""

    def on_Request(self, request: wire.Request) -> None:
        for stream in self.served.values():
            if stream.id != request.subscriber < 2**40:
                self.wanted(stream, request.demand)
        super().on_Request(request)


@fault("clients_are_served_apart", "subscriber_that_goes_costs_no_other")
class ServesOneClientAtATime(Server):
    """A new connection ends the older ones' streams."""

    def connect(self) -> Link:
        link = super().connect()
        for each in self.__dict__.setdefault("all", []):
            each.served.clear()
        self.__dict__["all"].append(link.connection)
        return link


@fault("fixed_size_is_kept", "packed_and_single_elements_are_one_stream")
class PacksBackwards(Connection):
    """The elements of an onNextPacked are in the wrong order."""

    def emit(self, stream: Served, elements: list[bytes]) -> None:
        super().emit(stream, elements[::-1] if stream.source.size else elements)


@fault("packed_and_single_elements_are_one_stream", "demand_is_met_in_full")
class LosesOnesBetweenPacks(Connection):
    """An element of fixed size that would come alone is dropped."""

    def emit(self, stream: Served, elements: list[bytes]) -> None:
        if not stream.source.size or len(elements) > 1:
            super().emit(stream, elements)


@fault("request_may_follow_subscribe_at_once", "spec308_requests_add_up")
class DropsEarlyRequests(Connection):
    """Ignores requests that came with their subscribe."""

    def on_Request(self, request: wire.Request) -> None:
        if b"\x20" + wire.varint(request.subscriber) not in self.out:
            super().on_Request(request)


@fault("spec303_many_requests_at_once", "spec103_elements_are_in_order",
       "spec308_requests_add_up", "spec317_demand_saturates")  # fmt: skip
class ReplacesDemand(Connection):
    """A request replaces the demand that was left."""

    def wanted(self, stream: Served, more: int) -> None:
        stream.demand = more


@fault("spec309_not_positive_is_an_error")
class TakesDemandOfNothing(Connection):
    """Ignores request(0) and request(-1)."""

    def not_positive(self, stream: Served) -> None:
        pass


@fault("spec309_not_positive_is_an_error", "spec309_first_demand_may_not_be_negative")
class DoesNotNameRule39(Connection):
    """The error does not say which rule it is."""

    def send(self, message: Message) -> None:
        if isinstance(message, wire.OnError):
            message = wire.OnError(message.subscriber, "E400 no")
        super().send(message)


@fault("spec309_first_demand_may_not_be_negative",
       "subscribe_from_has_demand_like_subscribe")  # fmt: skip
class TakesNegativeFirstDemand(Connection):
    """An initialDemand above 2^63-1 is unbounded."""

    def subscribed(self, publisher: str, number: int, demand: int, offset: int) -> None:
        super().subscribed(publisher, number, min(demand, UNBOUNDED), offset)


@fault("spec309_first_demand_may_be_none", "spec101_never_more_than_requested")
class RefusesFirstDemandOfNone(Connection):
    """An initialDemand of 0 is an error."""

    def subscribed(self, publisher: str, number: int, demand: int, offset: int) -> None:
        demand = demand or 2**63
        super().subscribed(publisher, number, demand, offset)


@fault("spec312_cancel_stops_a_stream", "spec312_cancel_ends_demand",
       "spec306_request_after_cancel_is_ignored", "id_is_free_after_cancel")  # fmt: skip
class DoesNotCancel(Connection):
    """Goes on after a cancel."""

    def on_Cancel(self, cancel: wire.Cancel) -> None:
        pass


@fault("spec307_cancel_after_cancel_is_ignored", "spec312_cancel_stops_a_stream")
class AnswersCancel(Connection):
    """Sends onComplete in answer to cancel."""

    def on_Cancel(self, cancel: wire.Cancel) -> None:
        if cancel.subscriber in self.served:
            super().on_Cancel(cancel)
            self.send(wire.OnComplete(cancel.subscriber))


@fault("spec317_demand_saturates")
class WrapsDemand(Connection):
    """Demand is counted modulo 2^63."""

    def wanted(self, stream: Served, more: int) -> None:
        stream.demand = (stream.demand + more) % 2**63


@fault(
    "spec317_unbounded_demand_is_no_error",
    "spec317_demand_saturates_while_nothing_comes",
)
class FailsAtGreatDemand(Connection):
    """Demand beyond 2^63-1 is an error."""

    def wanted(self, stream: Served, more: int) -> None:
        stream.demand += more
        if stream.demand > UNBOUNDED:
            self.fail(stream, "E400 too much (3.17)")


@fault("old_demand_is_honoured")
class ForgetsOldDemand(Connection):
    """A new stream takes away the demand of the others."""

    def subscribed(self, publisher: str, number: int, demand: int, offset: int) -> None:
        for stream in self.served.values():
            stream.demand = 0
        super().subscribed(publisher, number, demand, offset)


# -- resuming


@fault("resumes_behind_the_offset", "resumes_across_connections",
       "subscribe_from_has_demand_like_subscribe", "events_can_be_resumed")  # fmt: skip
class ResumesOffByOne(Connection):
    """subscribeFrom goes on one element too early."""

    def on_SubscribeFrom(self, asked: wire.SubscribeFrom) -> None:
        before = max(asked.offset - 1, 0)
        self.subscribed(asked.publisher, asked.subscriber, asked.demand, before)


@fault(
    "resumes_behind_the_offset", "resumes_at_the_end", "impossible_offsets_are_errors"
)
class IgnoresOffsets(Connection):
    """subscribeFrom begins at the first element."""

    def on_SubscribeFrom(self, asked: wire.SubscribeFrom) -> None:
        self.subscribed(asked.publisher, asked.subscriber, asked.demand, 0)


@fault("resumes_at_the_end")
class RefusesTheEnd(Connection):
    """Behind the last element there is nothing, not even the end."""

    def source(self, publisher: str, offset: int) -> Source:
        if publisher == "check/count?n=20" and offset == 20:
            return Source(numbers((), 0), ready=lambda: 0)
        return super().source(publisher, offset)


@fault("impossible_offsets_are_errors")
class CompletesBeyondTheEnd(Connection):
    """An offset that does not exist is an empty stream."""

    def source(self, publisher: str, offset: int) -> Source:
        try:
            return super().source(publisher, offset)
        except Refused as why:
            if "E416" in str(why):
                return Source(iter(()))
            raise


@fault("stored_may_come_at_any_time")
class AnswersStored(Connection):
    """Ends a stream whose subscriber has stored all of it."""

    def on_Stored(self, stored: wire.Stored) -> None:
        if stored.offset == 2 and stored.subscriber in self.served:
            self.complete(self.served[stored.subscriber])


@fault("stored_may_come_at_any_time", "resumes_across_connections")
class HangsUpAtStored(Connection):
    """A stored for a stream that is not in use ends the conversation; any breaks it."""

    def on_Stored(self, stored: wire.Stored) -> None:
        self.server.connection = SaysNoHello
        raise Violated("stored")


# -- subscribing


@fault("spec201_demand_is_signalled", "demand_is_renewed_for_each_element")
class AsksForNothing(Server):
    """Subscribes without any demand, and never asks for some."""

    window = 0


@fault("spec203_nothing_answers_on_complete", "stream_may_end_within_an_element",
       "spec209_stream_may_end_at_once", "spec108_terminal_may_follow_cancel")  # fmt: skip
class AsksAgainAtOnComplete(Connection):
    """Sends a request in reply to onComplete."""

    def on_OnComplete(self, done: wire.OnComplete) -> None:
        super().on_OnComplete(done)
        self.send(wire.Request(done.subscriber, 1))


@fault("spec203_nothing_answers_on_error")
class CancelsAtOnError(Connection):
    """Sends a cancel in reply to onError."""

    def on_OnError(self, failed: wire.OnError) -> None:
        super().on_OnError(failed)
        self.send(wire.Cancel(failed.subscriber))


@fault("spec205_second_on_subscribe_ends")
class TakesASecondOnSubscribe(Connection):
    """Ignores a second onSubscribe."""

    def on_OnSubscribe(self, started: wire.OnSubscribe) -> None:
        if self.stream(started.subscriber, started=False).size is None:
            super().on_OnSubscribe(started)


@fault("spec205_second_on_subscribe_ends")
class EndsWithoutCancelling(Connection):
    """At a second onSubscribe it ends the conversation without a cancel."""

    def second_on_subscribe(self, stream: Consumed) -> None:
        raise Violated("a second onSubscribe (2.5)")


@fault("spec208_late_elements_are_dropped", "spec208_late_elements_keep_their_size",
       "spec108_terminal_may_follow_cancel", "elements_beyond_demand_are_not_stored")  # fmt: skip
class ForgetsWhatItCancelled(Connection):
    """A late element of a cancelled stream ends the conversation."""

    def cancel(self, stream: Consumed) -> None:
        super().cancel(stream)
        self.consumed.pop(stream.id, None)


@fault("spec208_late_elements_keep_their_size")
class ForgetsTheSizeOfWhatItCancelled(Connection):
    """Late elements are read as if they had no fixed size."""

    def cancel(self, stream: Consumed) -> None:
        super().cancel(stream)
        stream.size = 0


@fault("cancelled_stream_ends_with_its_terminal", "spec107_signal_after_terminal_ends")
class RemembersStreamsForever(Connection):
    """Drops whatever comes behind a terminal."""

    def ended(self, stream: Consumed) -> None:
        stream.dropped = True


@fault("spec109_element_before_on_subscribe_ends",
       "spec109_terminal_before_on_subscribe_ends")  # fmt: skip
class NeedsNoOnSubscribe(Connection):
    """Takes elements and terminals before onSubscribe."""

    def size_of(self, number: int) -> int | None:
        return super().size_of(number) or 0

    def stream(self, number: int, *, started: bool = True) -> Consumed:
        return super().stream(number, started=False)


@fault("signals_for_unknown_ids_end")
class IgnoresUnknownStreams(Connection):
    """Signals for an Id that was never subscribed are dropped."""

    def size_of(self, number: int) -> int | None:
        return super().size_of(number) if number in self.consumed else 0

    def take(self, message: Message) -> None:
        if message.CODE >> 4 == 2 and message.subscriber not in self.consumed:  # type: ignore[attr-defined]
            return
        super().take(message)


@fault("packed_elements_need_a_size")
class TakesPacksOfAnySize(Connection):
    """Reads an onNextPacked in a stream without a fixed size as octets."""

    def received(self, data: bytes) -> None:
        packed = data[:1] == b"\x24" and self.consumed[data[1]].size == 0
        super().received(b"" if packed else data)


@fault("packs_of_none_do_nothing")
class ChargesEmptyPacks(Connection):
    """An onNextPacked of nothing takes a unit of demand, which is asked for again."""

    def on_OnNextPacked(self, message: wire.OnNextPacked) -> None:
        super().on_OnNextPacked(message)
        self.stream(message.subscriber).taken += not message.count


@fault("own_ids_are_not_reused")
class SubscribesWithOneId(Connection):
    """All of its subscriptions have the Id 1."""

    def subscribe_to(self, publisher: str) -> None:
        self.next_id = 1
        super().subscribe_to(publisher)


@fault("same_id_both_ways_is_two_streams", "both_roles_at_once")
class HasOneTableOfStreams(Connection):
    """A client's subscribe with the Id of the server's own stream ends that one."""

    def subscribed(self, publisher: str, number: int, demand: int, offset: int) -> None:
        self.consumed.pop(number, None)
        super().subscribed(publisher, number, demand, offset)


@fault("next_connection_asks_for_a_whole_window")
class AsksForLessNextTime(Connection):
    """The second connection of a server has half a window."""

    def begin(self) -> None:
        super().begin()
        self.server.window = 50 if self.server.window == 100 else 100


# -- credit


@fault("demand_is_renewed_for_each_element", "demand_follows_what_came",
       "parts_of_elements_may_interleave")  # fmt: skip
class AsksForTooMuch(Connection):
    """Each request asks for one more than has come."""

    def grant(self, stream: Consumed, more: int) -> None:
        super().grant(stream, more + 1)


@fault("demand_is_renewed_for_each_element", "demand_is_renewed_in_any_form",
       "same_id_both_ways_is_two_streams", "elements_may_be_empty",
       "window_may_be_used_in_any_pieces", "acknowledged_elements_are_stored")  # fmt: skip
class NeverAsksAgain(Connection):
    """The first window is the last."""

    def grant(self, stream: Consumed, more: int) -> None:
        pass


@fault("demand_is_renewed_in_any_form", "packed_elements_are_stored_apart")
class RenewsPacksAsOne(Connection):
    """Asks for one element again for a whole onNextPacked."""

    def on_OnNextPacked(self, message: wire.OnNextPacked) -> None:
        super().on_OnNextPacked(message)
        self.stream(message.subscriber).granted += max(message.count - 1, 0)


@fault("demand_waits_for_last_parts", "demand_follows_what_came")
class AsksForWhatHasBegun(Connection):
    """Asks again when the first part of an element has come, and too early in general."""

    def part(self, part: Any, *, last: bool) -> None:
        super().part(part, last=last)
        if not last:
            self.send(wire.Request(part.subscriber, 1))

    def on_OnNext(self, message: wire.OnNext) -> None:
        super().on_OnNext(message)
        self.send(wire.Request(message.subscriber, 1))


@fault("overrun_cancels_the_stream", "overrun_within_a_pack_cancels_the_stream",
       "overrun_by_a_first_part_cancels_the_stream", "second_overrun_ends",
       "elements_beyond_demand_are_not_stored")  # fmt: skip
class TakesMoreThanRequested(Connection):
    """Takes whatever comes."""

    def overrun(self, stream: Consumed) -> None:
        stream.room = UNBOUNDED

    def charge(self, stream: Consumed, count: int = 1) -> bool:
        return super().charge(stream, count) or not stream.dropped


@fault("overrun_within_a_pack_cancels_the_stream")
class ChargesPacksOnce(Connection):
    """Demand is not enforced within an onNextPacked."""

    def charge(self, stream: Consumed, count: int = 1) -> bool:
        return super().charge(stream, 1)


@fault("overrun_by_a_first_part_cancels_the_stream")
class ChargesLastParts(Connection):
    """A split element takes its unit of demand with its last part."""

    def part(self, part: Any, *, last: bool) -> None:
        stream = self.stream(part.subscriber)
        if part.element not in stream.parts and not last:
            stream.room += 1
        super().part(part, last=last)


@fault("second_overrun_ends")
class ToleratesASecondOverrun(Connection):
    """Cancels a stream each time that too much comes, without an end."""

    def overrun(self, stream: Consumed) -> None:
        self.cancel(stream)


@fault("overrun_cancels_the_stream", "overrun_within_a_pack_cancels_the_stream")
class HangsUpAtTheFirstOverrun(Connection):
    """Ends the conversation the first time that too much comes."""

    def overrun(self, stream: Consumed) -> None:
        raise Violated("more elements than requested (1.1)")


# -- parts


@fault("whole_elements_may_come_between_parts")
class RefusesElementsBetweenParts(Connection):
    """Ends the conversation at a whole element between the parts of another."""

    def on_OnNext(self, message: wire.OnNext) -> None:
        if self.stream(message.subscriber).parts:
            raise Violated("an element within another")
        super().on_OnNext(message)


@fault("split_elements_are_stored_joined")
class JoinsOneElementAtATime(Connection):
    """Anything between the parts of an element drops it."""

    def on_OnNext(self, message: wire.OnNext) -> None:
        self.stream(message.subscriber).parts.clear()
        super().on_OnNext(message)

    def part(self, part: Any, *, last: bool) -> None:
        parts = self.stream(part.subscriber).parts
        for other in [each for each in parts if each != part.element]:
            del parts[other]
        super().part(part, last=last)


@fault("parts_may_be_empty")
class RefusesEmptyParts(Connection):
    """Ends the conversation at a part of no octets."""

    def part(self, part: Any, *, last: bool) -> None:
        if not part.data:
            raise Violated("an empty part")
        super().part(part, last=last)


@fault("element_ids_may_be_used_again")
class KeepsElementIds(Connection):
    """An element's Id may not be used again."""

    def part(self, part: Any, *, last: bool) -> None:
        ids = self.__dict__.setdefault("ids", set())
        if (part.subscriber, part.element) in ids:
            raise Violated("the element's Id was used")
        super().part(part, last=last)
        if last:
            ids.add((part.subscriber, part.element))


@fault("stream_may_end_within_an_element")
class RefusesEndsWithinElements(Connection):
    """A terminal within a split element ends the conversation."""

    def ended(self, stream: Consumed) -> None:
        if stream.parts:
            raise Violated("a terminal within an element")
        super().ended(stream)


@fault("parts_of_a_fixed_size_join_to_it")
class JoinsToAnySize(Connection):
    """Parts in a stream of fixed size may join to any."""

    def wrong_total(self) -> None:
        pass


@fault("sizes_of_streams_are_their_own")
class HasOneSizeForAll(Connection):
    """The size of the latest onSubscribe is that of all streams."""

    def on_OnSubscribe(self, started: wire.OnSubscribe) -> None:
        super().on_OnSubscribe(started)
        for stream in self.consumed.values():
            if stream.size is not None:
                stream.size = started.size


@fault("elements_may_be_empty")
class DropsEmptyElements(Connection):
    """An element of no octets is not counted."""

    def element(self, stream: Consumed, element: bytes) -> None:
        if element:
            super().element(stream, element)


@fault("parts_of_elements_may_interleave", "split_elements_are_stored_joined")
class ChargesEveryPart(Connection):
    """Asks again for every part."""

    def part(self, part: Any, *, last: bool) -> None:
        super().part(part, last=last)
        if not last:
            self.stream(part.subscriber).granted -= 1


# -- ingest


class _Loses(Server):
    every = 7
    seen = 0

    def store(self, stream: Consumed, element: bytes) -> None:
        self.seen += 1
        if self.seen % self.every or b"the end" in element:
            super().store(stream, element)
        elif stream.named is not None:
            seq = stream.offset + stream.taken
            self.known[stream.named, stream.publisher] = seq


@fault("acknowledged_elements_are_stored", "elements_of_blocks_are_stored",
       "named_sender_resumes_exactly", "unacknowledged_elements_are_stored_once",
       "packed_elements_are_stored_apart", "stored_is_what_is_stored")  # fmt: skip
class LosesWhatItAcknowledged(_Loses):
    """Every seventh element is acknowledged and not stored."""


@fault("senders_have_offsets_of_their_own", "split_elements_are_stored_joined")
class LosesEveryThird(_Loses):
    """Every third element is acknowledged and not stored."""

    every = 3


@fault("acknowledged_elements_are_stored", "elements_of_blocks_are_stored")
class StoresTwice(Server):
    """Some elements are stored twice."""

    def store(self, stream: Consumed, element: bytes) -> None:
        super().store(stream, element)
        if stream.taken % 9 == 5:
            super().store(stream, element)


@fault("acknowledged_elements_are_stored")
class CountsFromZero(Server):
    """seq counts from 0."""

    def store(self, stream: Consumed, element: bytes) -> None:
        stream.taken -= 1
        super().store(stream, element)
        stream.taken += 1


@fault("large_elements_are_stored_unchanged", "split_elements_are_stored_joined")
class StoresTheLastPart(Connection):
    """Of a split element the last part is stored."""

    def part(self, part: Any, *, last: bool) -> None:
        if last:
            self.stream(part.subscriber).parts[part.element] = b""
        super().part(part, last=last)


@fault("unfinished_elements_are_not_stored")
class StoresUnfinishedElements(Connection):
    """What is unfinished when the connection is lost is stored."""

    def lost(self) -> None:
        for stream in self.consumed.values():
            for element in stream.parts.values():
                stream.taken += 1
                self.server.store(stream, element)
            stream.parts.clear()
        super().lost()


@fault("elements_beyond_demand_are_not_stored")
class StoresLateElements(Connection):
    """What comes behind its cancel is stored."""

    def on_OnNext(self, message: wire.OnNext) -> None:
        stream = self.stream(message.subscriber)
        if stream.dropped:
            self.server.store(stream, message.element)
        super().on_OnNext(message)


@fault("named_sender_resumes_exactly", "unacknowledged_elements_are_stored_once")
class AsksSendersOffByOne(Connection):
    """A named sender is asked to go on one behind what is stored."""

    def subscribe_to(self, publisher: str) -> None:
        key = (self.name or b"", publisher)
        if self.server.known.get(key):
            self.server.known[key] += 1
        super().subscribe_to(publisher)


@fault("named_sender_resumes_exactly")
class AsksSendersAgain(Connection):
    """A named sender is asked again for the last element that is stored."""

    def subscribe_to(self, publisher: str) -> None:
        key = (self.name or b"", publisher)
        if self.server.known.get(key):
            self.server.known[key] -= 1
        super().subscribe_to(publisher)


@fault("stored_is_what_is_stored")
class SaysTooMuchIsStored(Connection):
    """stored counts elements that have not come."""

    def send(self, message: Message) -> None:
        if isinstance(message, wire.Stored):
            message = wire.Stored(message.subscriber, message.offset + 1)
        super().send(message)


@fault("stored_is_what_is_stored")
class NeverSaysStored(Connection):
    """Sends no stored."""

    def send(self, message: Message) -> None:
        if not isinstance(message, wire.Stored):
            super().send(message)


@fault("senders_have_offsets_of_their_own")
class TakesAllSendersForOne(Connection):
    """All names share one offset."""

    def on_Token(self, token: wire.Token) -> None:
        super().on_Token(wire.Token(token.scheme, b"everybody"))
