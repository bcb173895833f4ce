"""When events came, by lsn."""

from gateway.daemon.marks import Marks


def test_the_oldest_behind_an_lsn():
    """Marks of one second are one; those that arrived are forgotten."""
    marks = Marks()
    marks.add(10, 100.0, 100.2)
    marks.add(20, 100.9, 101.5)
    marks.add(30, 101.0, 103.0)
    assert len(marks) == 2
    assert marks.oldest_behind(0) == marks.oldest_behind(19) == 100
    assert marks.oldest_behind(20) == marks.oldest_behind(29) == 101
    assert marks.oldest_behind(30) is None
    assert marks.newest_until(5) is None
    assert marks.newest_until(20) == 101.5
    marks.forget(20)
    assert marks.newest_until(20) == marks.newest == 101.5
    marks.forget(30)
    assert (marks.newest, marks.oldest_behind(0)) == (103, None)


def test_they_are_bounded():
    """Ages stay right, or become greater; nothing younger is told."""
    marks = Marks(most=8)
    for second in range(1000):
        marks.add(second + 1, 2.0 * second, 2.0 * second)
    assert len(marks) <= 8
    for second in range(1000):
        told = marks.oldest_behind(second)
        assert told is not None
        assert told <= 2.0 * second
    assert marks.oldest_behind(999) is not None


def test_a_clock_that_is_set_back():
    """What comes then is as old as it says, not as what came before."""
    marks = Marks()
    marks.add(1, 5000.0, 5000.0)
    marks.add(2, 1400.0, 1400.5)
    assert marks.oldest_behind(1) == 1400.0
    assert marks.newest_until(2) == 1400.5
