"""Deflate blocks that hold tables, and nothing that the tables are for.

An inflater builds the tables of each block, and makes no byte of it (RFC 1951 §3.2.7).
"""

import zlib

__all__ = ["blocks", "broken", "stream"]

_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1)


def _block() -> str:
    """Its bits, the first one first: 91 of them."""

    def number(value: int, bits: int) -> str:
        return format(value, f"0{bits}b")[::-1]

    head = number(0, 1) + number(2, 2) + number(0, 5) + number(0, 5)
    head += number(len(_ORDER) - 4, 4)
    # Two lengths have a code, `0` and `1`: 1, and a run of zeros.
    head += "".join(number(int(length in (1, 18)), 3) for length in _ORDER)
    lengths = "0" + "1" + number(138 - 11, 7) + "1" + number(117 - 11, 7) + "0"
    return head + lengths + "0" + "1"  # the distances' only length; the block's end


def blocks(size: int) -> bytes:
    """About so many bytes of them, in whole bytes."""
    bits = _block() * 8
    eight = int(bits[::-1], 2).to_bytes(len(bits) // 8, "little")
    return eight * max(1, size // len(eight))


def stream(size: int) -> bytes:
    """A whole zlib stream of them, which inflates to nothing."""
    end = zlib.compress(b"")
    return end[:2] + blocks(size) + end[2:]


def broken(size: int) -> bytes:
    """A zlib stream of them whose last block is of no type."""
    return zlib.compress(b"")[:2] + blocks(size) + b"\x07"
