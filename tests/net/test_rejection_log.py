"""The log stays quiet, and no fault hides another."""

import itertools
import re

import pytest
from twisted.internet.task import Clock

from gateway.net import rejection_log
from gateway.net.rejection_log import RejectionLog


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
