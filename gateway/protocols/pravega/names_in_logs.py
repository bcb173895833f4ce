"""Segments and writers as they are named in logs and refusals."""

from __future__ import annotations

NAME_IN_LOGS = 100
"""Segment names, which may have 64 KiB, are cut to so many characters in logs."""


def of_writer(what: str, writer: bytes, segment: str) -> str:
    """*what* with whose it is: `append block of writer 6d…2f to 'demo/events/0'`."""
    return f"{what} of writer {writer.hex()} to {segment[:NAME_IN_LOGS]!r}"
