"""Faults of hello, goodbye, and what is a violation."""

from rsio_check import wire
from rsio_check.wire import Message
from small_rsio.faults.table import fault
from small_rsio.server import Connection, Server, Violated


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


@fault("goodbye_is_answered", "violations_are_told", "unknown_types_end",
       "goodbye_may_come_before_hello")  # fmt: skip
class NeverCloses(Connection):
    """Stays after goodbye, its own and the client's."""

    def hang_up(self) -> None:
        pass


@fault("goodbye_is_answered")
class AnswersGoodbyeWithGoodbyeAckAlways(Connection):
    """Uses goodbyeAck, though extension 3 is not in use."""

    def on_Goodbye(self, goodbye: wire.Goodbye) -> None:
        self.send(wire.GoodbyeAck(""))
        self.hang_up()


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
