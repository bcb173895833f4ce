"""A sender of a name that announces its life, message by message; and what is stored of it."""

from typing import Any

from gateway.event import Origin
from gateway.protocols.rsio import events, wire
from gateway.protocols.rsio.messages import ClientHello, Token
from gateway.protocols.rsio.offsets import Key

HELLO = ClientHello(0, (2, 4, 7))
OLD_HELLO = ClientHello(0, (2, 4))
NAME = Token("name", b"meter")
KEY = Key("meter", "events")
ORIGIN = Origin("rsio", "l", "s", "p", attributes={"source": "meter"})


def heard_by(connection: Any, read: Any) -> list[Any]:
    """The messages that were sent to it since the last time."""
    data = connection.sent
    connection.clear()
    return list(read(data))


class Wire:
    """A connection of a sender, in messages."""

    def __init__(self, gate: Any, read: Any, *said: Any) -> None:
        self.gate, self._read = gate, read
        self.connection, _ = gate.connect()
        self.say(*said)

    def say(self, *said: Any) -> list[Any]:
        """Say it, store everything, and return what is heard."""
        for one in said:
            octets = one if isinstance(one, bytes) else wire.encode(one)
            self.connection.deliver(octets)
        self.gate.journal.store_all()
        return self.heard()

    def heard(self) -> list[Any]:
        return heard_by(self.connection, self._read)


def stored_elements(gate: Any) -> list[bytes]:
    """What is stored, in order."""
    bodies = [stored.body for stored in gate.journal.submitted if stored.count]
    return [one for body in bodies for one in events.decode(body).each()]
