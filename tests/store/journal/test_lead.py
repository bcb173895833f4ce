"""`ack: spool`: senders wait about `spool.roll_interval` for their file, not longer."""

import math

import pytest
from hypothesis import given
from hypothesis.strategies import floats

from gateway.store.journal import Journal, Log
from gateway.store.journal.lead import Lead
from gateway.store.system.disk import RealDisk
from incarnations import A
from sections import journal_settings


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
def test_a_segment_is_sealed_earlier(directory, turns, make, *, waits, age):
    """By the 3 s that the last file took; not where nobody waits for one."""
    now = [1000.0]
    sealed: list[int] = []
    journal = Journal(
        Log(
            directory, RealDisk(), 1, A, clock=lambda: now[0], wall_clock=lambda: now[0]
        ),
        reactor=turns,
        **journal_settings(acknowledge_when_published=waits, roll_interval=10.0),
        on_sealed=lambda one: turns.callFromThread(sealed.append, one.last_lsn),
        on_fatal=lambda why: None,
        clock=lambda: now[0],
    )

    def store(at: float) -> None:
        now[0], last = at, journal.durable_lsn + 1
        journal.submit(make())
        turns.run(lambda: journal.durable_lsn == last)

    journal.start()
    store(1000.0)
    store(1010.0)
    turns.run(lambda: sealed == [2])
    now[0] = 1013.0
    journal.published(2)
    store(1013.0)
    store(1012.0 + age)
    store(1013.0 + age)
    turns.run(lambda: len(sealed) == 2)
    assert sealed == [2, 5]
    turns.wait(journal.stop())
