"""Faults in what is stored, and in what is said to be."""

from collections.abc import Iterator
from typing import Any

from rsio_check import wire
from rsio_check.wire import Message
from small_rsio.faults.table import fault
from small_rsio.server import Connection, Server
from small_rsio.streams import Consumed


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


@fault("stored_comes_in_any_stream")
class SaysStoredToNamedSenders(Connection):
    """Sends stored in streams that began with subscribeFrom only."""

    def grant(self, stream: Consumed, more: int) -> None:
        used = self.used
        if stream.named is None:
            self.used = used - {2}
        super().grant(stream, more)
        self.used = used


@fault("senders_have_offsets_of_their_own")
class TakesAllSendersForOne(Connection):
    """All names share one offset."""

    def on_Token(self, token: wire.Token) -> None:
        super().on_Token(wire.Token(token.scheme, b"everybody"))


@fault("acknowledged_elements_are_stored", "events_can_be_resumed")
class PublishesNoJson(Server):
    """events brings something else than objects of JSON."""

    def stored_from(self, first: int) -> Iterator[bytes]:
        for event in super().stored_from(first):
            yield b"stored: " + event


@fault("acknowledged_elements_are_stored", "events_can_be_resumed")
class StoresNothing(Server):
    """Of what it acknowledged only the end is stored."""

    def store(self, stream: Consumed, element: bytes) -> None:
        if b"the end" in element:
            super().store(stream, element)
