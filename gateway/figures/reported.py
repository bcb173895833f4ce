"""The Spark job's report of itself, and the values of its figures.

It is a small file beside the tables, which the daemon and the job's own admin port read; over
HTTP it is the job's /api/status.  The job replaces it every `BEAT` (`gateway.spark.run.health`),
so its age tells whether the job lives.  Whatever it holds, reading it raises nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sys import float_info
from typing import Any

from gateway.sdk.figures import Value

BEAT = 5.0
"""Seconds between two reports while nothing happens."""
SILENT = 6 * BEAT
"""A job that has said nothing for so long is taken for dead, in seconds."""

MOST_PATHS = 8
"""Paths without a column that are named; of more there is a count."""
_PATH = 60

_BATCH = ("at", "seconds", "rows", "files")


@dataclass(frozen=True, slots=True)
class Reported:
    """The job, as it last reported; times are seconds since the epoch."""

    words: Mapping[str, Any] = field(default_factory=dict)
    """The file."""

    @classmethod
    def read(cls, path: Path) -> Reported:
        """The report in a file; an empty one where there is none."""
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError):
            found = None
        return cls(found if isinstance(found, dict) else {})

    @property
    def state(self) -> str:
        """`starting`, `running`, `stopped` or `failed`; empty: it never reported."""
        return str(self.words.get("state") or "")

    def silent_seconds(self, now: float) -> float:
        """Time since the job said something.

        Where that is in the future the clock was set back, and nothing was said since.
        """
        silent = now - (self.number("at") or 0.0)
        return -silent if silent < -SILENT else max(0.0, silent)

    def up(self, silent: float) -> bool:
        """Whether it runs, or comes to that, having said nothing for *silent* seconds."""
        return silent < SILENT and self.state in ("starting", "running")

    def waiting_seconds(self, now: float) -> float:
        """Age of the oldest file that is in no table; 0 if there is none."""
        oldest = self.words.get("oldest_file")
        at = _number(oldest.get("at")) if isinstance(oldest, dict) else None
        return 0.0 if at is None else max(0.0, now - at)

    def committed(self, node: str) -> dict[str, int]:
        """The greatest lsn of each of the node's incarnations that is in a table."""
        return _numbers(self._mapping("committed_by").get(node))

    @property
    def batches(self) -> list[dict[str, float]]:
        """The last batches, the newest last: `at`, `seconds`, `rows`, `files`."""
        return [
            {name: float(one[name]) for name in _BATCH}
            for one in self._list("recent")
            if isinstance(one, dict)
            and all(_number(one.get(name)) is not None for name in _BATCH)
        ]

    @property
    def paths(self) -> list[str]:
        """Paths that many events of late have, and no column takes."""
        some = map(str, self._list("paths")[:MOST_PATHS])
        said = [one if len(one) <= _PATH else f"{one[:_PATH]}…" for one in some]
        more = self.number("more_paths")
        return [*said, f"{more:.0f} more"] if more else said

    def count(self, name: str) -> int:
        """The length of a list of the report."""
        return len(self._list(name))

    def number(self, name: str) -> float | None:
        """A number of the report; None: not known."""
        return _number(self.words.get(name))

    def of_job(self, now: float, silent: float) -> dict[str, Value]:
        """Values of section `spark`."""
        up = self.up(silent)
        return {
            "up": up,
            "starting": up and self.state == "starting",
            "last_batch_at": self.number("last_batch_at"),
            "last_batch_seconds": self.number("last_batch_seconds"),
            "rows": self.number("rows"),
            "misfits": self.number("misfits"),
            "waiting_seconds": round(self.waiting_seconds(now), 3),
            "failures": self.number("failures"),
            "holes": self.count("holes"),
            "clock_ahead_seconds": self.number("clock_ahead_seconds"),
            "expiry_failed": self.words.get("expiry_problem") is not None,
        }

    def of_tables(self) -> dict[str, Value]:
        """Values of section `lake` that only the job knows."""
        names = (
            *("complete_through", "complete_unknown_since", "days_taken_back"),
            *("expired_events", "deleted_events", "deletions_unfinished"),
        )
        days = _numbers(self.words.get("expired_days")) or None
        return {"expired_days": days, **{name: self.number(name) for name in names}}

    @property
    def held_by(self) -> tuple[str, str]:
        """The node that holds most of what keeps the tables from being complete, and why; ""
        if none does.
        """
        for one in self._list("held_by"):
            if isinstance(one, dict):
                return str(one.get("node")), str(one.get("why"))
        return "", ""

    def newest(self) -> dict[str, float]:
        """The greatest lsn of each node that is in a table, whichever incarnation gave it."""
        return {
            node: max(lives.values())
            for node in self._mapping("committed_by")
            if (lives := self.committed(node))
        }

    def _mapping(self, name: str) -> Mapping[str, Any]:
        found = self.words.get(name)
        return found if isinstance(found, dict) else {}

    def _list(self, name: str) -> list[Any]:
        found = self.words.get(name)
        return found if isinstance(found, list) else []


def _number(told: object) -> float | None:
    """The number that it is; None: it is none, or none that can be counted with."""
    if isinstance(told, (int, float)) and abs(told) <= float_info.max:
        return told
    return None


def _numbers(told: object) -> dict[str, Any]:
    """The numbers of a mapping, by their names."""
    found = told.items() if isinstance(told, dict) else ()
    return {name: one for name, one in found if _number(one) is not None}
