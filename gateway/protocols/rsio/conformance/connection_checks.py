"""Conformance checks of a connection: hello, goodbye, extensions, unknown Ids."""

from __future__ import annotations

from gateway.protocols.rsio import wire
from gateway.protocols.rsio.conformance.probe import Target, Unavailable, require
from gateway.protocols.rsio.conformance.registry import Role, check
from gateway.protocols.rsio.messages import (
    Cancel,
    ClientHello,
    Extension,
    Goodbye,
    GoodbyeAck,
    OnComplete,
    OnError,
    OnSubscribe,
    Ping,
    Pong,
    Request,
    ServerHello,
    Subscribe,
)

__all__: list[str] = []

_C = Role.CONNECTION


@check(33, _C)
def _rejected(target: Target) -> None:
    """A connection whose hello is refused has no streams."""
    probe = target.connect()
    probe.say(ClientHello(9, ()), Subscribe("check/never", 1, 1))
    probe.ends_conversation()
    require(not probe.subscriptions, "subscribed on a connection that it refused")


@check(34, _C)
def _keepalive(target: Target) -> None:
    """A ping is answered with the same octets, if extension 1 is in use."""
    probe = target.connect()
    if Extension.KEEPALIVE not in probe.hello(Extension.KEEPALIVE):
        raise Unavailable("the target has no keepalive")
    for data in (b"", b"\x00\xff", b"x" * 100):
        probe.say(Ping(data))
        probe.exactly(Pong(data))
    probe.say(Goodbye(""), Ping(b"late"))
    probe.closes()


@check(34, _C)
def _no_keepalive(target: Target) -> None:
    """A ping is an unknown type if extension 1 is not in use."""
    target.rejects(Ping(b""))


@check(36, _C)
def _not_asked(target: Target) -> None:
    """Elements and terminals of streams that were never subscribed to are fatal."""
    number = 2**50
    target.rejects(
        OnSubscribe(number, 0),
        OnComplete(number),
        OnError(number, "x"),
        wire.on_next(number, [b"x"]),
    )


@check(36, _C)
def _too_early(target: Target) -> None:
    """An element or a terminal before onSubscribe is fatal (1.9)."""
    for make in (lambda n: wire.on_next(n, [b"x"]), OnComplete):
        probe = target.greeted()
        probe.say(make(probe.subscription().subscriber))
        probe.ends_conversation()


@check(39, _C)
def _first(target: Target) -> None:
    """Whatever comes before hello ends the conversation."""
    probe = target.connect()
    probe.say(Subscribe("check/never", 1, 0))
    probe.ends_conversation()


@check(39, _C)
def _twice(target: Target) -> None:
    """A second hello ends the conversation."""
    target.rejects(ClientHello(0, ()))


@check(39, _C)
def _wrong_side(target: Target) -> None:
    """A client that sends serverHello is rejected."""
    probe = target.connect()
    probe.say(ServerHello(0, ()))
    probe.ends_conversation()


@check(39, _C)
def _version(target: Target) -> None:
    """Another version is answered with a goodbye that says so."""
    probe = target.connect()
    probe.say(ClientHello(1, ()))
    require("version" in probe.ends_conversation().reason, "goodbye does not say why")


@check(40, _C)
def _optimistic(target: Target) -> None:
    """A client may subscribe before it has seen serverHello."""
    probe = target.connect()
    probe.say(ClientHello(0, ()), Subscribe("check/no-such-publisher", 1, 1))
    probe.expect(ServerHello)
    probe.exactly(OnSubscribe(1, 0))
    probe.expect(OnError)


@check(49, _C)
def _never_reused(target: Target) -> None:
    """The target's own Ids differ."""
    probe = target.greeted()
    probe.subscription()
    numbers = [asked.subscriber for asked in probe.subscriptions]
    require(len(set(numbers)) == len(numbers), "an Id is in use twice")


@check(51, _C)
def _answered(target: Target) -> None:
    """Goodbye is answered with goodbye, and the connection closes."""
    probe = target.greeted()
    probe.say(Goodbye("done"))
    probe.expect(Goodbye)
    probe.closes()


@check(51, _C)
def _acknowledged(target: Target) -> None:
    """Goodbye is answered with goodbyeAck, if extension 3 is in use."""
    probe = target.connect()
    if Extension.GOODBYE_ACK not in probe.hello(Extension.GOODBYE_ACK):
        raise Unavailable("the target has no goodbyeAck")
    probe.say(Goodbye("done"))
    probe.expect(GoodbyeAck)
    probe.closes()


@check(51, _C)
def _ends_streams(target: Target) -> None:
    """Goodbye ends every stream, without a terminal."""
    probe, asked = target.published()
    probe.say(Goodbye(""), wire.on_next(asked.subscriber, [b"{}"]), Request(1, 1))
    probe.expect(Goodbye)
    probe.closes()


@check(51, _C)
def _unasked_ack(target: Target) -> None:
    """A goodbyeAck that answers no goodbye is rejected."""
    target.rejects(GoodbyeAck(""))


@check(16, _C)
def _unknown_ids(target: Target) -> None:
    """Request and cancel for Ids that were never used are ignored."""
    probe = target.greeted()
    probe.say(Request(2**40, 1), Cancel(2**40), Request(0, 0))
    probe.unaffected()
