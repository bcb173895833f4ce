"""Why a change is not made: what `Segments` raises and sessions put into replies."""

from __future__ import annotations

__all__ = [
    "BadKeyVersion",
    "BadOffset",
    "ConditionFailed",
    "Fenced",
    "KeyNotFound",
    "Sealed",
    "SegmentError",
    "SegmentExists",
    "SegmentNotFound",
    "TableNotEmpty",
    "Unsupported",
]


class SegmentError(Exception):
    """The state of segments does not allow it; nothing was changed."""


class SegmentNotFound(SegmentError):
    """There is no segment of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no segment {name!r}")
        self.name = name


class SegmentExists(SegmentError):
    """There is one already."""


class Sealed(SegmentError):
    """It takes no more."""


class BadOffset(SegmentError):
    """The offset is not in the segment."""

    def __init__(self, start: int) -> None:
        super().__init__(f"it starts at {start}")
        self.start = start


class ConditionFailed(SegmentError):
    """A segment is not as long, or a number not what, was expected."""


class Fenced(SegmentError):
    """Somebody else has written with this writer's id."""


class TableNotEmpty(SegmentError):
    """A table has entries."""


class KeyNotFound(SegmentError):
    """A key that must be there is not."""


class BadKeyVersion(SegmentError):
    """A key has another version."""


class Unsupported(SegmentError):
    """Not done with this kind of segment."""
