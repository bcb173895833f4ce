"""The 57 tests can fail: servers that break one rule each, and which tests notice."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from gateway.interfaces import Refusal
from gateway.protocols.rsio import (
    check_publishers,
    demand,
    ingest,
    messages,
    producer,
    session,
    wire,
)
from gateway.protocols.rsio.conformance import Outcome, Target, publisher_checks, run
from gateway.protocols.rsio.consumer import Consumer
from gateway.protocols.rsio.decoder import Decoder, Overrun
from gateway.protocols.rsio.demand import Demand
from gateway.protocols.rsio.outbound import Outbound, State
from gateway.protocols.rsio.producer import Producer
from gateway.protocols.rsio.publishing import Publishing
from gateway.protocols.rsio.server import RsioServer
from gateway.protocols.rsio.session import Session
from gateway.protocols.rsio.streams import Reassembly, Served

Patch: TypeAlias = pytest.MonkeyPatch
Break: TypeAlias = Callable[[Patch], None]

BROKEN: dict[str, tuple[Break, set[int]]] = {}


def fails(*numbers: int) -> Callable[[Break], Break]:
    """A way to break our server, and the tests that then fail, and no others."""

    def register(way: Break) -> Break:
        BROKEN[way.__name__] = (way, set(numbers))
        return way

    return register


def retake(patch: Patch, kind: type, wrap: Callable[..., Any]) -> None:
    """The same for what a session does with a kind of message."""
    old = session._HANDLERS[kind]
    patch.setitem(session._HANDLERS, kind, lambda self, said: wrap(old, self, said))


def around(patch: Patch, owner: Any, name: str, wrap: Callable[..., Any]) -> None:
    """Replace a method by *wrap*, which gets the old one first."""
    old = getattr(owner, name)
    patch.setattr(owner, name, lambda *given, **more: wrap(old, *given, **more))


# -- as a publisher


@fails(1, 9, 15, 16, 17, 18, 24, 25, 26, 27, 29, 31)
def sends_one_more_than_requested(patch: Patch) -> None:
    around(patch, Served, "wanted", lambda old, self, more: old(self, more + 1))


@fails(3, 15, 17, 21)
def replaces_demand_instead_of_adding(patch: Patch) -> None:
    patch.setattr(Demand, "add", lambda self, more: setattr(self, "left", more))


@fails(21)
def wraps_demand_at_2_63(patch: Patch) -> None:
    def add(self: Demand, more: int) -> None:
        self.left = (self.left + more) % (1 << 63)

    patch.setattr(Demand, "add", add)


@fails(18)
def takes_a_demand_of_nothing(patch: Patch) -> None:
    patch.setattr(producer, "not_positive", lambda number: False)


@fails(21)
def fails_at_great_demand(patch: Patch) -> None:
    patch.setattr(
        producer, "not_positive", lambda n: demand.not_positive(n) or n == 2**63 - 1
    )


@fails(6, 16, 18, 24, 35, 41)
def answers_an_unknown_id(patch: Patch) -> None:
    def find(old: Any, self: Producer, number: int) -> Any:
        stream = old(self, number)
        if stream is None:
            self._outbound.send(messages.OnError(number, "E404 no such stream"))
        return stream

    around(patch, Producer, "_find", find)


@fails(6, 16, 18, 24, 35)
def hangs_up_at_an_unknown_id(patch: Patch) -> None:
    def find(old: Any, self: Producer, number: int) -> Any:
        stream = old(self, number)
        if stream is None:
            raise Refusal("who is that?")
        return stream

    around(patch, Producer, "_find", find)


@fails(8, 18, 35, 40, 41, 42, 50)
def rejects_without_on_subscribe(patch: Patch) -> None:
    def fail(self: Producer, stream: Served, error: str) -> None:
        if stream.live:
            stream.live = False
            del self.streams[stream.id]
            self._outbound.send(messages.OnError(stream.id, error))

    patch.setattr(Producer, "fail", fail)


@fails(2, 5, 6, 9, 14, 19, 21, 22, 23, 24, 25, 26, 29, 30, 35, 46, 49)
def never_completes(patch: Patch) -> None:
    patch.setattr(Producer, "complete", Producer._finish)


@fails(4, 6, 8, 14, 18, 24, 26, 29, 35, 40, 41, 42, 49, 50)
def completes_instead_of_failing(patch: Patch) -> None:
    patch.setattr(Producer, "fail", lambda self, stream, error: self.complete(stream))


@fails(6, 9, 14, 19, 22, 23, 24, 25, 26, 49)
def completes_twice(patch: Patch) -> None:
    def complete(old: Any, self: Producer, stream: Served) -> None:
        old(self, stream)
        self._outbound.send(messages.OnComplete(stream.id))

    around(patch, Producer, "complete", complete)


@fails(5, 6, 9, 14, 19, 23, 24, 25, 35, 46, 49)
def completes_only_with_demand(patch: Patch) -> None:
    def feed(old: Any, self: Publishing, stream: Served, state: Any) -> int:
        return old(self, stream, state) if stream.demand.left else 0

    around(patch, Publishing, "_feed", feed)


@fails(16, 19, 24, 28, 35, 49)
def does_not_stop_when_cancelled(patch: Patch) -> None:
    patch.setattr(publisher_checks, "_IN_FLIGHT", 10_000)
    patch.setattr(Producer, "cancel", lambda self, cancel: None)


@fails(16, 19, 24, 28, 35, 49)
def answers_a_cancel(patch: Patch) -> None:
    def cancel(old: Any, self: Producer, cancel: Any) -> Any:
        happened = old(self, cancel)
        if happened is not None:
            self._outbound.send(messages.OnComplete(cancel.subscriber))
        return happened

    around(patch, Producer, "cancel", cancel)


@fails(36)
def takes_an_id_in_use(patch: Patch) -> None:
    def subscribe(old: Any, self: Producer, asked: Any) -> Any:
        self.streams.pop(asked.subscriber, None)
        return old(self, asked)

    around(patch, Producer, "subscribe", subscribe)


@fails(35)
def lets_in_any_number_of_streams(patch: Patch) -> None:
    around(
        patch, Outbound, "__init__",
        lambda old, self, limits, **more: old(
            self, replace(limits, streams=10**6), **more
        ),
    )  # fmt: skip


@fails(35, 42, 49)
def takes_no_stream_back(patch: Patch) -> None:
    """An Id stays in use for ever."""

    def finish(old: Any, self: Producer, stream: Served) -> bool:
        known: bool = old(self, stream)
        self.streams[stream.id] = stream
        return known

    around(patch, Producer, "_finish", finish)


@fails(22, 28)
def waits_until_demand_can_be_met(patch: Patch) -> None:
    def take(old: Any, self: Any, most: int) -> Any:
        return old(self, most if self._there >= min(most, self._number) else 0)

    around(patch, check_publishers._Slow, "take", take)


@fails(23)
def forgets_old_demand(patch: Patch) -> None:
    """… when another stream comes."""

    def subscribed(old: Any, self: Publishing, stream: Served) -> None:
        for other in self._streams:
            other.demand.left = 0
        old(self, stream)

    around(patch, Publishing, "subscribed", subscribed)


@fails(1, 3, 9, 15, 23, 25, 26, 31, 49)
def reverses_elements(patch: Patch) -> None:
    around(
        patch, wire, "on_next",
        lambda old, number, elements, **more: old(number, elements[::-1], **more),
    )  # fmt: skip


# -- as a subscriber


@fails(1, 47, 53)
def asks_for_too_much(patch: Patch) -> None:
    around(patch, ingest.Credit, "grant", lambda old, self: old(self) + 1)


@fails(1, 47, 50, 52, 53)
def never_asks_again(patch: Patch) -> None:
    patch.setattr(ingest.Credit, "due", property(lambda self: False))


@fails(7, 11, 47)
def asks_when_the_stream_is_over(patch: Patch) -> None:
    def on_complete(old: Any, self: Consumer, done: Any) -> Any:
        happened = old(self, done)
        self._outbound.send(messages.Request(done.subscriber, 1))
        return happened

    around(patch, Consumer, "on_complete", on_complete)


@fails(12)
def takes_a_second_on_subscribe(patch: Patch) -> None:
    def on_subscribe(old: Any, self: Consumer, started: Any) -> Any:
        known = self.streams.get(started.subscriber)
        if known is not None and known.size >= 0:
            return None
        return old(self, started)

    around(patch, Consumer, "on_subscribe", on_subscribe)


@fails(54)
def takes_more_than_asked_for(patch: Patch) -> None:
    def overrun(self: Consumer, token: Overrun) -> None:
        token.stream.room += 1

    patch.setattr(Consumer, "overrun", overrun)


@fails(7, 13, 48)
def forgets_what_it_cancelled(patch: Patch) -> None:
    def cancel(old: Any, self: Consumer, stream: Any) -> None:
        old(self, stream)
        self.streams.pop(stream.id, None)

    around(patch, Consumer, "cancel", cancel)


@fails(48)
def forgets_the_size_of_what_it_cancelled(patch: Patch) -> None:
    def cancel(old: Any, self: Consumer, stream: Any) -> None:
        old(self, stream)
        stream.size = 0

    around(patch, Consumer, "cancel", cancel)


@fails(47)
def takes_parts_of_any_total(patch: Patch) -> None:
    patch.setattr(Reassembly, "_check", lambda self, stream, size, whole: None)


@fails(47)
def counts_parts_as_elements(patch: Patch) -> None:
    def part(old: Any, self: Consumer, part: Any) -> Any:
        happened = old(self, part)
        stream = self.streams[part.subscriber]
        stream.room = max(0, stream.room - 1)
        return happened

    around(patch, Consumer, "part", part)


@fails(36)
def takes_an_end_before_on_subscribe(patch: Patch) -> None:
    def terminal(old: Any, self: Consumer, number: int, *given: Any) -> Any:
        stream = self.streams.get(number)
        if stream is not None:
            stream.size = max(0, stream.size)
        return old(self, number, *given)

    around(patch, Consumer, "_terminal", terminal)


@fails(10, 47, 50, 52)
def asks_for_nothing(patch: Patch) -> None:
    def subscribe(old: Any, self: Consumer, name: str, window: int, **more: Any) -> Any:
        return old(self, name, 0, **more)

    around(patch, Consumer, "subscribe", subscribe)


@fails(32)
def asks_for_less_the_next_time(patch: Patch) -> None:
    windows = itertools.cycle((64, 64, 32, 32))  # a connection has two streams

    def subscribe(old: Any, self: Consumer, name: str, window: int, **more: Any) -> Any:
        return old(self, name, next(windows), **more)

    around(patch, Consumer, "subscribe", subscribe)


@fails(36)
def ignores_streams_that_it_never_asked_for(patch: Patch) -> None:
    for name in ("on_subscribe", "on_complete", "on_error"):

        def ignore(old: Any, self: Consumer, said: Any) -> Any:
            return old(self, said) if said.subscriber in self.streams else None

        around(patch, Consumer, name, ignore)


@fails(49)
def subscribes_under_one_id(patch: Patch) -> None:
    def subscribe(old: Any, self: Consumer, *given: Any, **more: Any) -> Any:
        self._next_id = 1
        return old(self, *given, **more)

    around(patch, Consumer, "subscribe", subscribe)


# -- as a connection


@fails(*set(range(1, 58)) - {20, 33, 38, 55, 56})
def says_no_hello(patch: Patch) -> None:
    patch.setattr(Session, "greet", lambda self: None)


@fails(33, 39)
def takes_any_version(patch: Patch) -> None:
    def hello(old: Any, self: Session, hello: messages.ClientHello) -> Any:
        return old(self, messages.ClientHello(0, hello.extensions))

    retake(patch, messages.ClientHello, hello)


@fails(12, 33, 34, 36, 37, 39, 42, 43, 44, 45, 46, 47, 51, 54)
def closes_without_a_goodbye(patch: Patch) -> None:
    patch.setattr(RsioServer, "_refuse", lambda self, why: self._hang_up())


@fails(7, 8, 11, 13, 14, 16, 21, 30, 31, 41, 46, 47, 48, 51)
def does_not_answer_goodbye(patch: Patch) -> None:
    def goodbye(old: Any, self: Session, goodbye: Any) -> Any:
        self._outbound.state = State.LEAVING
        return old(self, goodbye)

    retake(patch, messages.Goodbye, goodbye)


@fails(34, 51, 57)
def stays_after_goodbye(patch: Patch) -> None:
    patch.setattr(RsioServer, "_hang_up", lambda self: None)


@fails(51)
def answers_goodbye_with_goodbye_always(patch: Patch) -> None:
    def goodbye(old: Any, self: Session, goodbye: Any) -> Any:
        self._outbound.extensions -= {messages.Extension.GOODBYE_ACK}
        return old(self, goodbye)

    retake(patch, messages.Goodbye, goodbye)


@fails(34)
def does_not_answer_pings(patch: Patch) -> None:
    retake(patch, messages.Ping, lambda old, self, ping: None)


@fails(34, 39)
def takes_extensions_that_nobody_agreed_on(patch: Patch) -> None:
    patch.setattr(Outbound, "legal_types", lambda self: frozenset(messages.Code))


@fails(43)
def skips_unknown_types(patch: Patch) -> None:
    def token(old: Any, self: Decoder) -> Any:
        unknown = self._buffer[self._at] not in messages.Code.__members__.values()
        if unknown and self._packed is None:
            self._at += 1
            return None
        return old(self)

    around(patch, Decoder, "_token", token)


@fails(37, 45)
def waits_for_long_messages(patch: Patch) -> None:
    """It believes any length that it is told."""
    around(
        patch, Decoder, "__init__",
        lambda old, self, streams, limits, legal: old(
            self, streams, replace(limits, declared_bytes=2**63, part_bytes=2**63,
                                   text_bytes=2**63, name_bytes=2**63,
                                   extensions=2**63), legal,
        ),
    )  # fmt: skip


@fails(41)
def loses_what_is_cut_in_two(patch: Patch) -> None:
    def feed(old: Any, self: Decoder, more: bytes) -> None:
        self._buffer, self._at, self._need = b"", 0, 0
        old(self, more)

    around(patch, Decoder, "feed", feed)


@pytest.mark.parametrize("name", BROKEN)
def test_broken(
    make_target: Callable[..., Target], monkeypatch: Patch, name: str
) -> None:
    """A server that breaks a rule fails the tests of that rule, and passes the others."""
    way, numbers = BROKEN[name]
    way(monkeypatch)
    failed = {
        result.test.number
        for result in run(make_target())
        if result.outcome is Outcome.FAILED
    }
    assert failed == numbers
