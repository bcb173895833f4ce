"""What the last audit found, in a small file beside the tables: `gateway audit --note`
writes it, the daemon, the Spark job and their metrics read it.

It is replaced as a whole, and survives no power cut: the next audit says it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gateway.sdk.protocol import Statistic
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
    nobody has accepted as lost."""
    holes: int = 0
    """In so many stretches of lsns."""
    doubled: int = 0
    unknown: int = 0
    """Incarnations of which nobody knows where they ended."""
    problems: int = 0
    """Files that can not be read, or are not understood."""
    unfinished: str | None = None
    """Why the last attempt did not come to its end, if it did not."""

    @classmethod
    def read(cls, lake: Path) -> Audited:
        """What stands beside these tables; of one that can not be read, nothing."""
        try:
            with cls.path(lake).open("rb") as file:
                return msgspec.json.decode(file.read(_MOST_BYTES), type=cls)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return cls()

    def write(self, lake: Path) -> None:
        """Beside these tables, in one step.  Raises OSError."""
        leave_word(self.path(lake), msgspec.json.encode(self))

    @staticmethod
    def path(lake: Path) -> Path:
        """Where it is."""
        return lake / INTERNAL / "audit.json"

    def age(self, now: float) -> float | None:
        """Seconds since one came to its end, or should have been begun; None: none is to
        come, and none was.
        """
        begun = self.at if self.at is not None else self.since
        return None if begun is None else max(0.0, now - begun)

    def figures(self, now: float) -> Iterator[Statistic]:
        """For pages and programs; nothing where none is to come and none was."""
        age = self.age(now)
        if age is None:
            return
        yield Statistic(
            "last", "When the last audit came to its end, since the epoch.", self.at,
            "gateway_audit_last_timestamp_seconds", card="last", unit="time",
        )  # fmt: skip
        yield Statistic(
            "age", "Since then, or since one was first to come.", age,
            "gateway_audit_age_seconds",
        )  # fmt: skip
        yield Statistic(
            "every", "From one audit to the next.", self.every,
            "gateway_audit_every_seconds",
        )  # fmt: skip
        yield Statistic(
            "unfinished", "1 if the last attempt did not come to its end.",
            self.unfinished is not None, "gateway_audit_unfinished",
        )  # fmt: skip
        if self.at is None:
            return
        yield Statistic(
            "complete", "1 if every acknowledged event was there, exactly once.",
            self.complete, "gateway_audit_complete", card="complete",
        )  # fmt: skip
        yield Statistic(
            "seconds", "How long it took.", self.seconds, "gateway_audit_seconds",
        )  # fmt: skip
        yield Statistic(
            "events", "Acknowledged events that it looked for.", self.events,
            "gateway_audit_events", card="events",
        )  # fmt: skip
        yield Statistic(
            "missing", "Acknowledged events that were nowhere.", self.missing,
            "gateway_audit_missing_events", card="missing",
        )  # fmt: skip
        yield Statistic(
            "holes", "Stretches of lsns that those were.", self.holes,
            "gateway_audit_holes",
        )  # fmt: skip
        yield Statistic(
            "doubled", "Events that were there more than once.", self.doubled,
            "gateway_audit_doubled_events", card="doubled",
        )  # fmt: skip
        yield Statistic(
            "unknown", "Incarnations of which nobody knows where they ended.",
            self.unknown, "gateway_audit_unknown_ends",
        )  # fmt: skip
        yield Statistic(
            "problems", "Files that it could not read or understand.", self.problems,
            "gateway_audit_problem_files",
        )  # fmt: skip
