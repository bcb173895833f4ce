"""Tests of a connection's beginning: hello, version, time-out, what may come when."""

from __future__ import annotations

from rsio_check import wire
from rsio_check.probe import Target, require
from rsio_check.registry import Role, test
from rsio_check.wire import ClientHello

_C = Role.CONNECTION
_NOBODY = "check/no-such-publisher"


@test(_C)
def hello_is_answered(target: Target) -> None:
    """ClientHello is answered with serverHello of version 0, each extension once."""
    probe = target.connect()
    probe.hello()
    listed = probe.watch.hello.extensions if probe.watch.hello else ()
    require(len(set(listed)) == len(listed), f"lists an extension twice: {listed}")
    probe.alive()


@test(_C)
def hello_comes_first(target: Target) -> None:
    """Any message before clientHello, goodbye excepted, ends the conversation."""
    for early in (
        wire.Subscribe(_NOBODY, 1, 0), wire.Request(1, 1), wire.OnSubscribe(1, 0),
        wire.OnComplete(1), wire.Ping(b""), wire.Token("name", b"x"),
    ):  # fmt: skip
        probe = target.connect()
        probe.octets(wire.encode(early))
        probe.ends()


@test(_C)
def goodbye_may_come_before_hello(target: Target) -> None:
    """A client may leave before it has said hello; the server closes."""
    probe = target.connect()
    probe.say(wire.Goodbye("never mind"))
    probe.closes()


@test(_C)
def second_hello_ends(target: Target) -> None:
    """A second clientHello ends the conversation."""
    target.rejects(ClientHello(0, ()))


@test(_C)
def hello_of_the_other_side_ends(target: Target) -> None:
    """A client that sends serverHello, first or later, is refused."""
    probe = target.connect()
    probe.octets(wire.encode(wire.ServerHello(0, ())))
    probe.ends()
    target.rejects(wire.ServerHello(0, ()))


@test(_C)
def other_version_is_refused(target: Target) -> None:
    """Another version is answered with goodbye("unsupported version N; 0 only")."""
    for version in (1, 255):
        probe = target.connect()
        probe.say(ClientHello(version, ()))
        reason = probe.ends().reason
        wanted = f"unsupported version {version}; 0 only"
        require(wanted in reason, f"the reason is {reason!r}")


@test(_C)
def refused_hello_discards_what_follows(target: Target) -> None:
    """Messages of a client behind a hello that is refused have no effect."""
    probe = target.connect()
    probe.say(ClientHello(9, ()), wire.Subscribe(_NOBODY, 1, 1))
    probe.ends()
    require(not probe.watch.asked, "subscribed on a connection that it refused")


@test(_C)
def client_need_not_wait_for_hello(target: Target) -> None:
    """Messages of a client right behind clientHello are taken."""
    if target.always:  # with a token, a client has to know that it is wanted
        probe = target.greeted()
        probe.say(wire.Subscribe(_NOBODY, 1, 1))
    else:
        probe = target.connect()
        probe.say(ClientHello(0, ()), wire.Subscribe(_NOBODY, 1, 1))
        probe.expect(wire.ServerHello)
    probe.exactly(wire.OnSubscribe(1, 0))
    probe.fails()


@test(_C)
def unknown_extensions_are_ignored(target: Target) -> None:
    """Extensions that the server does not know are not in use, and no violation."""
    probe = target.connect()
    probe.say(ClientHello(0, (*target.always, 300, 2**63, 2**64 - 1)))
    probe.expect(wire.ServerHello)
    if target.identity is not None and 4 in probe.watch.extensions:
        probe.say(target.identity)
    probe.unaffected()


@test(_C)
def extensions_need_both_hellos(target: Target) -> None:
    """A message of an extension that is not in use is of an unknown type."""
    target.rejects(
        wire.Ping(b""), wire.Pong(b""), wire.SubscribeFrom(_NOBODY, 1, 1, 0),
        wire.Stored(1, 0), wire.GoodbyeAck(""), wire.Compress(1),
        wire.CompressAck(1), wire.Block(b""), wire.Announce("events", b"x", 0),
    )  # fmt: skip
    if target.identity is None:
        target.rejects(wire.Token("name", b"somebody"))


@test(_C)
def hello_times_out(target: Target) -> None:
    """A connection without clientHello is ended after hello_timeout."""
    probes = [target.connect(), target.connect()]
    probes[1].octets(b"\x01")  # has begun one
    patience = target.patience
    target.patience = target.hello_seconds + patience
    try:
        for probe in probes:
            probe.closes()
    finally:
        target.patience = patience


@test(_C)
def number_of_extensions_is_limited(target: Target) -> None:
    """A hello may list 64 extensions; one that lists more ends the conversation."""
    probe = target.connect()
    probe.say(
        ClientHello(0, tuple(range(1000, 1064 - len(target.always))) + target.always)
    )
    probe.expect(wire.ServerHello)
    probe = target.connect()
    probe.say(ClientHello(0, tuple(range(1000, 1065))))
    probe.ends()
