"""The log's lines about connections that open and end."""

import json
from io import StringIO
from typing import Any

import pytest
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from gateway.config.model import Logging
from gateway.daemon.logs import observer
from gateway.event import Origin
from gateway.net.connection_log import ConnectionLog, Seen
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
