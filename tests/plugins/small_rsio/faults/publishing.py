"""Faults of a publisher."""

from rsio_check import wire
from rsio_check.wire import Message
from small_rsio.faults.table import fault
from small_rsio.server import Connection, Link, Server, Violated
from small_rsio.streams import UNBOUNDED, Served, Source


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
        super().emit_parts(stream, element[self.part_octets :])


@fault("large_elements_leave_others_their_turns")
class SendsLargeElementsInOneGo(Connection):
    """All parts of a large element come one behind the other."""

    def emit_parts(self, stream: Served, element: bytes) -> None:
        super().emit_parts(stream, element)
        while stream.unsent:
            self.send(stream.unsent.popleft())


@fault("many_elements_leave_others_their_turns")
class SendsAllThatIsThere(Connection):
    """Whatever a source gives leaves at once, however much it is."""

    def emit(self, stream: Served, elements: list[bytes]) -> None:
        super().emit(stream, elements)
        while stream.unsent:
            self.send(stream.unsent.popleft())


@fault("large_elements_leave_others_their_turns")
class SendsLargeElementsWhole(Connection):
    """Splits no element."""

    part_octets = 1 << 24


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
