"""Counting peers, leaving descriptors for the disk."""

import resource

import pytest

from gateway.event import network_of
from gateway.net import descriptors
from gateway.net.descriptors import descriptor_ceiling
from gateway.net.traffic import ConnectionCounts


def test_counts_forget_hosts_without_connections():
    """They cost no memory."""
    counts = ConnectionCounts()
    counts.add("a")
    counts.add("a")
    counts.remove("a")
    assert counts["a"] == 1
    counts.remove("a")
    assert counts["a"] == 0
    assert not counts


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:0:1:2::3", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("unix", "unix"),
    ],
)
def test_whom_a_host_is_counted_with(host, network):
    """An IPv4 address that a PROXY header maps to IPv6 is itself."""
    assert network_of(host) == network


@pytest.mark.parametrize(
    ("soft", "ceiling"),
    [(100, 50), (256, 192), (1024, 922), (65_536, 64_512), (-1, 1 << 20)],
)
def test_some_descriptors_are_left(soft, ceiling, monkeypatch):
    """A tenth, at least 64, at most 1024, and never more than half."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert descriptor_ceiling() == ceiling


@pytest.mark.parametrize(
    ("soft", "most"), [(100, 16), (256, 21), (1024, 34), (65_536, 341), (-1, 341)]
)
def test_the_admin_port_takes_a_part_of_them(soft, most, monkeypatch):
    """The disk has the rest, even while half as many more are being closed."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert descriptors.admin_connections() == most


@pytest.mark.parametrize(
    ("before", "after"),
    [((1024, 4096), 4096), ((1024, -1), 1 << 20), ((4096, 4096), 4096), ((-1, -1), -1)],
)
def test_the_soft_limit_is_lifted_to_the_hard_one(before, after, monkeypatch):
    """As far as it goes, and never down."""
    now = [before]
    monkeypatch.setattr(resource, "getrlimit", lambda _: now[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: now.append(pair))
    assert descriptors.raise_descriptor_limit() == after
    assert now[-1][0] == after
