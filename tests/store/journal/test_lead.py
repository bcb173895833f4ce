"""`ack: spool`: senders wait about `spool.roll_interval` for their file, not longer."""

import math

import pytest
from hypothesis import given
from hypothesis.strategies import floats
from twisted.internet.task import Clock

from deadlines import eventually
from gateway.store.journal.lead import Lead


def test_without_a_file_to_wait_for():
    """What a file takes is known from the last ones; at first nothing is."""
    lead = Lead()
    assert lead.of(10) == 0
    lead.sealed(5, 100.0)
    assert lead.of(10) == 0
    lead.published(4, 101.0)
    assert lead.of(10) == 0
    lead.published(5, 103.0)
    assert lead.of(10) == 3


def test_no_more_than_twice_as_many_files():
    """However long the last one took."""
    lead = Lead()
    lead.sealed(5, 100.0)
    lead.published(5, 4000.0)
    assert lead.of(10) == 5


def test_a_stall_is_forgotten():
    """What files take is the longest time lately, not that of one bad hour."""
    lead = Lead()
    for lsn, took in enumerate([3600.0, *[2.0] * 100]):
        lead.sealed(lsn, 0.0)
        lead.published(lsn, took)
    assert lead.of(10) == pytest.approx(2, abs=0.1)
    lead.sealed(200, 0.0)
    lead.published(200, 3.0)
    assert lead.of(10) == 3


def test_while_a_file_is_not_there():
    """The next one would wait for it: sealing earlier makes more files, no sooner."""
    lead = Lead()
    for lsn in (5, 6):
        lead.sealed(lsn, 100.0)
    lead.published(5, 103.0)
    assert lead.of(10) == 0
    lead.published(6, 103.0)
    assert lead.of(10) == 3


@given(
    begun=floats(1.7e9, 1.8e9),
    interval=floats(0.01, 3600.0),
    took=floats(0.0, 100.0),
)
def test_a_file_is_there_before_a_batch(begun, interval, took):
    """Sealed after it began, by the interval at most, and in time for a multiple of it."""
    lead = Lead()
    lead.sealed(1, 0.0)
    lead.published(1, took)
    at = lead.before_batch(begun, interval)
    assert begun - 1e-6 <= at <= begun + interval + 1e-6
    batch = math.ceil(at / interval + 1e-9) * interval
    assert batch - at == pytest.approx(min(took + 0.1, interval / 2), abs=1e-5)


@pytest.mark.parametrize(("waits", "age"), [(True, 7.0), (False, 10.0)])
def test_a_segment_is_sealed_earlier(start, make, *, waits, age):
    """By the 3 s that the last file took; not where nobody waits for one."""
    clock = Clock()
    world = start(
        clock=clock.seconds, acknowledge_when_published=waits, roll_interval=10.0
    )

    def store(at: float, sealed: list[int]) -> None:
        clock.advance(at - clock.seconds())
        world.submit(make())
        world.until_durable(world.journal.durable_lsn + 1)
        eventually(lambda: [one.last_lsn for one in world.sealed] == sealed, "these")

    store(0.0, [])
    store(10.0, [2])
    clock.advance(3.0)
    world.journal.published(2)
    store(13.0, [2])
    store(12.0 + age, [2])
    store(13.0 + age, [2, 5])
