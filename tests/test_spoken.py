"""Durations, sizes and counts in words."""

import pytest

from gateway.spoken import duration, many, milliseconds, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0.0 s"), (0.19, "0.1 s"), (1.84, "1.8 s"), (9.99, "9.9 s"), (10, "10 s"),
        (59.9, "59 s"), (60, "1 min"), (119, "1 min"), (3599, "59 min"),
        (7199, "119 min"), (7200, "2 h"), (172_799, "47 h"), (172_800, "2 d"),
    ],
)  # fmt: skip
def test_durations(seconds, text):
    """Rounded down, in the unit in which they are more than one."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (340 * 2**20, "340 MiB"),
        (5 * 2**50, "5120 TiB"),
    ],
)  # fmt: skip
def test_sizes(count, text):
    """In the largest unit of which there is one."""
    assert size(count) == text


def test_counts():
    """With the plural that belongs to them, and groups of three digits."""
    assert [many(n, "file") for n in (0, 1, 2_340)] == [
        "0 files",
        "1 file",
        "2,340 files",
    ]


def test_moments():
    """To a tenth below a hundred milliseconds, else whole."""
    assert [milliseconds(one) for one in (0.00184, 0.125)] == ["1.8 ms", "125 ms"]
