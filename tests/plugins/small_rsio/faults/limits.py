"""Faults in what is said of limits, and in keeping to them (extension 8)."""

from rsio_check import wire
from rsio_check.wire import Message
from small_rsio.faults.table import fault
from small_rsio.server import Connection


@fault("element_of_the_told_size_is_taken")
class TellsTooMuch(Connection):
    """Tells more octets than it takes."""

    def send(self, message: Message) -> None:
        if isinstance(message, wire.Limits):
            message = wire.Limits(message.element_bytes + 1)
        super().send(message)


@fault("too_large_an_element_cancels_its_stream")
class TellsTooLittle(Connection):
    """Takes elements that are larger than it has told."""

    def send(self, message: Message) -> None:
        if isinstance(message, wire.Limits):
            message = wire.Limits(message.element_bytes - 1)
        super().send(message)
