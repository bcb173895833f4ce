"""Tests of a connection's end."""

from __future__ import annotations

from rsio_check import wire
from rsio_check.probe import Target, require
from rsio_check.registry import Needs, Role, test
from rsio_check.transports import WebSocketTransport
from rsio_check.wire import Goodbye, GoodbyeAck

_C = Role.CONNECTION
_REFUSED = 1003


@test(_C)
def goodbye_is_answered(target: Target) -> None:
    """Goodbye is answered with goodbye, and the connection closes."""
    probe = target.greeted()
    probe.say(Goodbye("done"))
    while not isinstance(heard := probe.hear(), Goodbye):
        require(heard is not None, "goodbye was not answered")
    probe.closes()


@test(_C)
def goodbye_is_acknowledged(target: Target) -> None:
    """Goodbye is answered with goodbyeAck if extension 3 is in use."""
    probe = target.greeted(3)
    probe.say(Goodbye("done"))
    probe.expect(GoodbyeAck)
    probe.closes()


@test(_C)
def acknowledgement_without_goodbye_ends(target: Target) -> None:
    """A goodbyeAck that answers no goodbye is a violation."""
    target.rejects(GoodbyeAck(""), extensions=[3])


@test(_C)
def nothing_follows_goodbye(target: Target) -> None:
    """Octets behind a goodbye are not looked at, and not answered."""
    probe = target.greeted()
    probe.say(Goodbye(""))
    probe.octets(wire.encode(wire.Subscribe("check/never", 1, 1)) + b"\xff\xff")
    probe.expect(Goodbye)
    probe.closes()


@test(Role.PUBLISHER)
def goodbye_ends_streams_without_a_word(target: Target) -> None:
    """Goodbye ends the streams of both directions, without a message for them."""
    probe = target.subscribed("check/never", 5)
    probe.subscribe("check/slow?n=9", 2, 9)
    probe.say(Goodbye(""))
    while not isinstance(heard := probe.hear(), Goodbye):
        require(
            heard is not None and not isinstance(heard, wire.OnComplete | wire.OnError),
            "a stream is told of its end",
        )
    probe.closes()


@test(Role.SUBSCRIBER)
def goodbye_ends_what_the_target_consumes(target: Target) -> None:
    """A client that leaves within its streams is answered like any other."""
    probe, asked = target.published()
    probe.say(wire.OnNextPart(asked.subscriber, 1, b"{"), Goodbye(""))
    while not isinstance(heard := probe.hear(), Goodbye):
        require(isinstance(heard, wire.Request), "goodbye was not answered")
    probe.closes()


@test(_C)
def violations_are_told(target: Target) -> None:
    """A violation is answered with a goodbye that has a reason, and a close."""
    probe = target.greeted()
    probe.octets(b"\x00")
    require(probe.ends().reason != "", "the goodbye gives no reason")


@test(_C, Needs.WEBSOCKET)
def websocket_takes_no_text(target: Target) -> None:
    """A text message on a WebSocket is answered with close code 1003."""
    probe = target.greeted()
    link = probe.link
    assert isinstance(link, WebSocketTransport)
    link.send_text("hello")
    probe.closes()
    require(link.web.closed == _REFUSED, f"the close code is {link.web.closed}")
