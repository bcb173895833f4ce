"""Faults of keepalive, codes, auth, compression and resuming."""

import zlib

from rsio_check import wire
from rsio_check.wire import Message
from small_rsio.faults.table import fault
from small_rsio.server import Connection, Violated
from small_rsio.streams import Refused, Source, numbers


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


@fault("pings_may_come_before_the_token")
class TakesNothingBeforeTheToken(Connection):
    """Ends the conversation at anything but a token."""

    def check_order(self, message: Message) -> None:
        super().check_order(message)
        if self.awaits_token and not isinstance(message, wire.Token):
            raise Violated("E401 the token comes first")


@fault("token_is_awaited_before_subscribing")
class SubscribesBeforeTheToken(Connection):
    """Subscribes right after hello, though a token is to come."""

    def on_ClientHello(self, hello: wire.ClientHello) -> None:
        super().on_ClientHello(hello)
        if self.awaits_token:
            self.begin()


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


@fault("compression_is_negotiated", "blocks_take_the_place_of_messages")
class DoesNotAnswerCompress(Connection):
    """Takes compress and says nothing."""

    def on_Compress(self, compress: wire.Compress) -> None:
        self.inflate = zlib.decompressobj()


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


@fault("resumes_behind_the_offset", "resumes_across_connections",
       "subscribe_from_has_demand_like_subscribe", "events_can_be_resumed")  # fmt: skip
class ResumesOffByOne(Connection):
    """subscribeFrom goes on one element too early."""

    def on_SubscribeFrom(self, asked: wire.SubscribeFrom) -> None:
        before = max(asked.offset - 1, 0)
        self.subscribed(asked.publisher, asked.subscriber, asked.demand, before)


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


@fault("stored_may_come_at_any_time")
class HangsUpAtStored(Connection):
    """A stored for a stream that is not in use ends the conversation; any breaks it."""

    def on_Stored(self, stored: wire.Stored) -> None:
        self.server.known.clear()
        raise Violated("stored")
