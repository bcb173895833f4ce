"""What checks are written with: connections to the target, driven message by message.

A check is a function of a `Target`, the implementation under test.  It opens
connections and drives each through a `Probe`, which sends exactly what the check wants,
down to single octets, and lets no message that the target sends pass unseen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from gateway.interfaces import Refusal
from gateway.protocols.rsio import messages, wire
from gateway.protocols.rsio.decoder import Decoder, Run, elements
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Code, Message
from gateway.protocols.rsio.streams import Consumed

__all__ = ["Failed", "Next", "Probe", "Target", "Transport", "Unavailable"]

_PATIENCE_SECONDS = 5.0
"""For a message that is expected."""
_SILENCE_SECONDS = 0.3
"""Without a message: then none is coming."""
_ENDLESS = 2**62

Kind = TypeVar("Kind")


class Failed(Exception):
    """The target does not do what the check promises; says what it does."""


class Unavailable(Exception):
    """The target lacks what the check needs; says what."""


class Transport(Protocol):
    """A connection to the target."""

    def send(self, data: bytes) -> None:
        """Write; that the target has closed is no error."""

    def receive(self, seconds: float) -> bytes | None:
        """What arrives; None if nothing does in time, b"" at the end."""

    def close(self) -> None:
        """Close."""

    def reset(self) -> None:
        """Close with an RST."""


@dataclass(slots=True, frozen=True)
class Next:
    """One whole element; `packed`: it came in an onNextPacked."""

    subscriber: int
    element: bytes
    packed: bool = False


Heard: TypeAlias = Message | Next


class _AnyStream(dict[int, Consumed]):
    """A stream for every Id, of the size that the target announced."""

    def get(self, number: int, default: Any = None) -> Consumed:
        if number not in self:
            stream = self[number] = Consumed(number, "", _ENDLESS, 0)
            stream.size = 0
        return self[number]


class Probe:
    """One connection to the target."""

    def __init__(self, link: Transport) -> None:
        self._link = link
        self._streams = _AnyStream()
        limits = Limits(element_bytes=1 << 24, part_bytes=1 << 24)
        self._decoder = Decoder(self._streams, limits, frozenset(Code))
        self._heard: deque[Heard] = deque()
        self.over = False
        """Whether the target has closed."""
        self.subscriptions: list[messages.Subscribe] = []
        """The target's, in their order."""

    # -- send -----------------------------------------------------------------

    def say(self, *said: Message | bytes) -> None:
        """Send messages, or octets, in one piece."""
        self._link.send(
            b"".join(
                one if isinstance(one, bytes) else wire.encode(one) for one in said
            )
        )

    def drip(self, data: bytes) -> None:
        """Send, octet by octet."""
        for at in range(len(data)):
            self._link.send(data[at : at + 1])

    def hello(self, *extensions: int) -> frozenset[int]:
        """Exchange hellos; returns the extensions in use."""
        self.say(messages.ClientHello(0, extensions))
        hello = self.expect(messages.ServerHello)
        require(hello.version == 0, f"serverHello of version {hello.version}")
        return frozenset(hello.extensions) & frozenset(extensions)

    def subscribe(self, publisher: str, number: int = 1, demand: int = 0) -> None:
        """Subscribe, and see it accepted."""
        self.say(messages.Subscribe(publisher, number, demand))
        answer = self.expect(messages.OnSubscribe)
        require(answer.subscriber == number, f"onSubscribe for {answer.subscriber}")

    def close(self) -> None:
        """Close."""
        self._link.close()

    def reset(self) -> None:
        """Close with an RST."""
        self._link.reset()

    # -- expect ---------------------------------------------------------------

    def hear(self, seconds: float = _PATIENCE_SECONDS) -> Heard | None:
        """The next message that is not a subscribe; None if none comes in time."""
        while not self._heard:
            data = None if self.over else self._link.receive(seconds)
            if data is None:
                return None
            if not data:
                self.over = True
                return None
            self._read(data)
        return self._heard.popleft()

    def _read(self, data: bytes) -> None:
        decoder = self._decoder
        decoder.feed(data)
        try:
            while (token := decoder.next()) is not None:
                if isinstance(token, Run):
                    packed = token.messages[0] == Code.ON_NEXT_PACKED
                    number, size = token.stream.id, token.stream.size
                    self._heard += [
                        Next(number, element, packed)
                        for element in elements(token.messages, size)
                    ]
                elif isinstance(token, messages.Subscribe):
                    self.subscriptions.append(token)
                elif isinstance(token, messages.SubscribeFrom):
                    self.subscriptions.append(
                        messages.Subscribe(
                            token.publisher, token.subscriber, token.demand
                        )
                    )
                else:
                    if isinstance(token, messages.OnSubscribe):
                        self._streams.get(token.subscriber).size = token.size
                    assert not isinstance(token, Run), "taken above"
                    self._heard.append(token)  # type: ignore[arg-type]
        except Refusal as why:
            raise Failed(f"what the target sends is no RS.io: {why}") from None

    def expect(self, kind: type[Kind], seconds: float = _PATIENCE_SECONDS) -> Kind:
        """The next message, which is to be of *kind*."""
        heard = self.hear(seconds)
        if not isinstance(heard, kind):
            raise Failed(f"expected {kind.__name__}, got {self._spell(heard)}")
        return heard

    def exactly(self, *wanted: Heard) -> None:
        """These messages come next."""
        for each in wanted:
            heard = self.hear()
            if heard != each:
                raise Failed(f"expected {each}, got {self._spell(heard)}")

    def elements(self, count: int, number: int = 1) -> list[bytes]:
        """The next *count* elements of one stream, whole or joined."""
        found: list[bytes] = []
        parts: dict[int, bytes] = {}
        while len(found) < count:
            heard = self.hear()
            if isinstance(heard, Next) and heard.subscriber == number:
                found.append(heard.element)
            elif (
                isinstance(heard, messages.OnNextPart | messages.OnNextLastPart)
                and heard.subscriber == number
            ):
                parts[heard.element] = parts.get(heard.element, b"") + heard.data
                if isinstance(heard, messages.OnNextLastPart):
                    found.append(parts.pop(heard.element))
            else:
                raise Failed(f"expected an element, got {self._spell(heard)}")
        return found

    def expect_numbers(self, first: int, end: int, *, stream: int = 1) -> None:
        """The next elements of *stream* are the numbers from *first* to *end* - 1."""
        wanted = [b"%d" % each for each in range(first, end)]
        if self.elements(len(wanted), stream) != wanted:
            raise Failed(f"stream {stream}: expected the elements {first} to {end - 1}")

    def expect_complete(self, number: int = 1) -> None:
        """The next message completes a stream."""
        self.exactly(messages.OnComplete(number))

    def expect_error(self, number: int = 1) -> str:
        """The next message fails a stream; returns the error."""
        failed = self.expect(messages.OnError)
        require(failed.subscriber == number, f"onError for {failed.subscriber}")
        return failed.error

    def silent(self, seconds: float = _SILENCE_SECONDS) -> None:
        """Nothing comes."""
        heard = self.hear(seconds)
        if heard is not None or self.over:
            raise Failed(f"expected silence, got {self._spell(heard)}")

    def ends_conversation(self) -> messages.Goodbye:
        """The target sends goodbye, whatever it sent before, and closes."""
        goodbye = None
        while (heard := self.hear()) is not None:
            if isinstance(heard, messages.Goodbye):
                goodbye = heard
        if goodbye is None:
            raise Failed("expected goodbye, got none")
        require(self.over, "sent goodbye and did not close")
        return goodbye

    def closes(self) -> None:
        """The target closes, whatever it sends before."""
        while self.hear() is not None:
            pass
        require(self.over, "did not close")

    def alive(self) -> None:
        """The connection still works: the target answers a goodbye."""
        self.say(messages.Goodbye(""))
        while (heard := self.hear()) is not None:
            if isinstance(heard, messages.Goodbye | messages.GoodbyeAck):
                return
        raise Failed("goodbye was not answered")

    def unaffected(self) -> None:
        """Nothing comes, and the connection still works."""
        self.silent()
        self.alive()

    def subscription(self) -> messages.Subscribe:
        """The target's first subscription to us.  Raises `Unavailable`."""
        heard = None
        while not self.subscriptions:
            heard = self.hear(_SILENCE_SECONDS)
            if heard is None:
                raise Unavailable("the target subscribes to nothing")
        if heard is not None:
            self._heard.appendleft(heard)
        return self.subscriptions[0]

    def _spell(self, heard: Heard | None) -> str:
        if heard is None:
            return "the end" if self.over else "nothing"
        return str(heard)


class Target:
    """The implementation under test."""

    def __init__(
        self, connect: Callable[[], Transport], *, publishers: bool = True
    ) -> None:
        """*publishers*: it has the publishers `check/…`."""
        self.publishers = publishers
        self._connect = connect
        self._open: list[Probe] = []

    def connect(self) -> Probe:
        """A connection on which nothing was sent."""
        probe = Probe(self._connect())
        self._open.append(probe)
        return probe

    def greeted(self) -> Probe:
        """A connection after both hellos."""
        probe = self.connect()
        probe.hello()
        return probe

    def subscribed(self, publisher: str, demand: int = 0) -> Probe:
        """A connection on which we subscribed to *publisher*, with Id 1."""
        probe = self.greeted()
        probe.subscribe(publisher, demand=demand)
        return probe

    def published(self, size: int = 0) -> tuple[Probe, messages.Subscribe]:
        """A connection on which the target has subscribed to us, and we accepted."""
        probe = self.greeted()
        asked = probe.subscription()
        probe.say(messages.OnSubscribe(asked.subscriber, size))
        return probe, asked

    def rejects(self, *violations: Message | bytes) -> None:
        """Each of these, on a connection of its own, ends the conversation."""
        for violation in violations:
            probe = self.greeted()
            probe.say(violation)
            probe.ends_conversation()

    def close(self) -> None:
        """Close all connections."""
        opened, self._open = self._open, []
        for probe in opened:
            probe.close()


def require(fact: bool, otherwise: str) -> None:  # noqa: FBT001 - it reads as a sentence
    """Fail unless *fact*."""
    if not fact:
        raise Failed(otherwise)
