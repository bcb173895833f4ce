"""Sizes and times as people write them."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.lumberjack.options import Options
from gateway.sdk.limits import Limits, limits_of
from gateway.sdk.units import (
    Size,
    Time,
    format_size,
    format_time,
    parse_number,
    parse_size,
    parse_time,
)
from gateway_testkit.settings import settings


@given(st.integers(min_value=0, max_value=2**50))
def test_a_size_survives_being_written(size):
    """What `format_size` writes is read back as the same bytes, up to 1024 TiB."""
    assert parse_size(format_size(size)) == size


@given(st.integers(min_value=0, max_value=3650 * 86400 * 10**6))
def test_a_time_survives_being_written(micros):
    """What `format_time` writes is read back as the same time, to the microsecond."""
    assert parse_time(format_time(micros / 10**6)) == micros / 10**6


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MiB", 64 << 20),
        ("100MB", 100_000_000),
        ("1.5KiB", 1536),
        ("10 GiB", 10 << 30),
        ("1kB", 1000),
        ("512B", 512),
        ("65536", 65536),
        (65536, 65536),
        (0, 0),
    ],
)
def test_sizes(text, size):
    """Binary and decimal units mean what they say; a bare number is bytes."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "64mib",
        "MiB",
        "",
        "-1",
        -1,
        "1.0000001KiB",
        "0.5B",
        1.5,
        True,
        None,
        "1e9",
        "\u0661MB",
    ],
)
def test_what_is_no_size(text):
    """Units that could be misread, parts of bytes, negative sizes: no guessing."""
    with pytest.raises(ValueError, match="must be a size such as 64MiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("200us", 0.0002),
        ("200ms", 0.2),
        ("5s", 5.0),
        ("1.5s", 1.5),
        ("15m", 900.0),
        ("24h", 86400.0),
        ("3650d", 315_360_000.0),
        ("0s", 0.0),
    ],
)
def test_times(text, seconds):
    """Every unit from microseconds to days."""
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["5", 5, 5.0, "5 sec", "s", "-1s", "1M", None, True])
def test_what_is_no_time(text):
    """A time without its unit is not guessed at."""
    with pytest.raises(ValueError, match="must be a time with its unit"):
        parse_time(text)


@pytest.mark.parametrize("value", ["1.0", 1.0, True, "", "0x10", "\uff11", None])
def test_what_is_no_number(value):
    """Only whole decimal numbers are."""
    with pytest.raises(ValueError, match="must be a whole number"):
        parse_number(value)


def test_bounds_are_told_in_the_units_of_people():
    """A value out of bounds is answered with bounds and value as one writes them."""
    with pytest.raises(ValueError, match="between 1s and 10s, not 20s"):
        Time("1s", "10s").parse("20s")
    with pytest.raises(ValueError, match="between 4KiB and 1GiB, not 1KiB"):
        Size("4KiB", "1GiB").parse("1024")


def test_a_long_value_is_cut_in_the_message():
    """A megabyte of rubbish makes a short message."""
    with pytest.raises(ValueError, match="must be a size") as caught:
        parse_size("9" * 1_000_000)
    assert len(str(caught.value)) < 200


@dataclass
class Own:
    """Of limits, of options, of neither."""

    message_bytes: int = 1
    pairs: int = 2
    depth: int = 3


def test_limits_are_found_by_name():
    """A field is the option or the key of that name; what is neither stays."""
    found = limits_of(Own, settings(Options, message_bytes=10, pairs=20))
    assert found == Own(10, 20, 3)
    usual = limits_of(Own, settings(Options))
    assert usual == Own(Limits().message_bytes, Options().pairs, 3)
