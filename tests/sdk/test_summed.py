"""Lines of small files: what they say, damage, and forms that are not known."""

import google_crc32c
import msgspec
import pytest

from gateway.sdk.summed import OtherForm, decode, encode


class Said(msgspec.Struct, frozen=True):
    name: str
    lsn: int = 0


def test_a_line_and_back():
    """With the form first; what a later version adds is passed over."""
    line = encode(Said("a b", 7))
    assert line.startswith(b"1 ")
    assert line.endswith(b' {"name":"a b","lsn":7}\n')
    assert decode(line[:-1], Said) == Said("a b", 7)


@pytest.mark.parametrize("at", range(33))
def test_no_flipped_bit_says_another_thing(at):
    line = bytearray(encode(Said("a b", 7))[:-1])
    for bit in range(8):
        line[at] ^= 1 << bit
        assert decode(bytes(line), Said) is None
        line[at] ^= 1 << bit


def test_a_form_that_is_not_known():
    """It is no damage, and nothing is guessed."""
    text = b"2 " + b"%08x" % google_crc32c.value(b"2 {}") + b" {}"
    with pytest.raises(
        OtherForm, match="form 2, and this version reads form 1: a newer"
    ):
        decode(text, Said)
