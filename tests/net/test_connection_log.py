"""The log's lines about connections that open, end and are rejected."""

import itertools
import json
import re
from io import StringIO
from typing import Any

import pytest
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from gateway.config.model import Logging
from gateway.daemon.logs import observer
from gateway.event import Origin
from gateway.net import rejection_log
from gateway.net.connection_log import ConnectionLog, Seen
from gateway.net.rejection_log import RejectionLog
from gateway.sdk.interfaces import Refusal

Logged = list[dict[str, Any]]


def seen() -> Seen:
    """What a connection did."""
    return Seen("beats", "s", "192.0.2.1:1", None, 0.1234, 2, 1, 0, False, None)


def ends(logged: Logged) -> Logged:
    return [e for e in logged if "ended:" in (e.get("log_format") or "")]


@pytest.fixture
def telling(net) -> Any:
    net.listener.connection_log.configure(lines=100, opened=True)
    return net


def test_one_line_at_the_beginning_one_at_the_end(telling, logged):
    """Who it was, how long, how much of what, and why it is over."""
    peer = telling.peer("192.0.2.1")
    peer.send(b"123")
    telling.server.connection.origin.principal = "CN=shipper"
    telling.server.connection.count(events=7)
    telling.clock.advance(2.5)
    peer.lose()
    opened, ended = logged
    assert (opened["log_level"].name, ended["log_level"].name) == ("debug", "info")
    assert opened["session"] == ended["session"]
    fields = ("listener", "protocol", "peer", "principal", "reason", "seconds")
    assert [ended[name] for name in fields] == [
        "beats", "lumberjack", "192.0.2.1:4000", "CN=shipper", "peer", 2.5,
    ]  # fmt: skip
    assert (ended["events"], ended["bytes"]) == (7, 3)


def _fin(net: Any, peer: Any) -> None:
    peer.fin()


def _reset(net: Any, peer: Any) -> None:
    peer.connection.input.connectionLost(Failure(ConnectionLost()))


def _closed(net: Any, peer: Any) -> None:
    net.server.connection.close()


def _refused(net: Any, peer: Any) -> None:
    net.server.connection.refuse(Refusal("no such thing"))


def _failed(net: Any, peer: Any) -> None:
    def broken(connection: Any, data: bytes) -> None:
        raise ZeroDivisionError

    net.server.act = broken
    peer.send(b"x")


def _stopping(net: Any, peer: Any) -> None:
    net.listener.drain(5.0)


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (_fin, "peer"),
        (_reset, "lost"),
        (_closed, "closed"),
        (_refused, "protocol"),
        (_failed, "failure"),
        (_stopping, "stopping"),
    ],
)
def test_why(telling, logged, end, why):
    """The peer ended it, it was lost, its protocol did, it was refused, …"""
    peer = telling.peer()
    peer.send(b"x")
    end(telling, peer)
    if end is not _reset:
        peer.lose()
    [line] = ends(logged)
    assert line["reason"] == why


def test_idle(telling, logged):
    """A silence that lasted too long."""
    telling.listener.start_timers()
    peer = telling.peer()
    peer.send(b"x")
    telling.pass_time(910)
    peer.lose()
    assert [line["reason"] for line in ends(logged)] == ["idle"]


def test_who_only_looks_whether_we_are_there_is_no_line(telling, logged):
    """Load balancers do, every second."""
    telling.peer().lose()
    assert ends(logged) == []


def test_many_are_counted(logged):
    """So many lines in a second; the others are told a minute later, by reason."""
    clock = Clock()
    log = ConnectionLog(clock, lines=2, opened=True)
    origin = Origin("lumberjack", "beats", "s", "192.0.2.1:1")
    for why in ("peer", "peer", "peer", "lost", "peer"):
        log.opened(origin)
        log.closed(origin, why, seen)
    assert len(ends(logged)) == 2
    assert len(logged) == 4
    clock.advance(1.0)
    log.closed(origin, "peer", seen)
    assert len(ends(logged)) == 3
    clock.advance(60.0)
    told = [(e["reason"], e["count"]) for e in logged if "count" in e]
    assert sorted(told) == [("lost", 1), ("peer", 2)]
    assert not clock.getDelayedCalls()


@pytest.mark.parametrize(("lines", "opened"), [(0, True), (5, False)])
def test_what_nobody_wants_costs_nothing(logged, lines, opened):
    """With `connections: 0` no line is made; above level debug none of openings."""
    log = ConnectionLog(Clock(), lines=lines, opened=opened)
    origin = Origin("lumberjack", "beats", "s", "192.0.2.1:1")
    log.opened(origin)
    assert logged == []
    log.closed(origin, "peer", seen)
    assert len(logged) == min(lines, 1)


def test_fields_are_stable(logged):
    """In JSON: those of docs/operations.md, and nothing that a peer has sent."""
    origin = Origin("lumberjack", "beats", "s", "192.0.2.1:1", "CN=a", {"tls": "1.3"})
    log = ConnectionLog(Clock(), lines=2)
    log.closed(origin, "peer", seen)
    out = StringIO()
    observer(Logging(format="json"), out)(logged[0])
    line = json.loads(out.getvalue())
    del line["ts"]
    assert line == {
        "level": "info",
        "logger": "gateway.net.connection_log",
        "msg": "beats: 192.0.2.1:1 ended: peer; 0.123 s, 1 events, 2 bytes, CN=a",
        "listener": "beats",
        "protocol": "lumberjack",
        "session": "s",
        "peer": "192.0.2.1:1",
        "principal": "CN=a",
        "seconds": 0.123,
        "reason": "peer",
        "events": 1,
        "bytes": 2,
    }


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock) -> RejectionLog:
    return RejectionLog(clock)


def test_each_address_listener_and_rule_is_heard(log):
    """Once a minute: ten faults of one peer are ten lines."""
    for _ in range(3):
        heard = [
            log.admit(host, listener, rule)
            for host in ("192.0.2.1", "192.0.2.2")
            for listener in ("beats", "game")
            for rule in ("bad frame", "no token")
        ]
    assert not any(heard)
    assert log.admit("192.0.2.3", "beats", "bad frame")


def test_what_is_left_out_is_told_by_rule(log, clock, warnings):
    """Though nothing of the kind comes any more."""
    for _ in range(5):
        log.admit("192.0.2.1", "beats", "bad frame")
        log.admit("192.0.2.1", "game", "no token")
    clock.advance(30)
    assert not log.admit("192.0.2.1", "beats", "bad frame")
    clock.advance(30)
    assert warnings() == [
        "beats: 192.0.2.1: 5 more in the last minute: bad frame",
        "game: 192.0.2.1: 4 more in the last minute: no token",
    ]
    assert log.admit("192.0.2.1", "beats", "bad frame")
    clock.advance(600)
    assert len(warnings()) == 2
    assert clock.getDelayedCalls() == []


def test_what_the_peer_chose_makes_no_new_rule(log):
    """Numbers and quoted text vary as it likes."""
    assert log.admit("192.0.2.1", "beats", "frame of 17 bytes from 'a\\'b'")
    for number in range(100):
        rule = f"frame of {number} bytes from {chr(65 + number % 26) * 9!r}"
        assert not log.admit("192.0.2.1", "beats", rule)


def test_an_ipv6_peer_is_its_network(log):
    """2^64 addresses of one peer do not make 2^64 lines."""
    assert log.admit("2001:db8::1", "beats", "x")
    assert not log.admit("2001:db8::2", "beats", "x")
    assert log.admit("2001:db8:0:1::2", "beats", "x")
    assert log.admit("fe80::1%eth0", "beats", "x")
    assert not log.admit("fe80::2%eth0", "beats", "x")


def test_a_flood_from_everywhere_is_few_lines(log, clock, warnings):
    """Beyond so many a minute, they are told by listener and rule."""
    heard = sum(
        log.admit(f"host-{number}", "beats", "too many connections")
        for number in range(5000)
    )
    assert heard == rejection_log._MOST_LINES
    clock.advance(60)
    assert warnings() == ["beats: 4400 more in the last minute: too many connections"]


def test_it_forgets_the_oldest_but_not_what_it_left_out(log, clock, warnings):
    """A million hosts do not fill the memory."""
    log.admit("first", "beats", "bad frame")
    log.admit("first", "beats", "bad frame")
    for minute in range(10):
        for number in range(500):
            log.admit(f"host-{minute}-{number}", "beats", "bad frame")
        clock.pump([20.0] * 3)
    assert len(log._lines_told) == rejection_log._MOST_REMEMBERED
    assert sum("1 more in the last minute: bad frame" in w for w in warnings()) == 1


def test_what_it_chose_may_be_hexadecimal(log):
    """Identifiers, headers, single bytes."""
    assert log.admit("192.0.2.1", "beats", "no writer 00f7a8b9c0d1e2f3 (0x1f)")
    for number in range(100):
        rule = f"no writer {hash(str(number)) % 2**64:016x} (0x{number:02x})"
        assert not log.admit("192.0.2.1", "beats", rule)
    assert log.admit("192.0.2.1", "beats", "no reader 00f7a8b9c0d1e2f3 (0x1f)")


def test_one_address_does_not_use_up_the_lines(log, clock, warnings):
    """However many rules it finds to break, the next one's first fault is heard."""
    rules = ["".join(word) for word in itertools.product("klmnopqrst", repeat=3)]
    heard = sum(log.admit("192.0.2.1", "beats", rule) for rule in rules)
    assert heard == rejection_log._MOST_LINES_OF_ONE
    assert log.admit("192.0.2.2", "game", "no token")
    clock.advance(60)
    told = [int(re.findall(r"(\d+) more", line)[0]) for line in warnings()]
    assert sum(told) == 1000 - heard
    assert len(told) <= rejection_log._MOST_KINDS + 1
    assert log.admit("192.0.2.1", "beats", "no token")
