"""What comes follows what leaves: a spool that fills up is never quite full."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.store.names import file_name
from gateway.store.spool.levels import Levels
from gateway.store.spool.pace import Pace
from gateway.store.system.disk import RealDisk
from incarnations import A

MIB = 1 << 20
MOST = 512 * MIB
BURST = 600 * MIB
"""Senders' own rate, in bytes a second."""


def play(
    leaves: int, every: float, seconds: float = 60.0, step: float = 0.25
) -> list[tuple[float, float]]:
    """Rates and levels, if that much leaves at once so often, and looks come so often."""
    pace, found = Pace(MOST), []
    now = taken = gone = 0.0
    while now < seconds:
        rate = min(BURST, pace.look(now, int(taken), int(taken - gone)))
        found.append((rate, taken - gone))
        now += step
        taken += rate * step
        due = int(now / every) * leaves
        gone = min(taken, max(gone, due))
    return found


@pytest.mark.parametrize(
    ("rate", "every"),
    [(10, 0.25), (10, 2.0), (60, 0.25), (60, 1.0), (60, 2.0), (200, 1.0)],
)
def test_nobody_stands(rate, every):
    """Once the room is used up, taking goes on all the time, at the rate of leaving."""
    played = play(int(rate * every * MIB), every)
    settled = played[len(played) // 2 :]
    mean = sum(taken for taken, _ in settled) / len(settled)
    assert mean == pytest.approx(rate * MIB, rel=0.1)
    assert all(level < MOST for _, level in settled)
    assert min(taken for taken, _ in settled) > 0.2 * rate * MIB


def test_with_room_nobody_is_slowed():
    pace = Pace(MOST)
    assert pace.look(0.0, 0, 0) == math.inf
    assert pace.look(1.0, MIB, MIB) > 200 * MIB


def test_when_nothing_leaves_the_last_room_is_left_slowly():
    """The rate falls all the time, and to nothing before the limit is reached."""
    played = play(0, 1.0)
    rates = [rate for rate, _ in played]
    assert all(one >= after for one, after in pairwise(rates))
    assert played[-1][1] < MOST
    assert rates[-1] < MIB


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.integers(0, 1 << 50), st.integers(0, 1 << 50))
    )
)
def test_whatever_it_is_told_the_rate_is_one(looks):
    """Clocks that stand still, and files that come from nowhere."""
    pace = Pace(MOST)
    for now, taken, held in looks:
        assert pace.look(now, taken, held) >= 0


def test_the_archive_is_never_below_empty(tmp_path):
    """The job archives a file between our look and the expiry, which removes it too."""
    spool, archive = tmp_path / "spool", tmp_path / "archive"
    spool.mkdir()
    archive.mkdir()
    (archive / file_name("gw", A, 1, 1)).write_bytes(bytes(10))
    levels = Levels(spool, archive, RealDisk(), 1000)
    levels.measure()
    levels.left_archive(10 + 90)
    assert levels.archive.bytes == 0
