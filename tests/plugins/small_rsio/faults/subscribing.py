"""Faults of a subscriber, its demand and the elements that it joins."""

from typing import Any

from rsio_check import wire
from small_rsio.faults.table import fault
from small_rsio.server import Connection, Server, Violated
from small_rsio.streams import Consumed


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
class EndsWithoutCancelling(Connection):
    """At a second onSubscribe it ends the conversation without a cancel."""

    def second_on_subscribe(self, stream: Consumed) -> None:
        raise Violated("a second onSubscribe (2.5)")


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


@fault("demand_is_renewed_for_each_element", "demand_follows_what_came",
       "parts_of_elements_may_interleave")  # fmt: skip
class AsksForTooMuch(Connection):
    """Each request asks for one more than has come."""

    def grant(self, stream: Consumed, more: int) -> None:
        super().grant(stream, more + 1)


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


@fault("overrun_cancels_the_stream", "overrun_within_a_pack_cancels_the_stream")
class HangsUpAtTheFirstOverrun(Connection):
    """Ends the conversation the first time that too much comes."""

    def overrun(self, stream: Consumed) -> None:
        raise Violated("more elements than requested (1.1)")


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
