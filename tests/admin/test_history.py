"""An hour of the daemon, whether somebody looks or not."""

import json
from dataclasses import replace

import pytest

from gateway.admin.freshness import Facts, Job, judge
from gateway.admin.history import History, quantile

BOUNDS = (0.001, 0.01, 0.1)


def test_rates_are_of_the_time_between(daemon):
    """Events, bytes and acknowledgements since the sample before; the first has none."""
    history = History()
    assert history.latest is None
    history.note(1000, 50, daemon.status, BOUNDS, (0, 0, 0, 0))
    assert history.latest is None
    [one] = daemon.status.listeners
    more = replace(one, events=one.events + 100, bytes=one.bytes + 5000)
    facts = Facts(durable_lsn=9, uncommitted=12.345, job=Job(), waiting_bytes=77)
    daemon.change(listeners=[more], freshness=judge(facts))
    history.note(1005, 55, daemon.status, BOUNDS, (0, 90, 10, 0))
    latest = history.latest
    assert latest is not None
    assert (latest.at, latest.events, latest.bytes) == (1005, 20, 1000)
    assert latest.ack_p50 == pytest.approx(0.001 + 0.009 * 50 / 90)
    assert latest.ack_p99 == pytest.approx(0.01 + 0.09 * 0.9)
    assert (latest.waiting_bytes, latest.freshness) == (77, 12.35)
    assert (latest.connections, latest.level) == (3, "bad")


def test_a_listener_that_is_gone_takes_no_events_back(daemon):
    """A reload has removed it, and what it had counted."""
    history = History()
    history.note(1000, 50, daemon.status, BOUNDS, (0, 0, 0, 0))
    daemon.change(listeners=[])
    history.note(1005, 55, daemon.status, BOUNDS, (0, 0, 0, 0))
    latest = history.latest
    assert latest is not None
    assert (latest.events, latest.bytes) == (0, 0)


def test_a_ring(daemon):
    """However long it runs, the last ones are kept, the oldest first."""
    history = History(kept=3)
    assert json.loads(history.as_json())["at"] == []
    for turn in range(9):
        history.note(turn, turn, daemon.status, BOUNDS, (0, 0, 0, 0))
    columns = json.loads(history.as_json())
    assert columns["at"] == [6, 7, 8]
    assert columns["ack_p99"] == [None, None, None]
    assert columns["every"] == 5


def test_a_clock_that_stands(daemon):
    """No rate is made of no time."""
    history = History()
    history.note(1000, 50, daemon.status, BOUNDS, (0, 0, 0, 0))
    history.note(1000, 50, daemon.status, BOUNDS, (0, 0, 0, 0))
    assert history.latest is None


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ((0, 0, 0, 0), 0.5, None),
        ((2, 0, 0, 0), 0.5, 0.0005),
        ((0, 0, 10, 0), 1.0, 0.1),
        ((1, 0, 0, 1), 0.99, 0.1),
        ((1, 0, 1, 0), 0.5, 0.001),
    ],
)
def test_quantiles(counts, share, expected):
    """Spread evenly within a bucket; what is above all bounds is told as the last."""
    assert quantile(BOUNDS, counts, share) == expected
