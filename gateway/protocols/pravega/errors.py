"""Errors of segments and tables: `Segments` raises them, sessions reply with them; and how
segments and writers are named in logs and refusals.
"""

from __future__ import annotations

from enum import StrEnum

from gateway.sdk.interfaces import Refusal


class Need(StrEnum):
    """Permissions; the value goes into `'ann' may not TEXT 'shop/orders'`."""

    READ = "read"
    WRITE = "write"
    MANAGE = "manage"
    ANY = "see"
    """One of those three, whichever: what there is to know about a stream."""
    USE = "use"
    """One of those, or `groups`: an address, a token, which allow nothing by themselves."""


NAME_IN_LOGS = 100
"""Segment names, which may have 64 KiB, are cut to so many characters in logs."""


def of_writer(what: str, writer: bytes, segment: str) -> str:
    """*what* with whose it is: `append block of writer 6d…2f to 'demo/events/0'`."""
    return f"{what} of writer {writer.hex()} to {segment[:NAME_IN_LOGS]!r}"


class SegmentError(Exception):
    """The state of the segments does not allow a change; nothing was changed."""


class SegmentNotFound(SegmentError):
    """There is no segment of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no segment {name!r}")
        self.name = name


class SegmentExists(SegmentError):
    """There is a segment of this name already."""


class Denied(SegmentError):
    """`options.access` does not allow it to who asks."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal
        self.outdated = False
        """The token is older than the rules: its bearer may ask for another, and hears from
        the controller why there is none."""


class Sealed(SegmentError):
    """The segment is sealed: nothing can be appended."""


class BadOffset(SegmentError):
    """The offset is not in the segment, or not the one of a table's next update."""

    def __init__(self, start: int) -> None:
        super().__init__(f"it starts at {start}")
        self.start = start


class ConditionFailed(SegmentError):
    """A segment has another length, or an attribute another value, than expected."""


class Fenced(SegmentError):
    """Another connection has written with the same writer id since."""


class TableNotEmpty(SegmentError): ...


class TooLarge(SegmentError):
    """One event is larger than all transactions and large events together may be."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class KeyNotFound(SegmentError):
    """A key that must exist does not."""


class BadKeyVersion(SegmentError):
    """A key has another version, or another size, than it must have."""


class Unsupported(SegmentError):
    """Not possible with this kind of segment."""
