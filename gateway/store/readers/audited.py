"""The result of the last audit, a small file beside the tables: `gateway audit --note`
writes it, the daemon, the Spark job and their metrics read it.

It is replaced as a whole, and survives no power cut: the next audit says it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from gateway.sdk.figures import Value
from gateway.store.readers.lake import INTERNAL, leave_word

_MOST_BYTES = 65536


@dataclass(frozen=True, slots=True)
class Audited:
    """The last audit that came to its end, and what became of the last attempt.

    Times are seconds since the epoch; None and 0 before the first.
    """

    since: float | None = None
    """When it was first known that one is to come."""
    every: float | None = None
    """Seconds from one to the next; None: nothing runs them by itself."""
    tried: float | None = None
    """When the last one began."""
    at: float | None = None
    """When the last one ended that came to its end; what follows is of that one."""
    seconds: float = 0.0
    complete: bool = True
    events: int = 0
    missing: int = 0
    """Acknowledged events that are nowhere, or only an old word vouches for them, and that
    are not accepted as lost."""
    holes: int = 0
    """Stretches of lsns that those were."""
    doubled: int = 0
    unknown: int = 0
    """Incarnations whose end is not known."""
    problems: int = 0
    """Files that can not be read, or are not understood."""
    unfinished: str | None = None
    """Why the last attempt did not come to its end, if it did not."""

    @classmethod
    def read(cls, lake: Path) -> Audited:
        """The file beside these tables; of one that can not be read, nothing."""
        try:
            with cls.path(lake).open("rb") as file:
                return msgspec.json.decode(file.read(_MOST_BYTES), type=cls)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return cls()

    def write(self, lake: Path) -> None:
        """Put it beside these tables, in one step.  Raises OSError."""
        leave_word(self.path(lake), msgspec.json.encode(self))

    @staticmethod
    def path(lake: Path) -> Path:
        return lake / INTERNAL / "audit.json"

    def age(self, now: float) -> float | None:
        """Seconds since one came to its end, or should have been begun; None: none is to
        come, and none was.
        """
        begun = self.at if self.at is not None else self.since
        return None if begun is None else max(0.0, now - begun)

    def figures(self, now: float) -> dict[str, Value]:
        """Values of section `audit`; none where none is to come and none was."""
        age = self.age(now)
        if age is None:
            return {}
        of_attempts: dict[str, Value] = {
            "last": self.at,
            "age": age,
            "every": self.every,
            "unfinished": self.unfinished is not None,
        }
        if self.at is None:
            return of_attempts
        names = (
            *("complete", "seconds", "events", "missing", "holes", "doubled"),
            *("unknown", "problems"),
        )
        return of_attempts | {name: getattr(self, name) for name in names}
