"""Writes varints (unsigned LEB128): seven bits to an octet, the lowest first."""

from __future__ import annotations

__all__ = ["SMALL", "varint"]

_MOST_VALUE = 2**64 - 1


def _varint(value: int) -> bytes:
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


#: The varints of the first numbers: most lengths and ids are small.
SMALL = [_varint(value) for value in range(2048)]


def varint(value: int) -> bytes:
    """The varint of a 64-bit number without a sign, in its shortest form.

    Raises ValueError for any other number.
    """
    if 0 <= value < len(SMALL):
        return SMALL[value]
    if not 0 <= value <= _MOST_VALUE:
        raise ValueError(f"{value} is no 64-bit number without a sign")
    return _varint(value)
