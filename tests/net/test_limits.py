"""Counting peers, keeping the log quiet, leaving descriptors for the disk."""

from __future__ import annotations

import resource

import pytest
from twisted.internet.task import Clock

from gateway.net import limits
from gateway.net.limits import ConnectionCounts, RejectionLog, descriptor_ceiling


def test_a_host_is_heard_once_a_minute() -> None:
    """The next line says how many were not heard."""
    clock = Clock()
    log = RejectionLog(clock)
    assert log.admit("192.0.2.1") == 0
    clock.advance(30)
    assert log.admit("192.0.2.1") is None
    assert log.admit("192.0.2.1") is None
    assert log.admit("192.0.2.2") == 0
    clock.advance(30)
    assert log.admit("192.0.2.1") == 2
    clock.advance(60)
    assert log.admit("192.0.2.1") == 0


def test_an_ipv6_peer_is_its_network() -> None:
    """2^64 addresses of one peer do not make 2^64 lines."""
    log = RejectionLog(Clock())
    assert log.admit("2001:db8::1") == 0
    assert log.admit("2001:db8::2") is None
    assert log.admit("2001:db8:0:1::2") == 0
    assert log.admit("fe80::1%eth0") == 0
    assert log.admit("fe80::2%eth0") is None


def test_it_forgets_the_oldest_host() -> None:
    """A million hosts do not fill the memory."""
    log = RejectionLog(Clock())
    for number in range(limits._MAX_HOSTS + 100):
        log.admit(f"host-{number}")
    assert len(log._hosts) == limits._MAX_HOSTS
    assert log.admit("host-0") == 0
    assert log.admit(f"host-{limits._MAX_HOSTS + 99}") is None


def test_counts_forget_hosts_without_connections() -> None:
    """They cost no memory."""
    counts = ConnectionCounts()
    counts.add("a")
    counts.add("a")
    counts.remove("a")
    assert counts["a"] == 1
    counts.remove("a")
    assert counts["a"] == 0
    assert not counts._hosts


@pytest.mark.parametrize(
    ("soft", "ceiling"),
    [(100, 50), (256, 192), (1024, 922), (65_536, 64_512), (-1, 1 << 20)],
)
def test_some_descriptors_are_left(
    soft: int, ceiling: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth, at least 64, at most 1024, and never more than half."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert descriptor_ceiling() == ceiling


@pytest.mark.parametrize(
    ("before", "after"),
    [((1024, 4096), 4096), ((1024, -1), 1 << 20), ((4096, 4096), 4096), ((-1, -1), -1)],
)
def test_the_soft_limit_is_lifted_to_the_hard_one(
    before: tuple[int, int], after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as it goes, and never down."""
    now = [before]
    monkeypatch.setattr(resource, "getrlimit", lambda _: now[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: now.append(pair))
    assert limits.raise_descriptor_limit() == after
    assert now[-1][0] == after
