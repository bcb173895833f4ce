"""Connections to the target, driven message by message, and how long one is waited for.

A test is a function of a `Target`.  It opens connections and drives each through a
`Probe`, which sends exactly what the test wants, down to single octets; `Watch` judges
all that the target sends.

No test waits by the clock where the target can say that it has come so far.  It answers
every subscription (1.9).  So its answers to earlier messages are there when it answers a
subscription to a publisher that it does not have.  The seconds of
`Target.patience` are for a target that says nothing at all.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from rsio_check import wire
from rsio_check.transports import Transport
from rsio_check.watch import Asked, Element, Heard, Violation, Watch
from rsio_check.wire import Message, spell

_NOBODY = "check/no-such-publisher"
_PATIENCE_SECONDS = 10.0
_BARRIERS = itertools.count(2**40)

Kind = TypeVar("Kind")


class Failed(Exception):
    """The target does not do what the test promises; says what it does."""


class NotJudged(Exception):
    """The target lacks what the test needs; says what."""


def require(fact: bool, otherwise: str) -> None:  # noqa: FBT001 - it reads as a sentence
    """Fail unless *fact*."""
    if not fact:
        raise Failed(otherwise)


class Probe:
    """One connection to the target."""

    def __init__(self, link: Transport, target: Target) -> None:
        self.link = link
        self.watch = Watch()
        self._target = target
        self._heard: deque[Heard] = deque()
        self.over = False
        """Whether the target has closed."""

    # -- send

    def say(self, *said: Message) -> None:
        """Send messages in one piece."""
        for message in said:
            self.watch.sent(message)
        self.link.send(b"".join(map(wire.encode, said)))

    def say_as(self, message: Message, octets: bytes) -> None:
        """Send *octets*, which mean *message*."""
        self.watch.sent(message)
        self.link.send(octets)

    def octets(self, data: bytes) -> None:
        """Send what is no message."""
        self.link.send(data)

    def pieces(self, said: Iterable[Message], cuts: Iterable[int]) -> None:
        """Send messages, cut at these places."""
        data = b""
        for message in said:
            self.watch.sent(message)
            data += wire.encode(message)
        last = 0
        for cut in (*cuts, len(data)):
            if data[last:cut]:
                self.link.send(data[last:cut])
            last = cut

    def hello(self, *extensions: int, without: Iterable[int] = ()) -> frozenset[int]:
        """Exchange hellos, and identify if need be; returns the extensions in use."""
        listed = tuple(sorted({*extensions, *self._target.always} - {*without}))
        self.say(wire.ClientHello(0, listed))
        self.expect(wire.ServerHello)
        if 4 in self.watch.extensions and self._target.identity is not None:
            self.say(self._target.identity)
        return self.watch.extensions

    def subscribe(self, publisher: str, number: int = 1, demand: int = 0) -> int:
        """Subscribe, and see it accepted; returns the size of elements."""
        self.say(wire.Subscribe(publisher, number, demand))
        return self.accepted(number)

    def accepted(self, number: int = 1) -> int:
        """The next message is onSubscribe for *number*; returns the size of elements."""
        answer = self.expect(wire.OnSubscribe)
        require(answer.subscriber == number, f"onSubscribe for {answer.subscriber}")
        return answer.size

    def close(self) -> None:
        """Close."""
        self.link.close()

    # -- hear

    def hear(self) -> Heard | None:
        """The next message that is no subscribe, stored or limits; None if none comes.

        A ping or a compress of the target's is answered.
        """
        while not self._heard:
            if not self._read(self._target.patience):
                return None
        return self._heard.popleft()

    def waits(self, seconds: float) -> bool:
        """Take in what arrives; False if nothing does in time, or at the end."""
        return self._read(seconds)

    def _read(self, seconds: float) -> bool:
        """Take in what arrives; False if nothing does, or the target has closed."""
        data = None if self.over else self.link.receive(seconds)
        if data is None:
            return False
        if not data:
            self.over = True
            require(not self.watch.cut, "closed within a message")
            return False
        try:
            for heard in self.watch.feed(data):
                self._take(heard)
        except Violation as why:
            raise Failed(str(why)) from None
        return True

    def _take(self, heard: Heard) -> None:
        match heard:
            case wire.Ping(data):
                self.say(wire.Pong(data))
            case wire.Compress(algorithm):
                if algorithm == 1:
                    self.watch.allow_blocks()
                self.say(wire.CompressAck(int(algorithm == 1)))
            case wire.Subscribe() | wire.SubscribeFrom() | wire.Stored():
                pass  # `Watch.asked` has them
            case wire.Limits():
                pass  # `Watch.element_bytes`
            case _:
                self._heard.append(heard)

    def expect(self, kind: type[Kind]) -> Kind:
        """The next message, which is to be of *kind*."""
        heard = self.hear()
        if not isinstance(heard, kind):
            raise Failed(f"expected {kind.__name__}, got {self._spell(heard)}")
        return heard

    def exactly(self, *wanted: Heard) -> None:
        """Expect these messages next."""
        for each in wanted:
            heard = self.hear()
            if heard != each:
                raise Failed(f"expected {spell(each)}, got {self._spell(heard)}")

    def elements(self, count: int, number: int = 1) -> list[bytes]:
        """The next *count* elements, which are to be of one stream."""
        found: list[bytes] = []
        while len(found) < count:
            heard = self.hear()
            if not (isinstance(heard, Element) and heard.subscriber == number):
                raise Failed(f"expected an element, got {self._spell(heard)}")
            found.append(heard.data)
        return found

    def numbers(self, first: int, end: int, *, stream: int = 1) -> None:
        """The next elements of *stream* are the numbers from *first* to *end* - 1."""
        for number, found in enumerate(self.elements(end - first, stream), first):
            require(
                found == b"%d" % number,
                f"stream {stream}: expected the element {number}, got {found[:40]!r}",
            )

    def completes(self, number: int = 1) -> None:
        """The next message completes a stream."""
        self.exactly(wire.OnComplete(number))

    def rest(self, first: int, end: int, *, stream: int = 1) -> None:
        """Expect these `numbers` as the rest of *stream*, and that it completes."""
        self.numbers(first, end, stream=stream)
        self.completes(stream)

    def fails(self, number: int = 1) -> str:
        """The next message fails a stream; returns the error."""
        failed = self.expect(wire.OnError)
        require(failed.subscriber == number, f"onError for {failed.subscriber}")
        return failed.error

    # -- what does not come

    def settled(self) -> list[Heard]:
        """Wait until the target has taken all that was sent; returns what came."""
        number = next(_BARRIERS)
        self.say(wire.Subscribe(_NOBODY, number, 1))
        found: list[Heard] = []
        while True:
            heard = self.hear()
            if heard is None:
                what = "closed" if self.over else "says nothing"
                raise Failed(f"a subscription is not answered: the target {what}")
            if isinstance(heard, wire.OnError) and heard.subscriber == number:
                break
            if not isinstance(heard, wire.OnSubscribe) or heard.subscriber != number:
                found.append(heard)
            if isinstance(heard, wire.Goodbye):
                raise Failed(f"hung up: {heard.reason!r}")
        return found

    def silent(self) -> None:
        """Nothing comes, though the target works on: it answers, by its own clock."""
        found = self.settled()
        if self._target.publishers and not found:
            found = self._a_tick_later()
        found += self.settled()
        if found:
            raise Failed(f"expected silence, got {spell(found[0])}")

    def _a_tick_later(self) -> list[Heard]:
        """Wait for an element that the target makes in a tenth of a second."""
        number = next(_BARRIERS)
        self.say(wire.Subscribe("check/slow?n=1", number, 1))
        found: list[Heard] = []
        while not isinstance(heard := self.hear(), wire.OnComplete | wire.OnError) or (
            heard.subscriber != number
        ):
            if heard is None:
                raise Failed("check/slow?n=1 does not end")
            if getattr(heard, "subscriber", None) != number:
                found.append(heard)
        return found

    def alive(self) -> None:
        """The conversation goes on: a subscription is answered, and a goodbye.

        What else still comes is not looked at.
        """
        self.settled()
        self.say(wire.Goodbye(""))
        while (heard := self.hear()) is not None:
            if isinstance(heard, wire.Goodbye | wire.GoodbyeAck):
                return
        raise Failed("goodbye was not answered")

    def unaffected(self) -> None:
        """Nothing comes, and the conversation goes on."""
        self.silent()
        self.alive()

    # -- the end

    def ends(self) -> wire.Goodbye:
        """The target ends the conversation: it sends goodbye and closes."""
        goodbye = None
        while (heard := self.hear()) is not None:
            if isinstance(heard, wire.Goodbye):
                goodbye = heard
        if goodbye is None:
            what = "it closed without one" if self.over else "it goes on"
            raise Failed(f"expected goodbye; {what}")
        require(self.over, "sent goodbye and did not close")
        return goodbye

    def closes(self) -> None:
        """The target closes, whatever it sends before."""
        while self.hear() is not None:
            pass
        require(self.over, "did not close")

    # -- as a publisher

    def asked(self, count: int = 1) -> list[Asked]:
        """The target's subscriptions to us, by name.  Raises `NotJudged`.

        They may come in any order: one may wait for what an older connection sent.
        """
        known = self._target.subscriptions
        if known < count:
            raise NotJudged(
                f"the target has {known} subscriptions, of the {count} that this needs"
            )
        while len(self.watch.asked) < known:
            require(self._read(self._target.patience), "does not subscribe this time")
        asked = sorted(self.watch.asked.values(), key=lambda one: one.publisher)
        return asked[:count]

    def published(self, size: int = 0) -> Asked:
        """The target's first subscription, accepted, with some demand."""
        asked = self.asked()[0]
        self.accept(asked, size)
        return asked

    def accept(self, asked: Asked, size: int = 0) -> None:
        """Answer a subscription of the target's, and wait for its demand."""
        self.say(wire.OnSubscribe(asked.subscriber, size))
        while asked.demand < 1:
            if not isinstance(heard := self.hear(), wire.Request):
                raise Failed(f"expected demand (2.1), got {self._spell(heard)}")

    def granted(self, asked: Asked, demand: int) -> None:
        """Wait until the target takes *demand* elements, and see that it takes no more."""
        self.renewed((asked, demand))

    def renewed(self, *wanted: tuple[Asked, int]) -> None:
        """The same for several streams at once."""
        ours = {asked.subscriber for asked, _ in wanted}
        while any(asked.demand < demand for asked, demand in wanted) or (
            self._heard and isinstance(self._heard[0], wire.Request)
        ):
            heard = self.hear()
            if not isinstance(heard, wire.Request) or heard.subscriber not in ours:
                raise Failed(f"expected request, got {self._spell(heard)}")
        for asked, demand in wanted:
            more = asked.demand - demand
            require(not more, f"stream {asked.subscriber}: asks for {more} too many")

    def cancels(self, asked: Asked) -> None:
        """The target cancels this stream, perhaps after some requests."""
        while not asked.cancelled or self._heard:
            heard = self.hear()
            if not isinstance(heard, wire.Request | wire.Cancel):
                raise Failed(f"expected cancel, got {self._spell(heard)}")
            if heard == wire.Cancel(asked.subscriber):
                return

    def gives_up(self, asked: Asked, why: str) -> None:
        """The target has cancelled this stream, and the conversation goes on.

        *why* says what it does if it has not.
        """
        self.settled()
        require(asked.cancelled, why)
        self.alive()

    def _spell(self, heard: Heard | None) -> str:
        if heard is None:
            return "the end" if self.over else "nothing"
        return spell(heard)


class Target:
    """The implementation under test, and what `survey` found out about it."""

    def __init__(
        self,
        connect: Callable[[], Transport],
        *,
        identity: wire.Token | None = None,
        patience: float = _PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """*identity* is what each connection proves, if the target has extension 4."""
        self.connect_transport = connect
        self.identity = identity
        self.patience = patience
        self.clock = clock
        self.hello_seconds = 10.0
        """The target's time-out for hello and token."""
        self.offers: frozenset[int] = frozenset()
        """The target's extensions."""
        self.publishers = False
        """Whether it publishes `check/…`."""
        self.subscriptions = 1
        """How many of its clients' publishers it subscribes to."""
        self.reads_back = False
        """Whether it publishes `events`, the ones that it has stored."""
        self.websocket = False
        self._open: list[Probe] = []

    @property
    def always(self) -> tuple[int, ...]:
        """The extensions that each connection lists."""
        known = (4,) if self.identity is not None else ()
        return (*known, 8) if 8 in self.offers else known

    def connect(self) -> Probe:
        """A connection on which nothing was sent."""
        probe = Probe(self.connect_transport(), self)
        self._open.append(probe)
        return probe

    def greeted(self, *extensions: int) -> Probe:
        """A connection after both hellos; those *extensions* are in use.

        Raises `NotJudged` if the target lacks one.
        """
        probe = self.connect()
        used = probe.hello(*extensions)
        for each in extensions:
            if each not in used:
                raise NotJudged(f"the target does not have extension {each}")
        return probe

    def subscribed(self, publisher: str, demand: int = 0) -> Probe:
        """A connection on which we subscribed to *publisher*, with Id 1."""
        probe = self.greeted()
        probe.subscribe(publisher, demand=demand)
        return probe

    def published(self, size: int = 0) -> tuple[Probe, Asked]:
        """A connection on which the target has subscribed to us, and we accepted."""
        probe = self.greeted()
        return probe, probe.published(size)

    def rejects(
        self, *violations: Message | bytes, extensions: Iterable[int] = ()
    ) -> None:
        """Each of these, on a connection of its own, ends the conversation."""
        for each in violations:
            probe = self.greeted(*extensions)
            shown = each.hex(" ") if isinstance(each, bytes) else spell(each)
            probe.octets(each if isinstance(each, bytes) else wire.encode(each))
            try:
                probe.ends()
            except Failed as why:
                raise Failed(f"{shown[:60]}: {why}") from None
            probe.close()

    def close(self) -> None:
        """Close all connections."""
        opened, self._open = self._open, []
        for probe in opened:
            probe.close()
