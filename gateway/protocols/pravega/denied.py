"""Why a change is not made: what `Segments` raises and sessions put into replies."""

from __future__ import annotations

__all__ = [
    "BadVersion",
    "ConditionFailed",
    "Denied",
    "Exists",
    "Fenced",
    "NoSuch",
    "NoSuchKey",
    "NotEmpty",
    "OutOfRange",
    "Sealed",
    "Unsupported",
]


class Denied(Exception):
    """The state of segments does not allow it; nothing was changed."""


class NoSuch(Denied):
    """There is no segment of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no segment {name!r}")
        self.name = name


class Exists(Denied):
    """There is one already."""


class Sealed(Denied):
    """It takes no more."""


class OutOfRange(Denied):
    """The offset is not in the segment."""

    def __init__(self, start: int) -> None:
        super().__init__(f"it starts at {start}")
        self.start = start


class ConditionFailed(Denied):
    """A segment is not as long, or a number not what, was expected."""


class Fenced(Denied):
    """Somebody else has written with this writer's id."""


class NotEmpty(Denied):
    """A table has entries."""


class NoSuchKey(Denied):
    """A key that must be there is not."""


class BadVersion(Denied):
    """A key has another version."""


class Unsupported(Denied):
    """Not done with this kind of segment."""
