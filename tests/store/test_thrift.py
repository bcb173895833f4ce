"""What of Thrift's compact protocol is read of a stranger's bytes."""

import pytest

from gateway.store.hub.thrift import STRUCT, Compact, TooMuch


def read(data: str, most: int = 100, longest: int = 10) -> Compact:
    found = Compact(bytes.fromhex(data), most, longest)
    found.skip(STRUCT)
    return found


@pytest.mark.parametrize(
    "data",
    [
        "00",
        "11 12 00",  # true, false
        "13 07 14 01 15 02 16 80 01 00",  # a byte, integers
        "17 0102030405060708 00",
        "18 03 616263 00",
        "19 35 02 04 06 00",  # three integers
        "19 31 01 02 01 00",  # three booleans
        "19 2c 00 15 02 00 00",  # two structs
        "05 14 02 00",  # a number of its own for a field
    ],
)
def test_a_struct_is_read_to_its_end(data):
    assert read(data).length == len(bytes.fromhex(data))


def test_an_element_weighs_eight_and_deep_in_lists_one():
    """As memory has it: what is in a list of a list of a list is small."""
    three = "19 1c 19 1c 19 25 02 04 00 00 00"
    assert read(three, most=18).length
    with pytest.raises(TooMuch, match="more in its lists"):
        read(three, most=17)


def test_what_is_too_long():
    """Before it is looked at."""
    with pytest.raises(TooMuch, match="a string of 11 bytes"):
        read("18 0b")
    with pytest.raises(TooMuch, match="more in its lists"):
        read("19 f5 ffffffff0f")


@pytest.mark.parametrize(
    "data",
    ["", "15", "18 03 61", "19 25 02", "1b 00", "15 02 05 02", "05 808004 02 00"],
)
def test_what_is_none(data):
    """It ends early, or has what no Parquet has."""
    with pytest.raises(ValueError, match=r"no end|kind|in no order"):
        read(data)
