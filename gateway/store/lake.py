"""The files beside the tables that others than the Spark job read, too.

lake/.gateway/events.json    the job's ledger: what is in the tables, and what not
lake/.gateway/sink.json      whose tables they are, unless they are folders of Parquet
lake/.gateway/health.json    what the job knows of itself, replaced every `BEAT`
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "BEAT",
    "INTERNAL",
    "KnownHole",
    "committed",
    "health_path",
    "known_holes",
    "sink_of",
]

#: The folder of the lake that belongs to the job; readers of tables pass it over.
INTERNAL = ".gateway"

#: Seconds between two words of the job's health while nothing happens.
BEAT = 5.0


@dataclass(frozen=True, slots=True)
class KnownHole:
    """Events that are in no table because their spool file could not be read."""

    node: str
    first: int
    last: int
    file: str
    """The spool file's name; it lies in `poison/`."""
    why: str


def health_path(lake: Path) -> Path:
    """Where a lake's job reports."""
    return lake / INTERNAL / "health.json"


def known_holes(lake: Path) -> list[KnownHole]:
    """What the job has moved aside and written down; nothing without a ledger.

    Raises OSError, and ValueError for a ledger that is damaged.
    """
    try:
        return [
            KnownHole(
                *(hole[name] for name in ("node", "first", "last", "file", "why"))
            )
            for hole in _ledger(lake).get("holes", ())
        ]
    except (KeyError, TypeError, AttributeError) as why:
        raise ValueError(f"no ledger: {why!r}") from None


def committed(lake: Path) -> dict[str, list[tuple[int, int]]]:
    """The lsns that the job has committed to the tables, by node; likewise."""
    try:
        return {
            node: [(int(first), int(last)) for first, last in spans]
            for node, spans in _ledger(lake).get("committed", {}).items()
        }
    except (TypeError, AttributeError) as why:
        raise ValueError(f"no ledger: {why!r}") from None


def sink_of(lake: Path) -> dict[str, str] | None:
    """The sink whose tables these are, by `spark.sink`; None before there are any.

    Beside `sink` there may be `table` and `metadata`: its name or place, and the file
    that describes it.  Raises OSError, and ValueError for a file that is damaged.
    """
    try:
        found = json.loads((lake / INTERNAL / "sink.json").read_bytes())
    except FileNotFoundError:
        written = (lake / INTERNAL / "events.json").exists()
        return {"sink": "parquet"} if written else None
    if not isinstance(found, dict) or not isinstance(found.get("sink"), str):
        raise ValueError("sink.json: not the job's")  # noqa: TRY004 - as the others
    return found


def _ledger(lake: Path) -> Any:
    try:
        return json.loads((lake / INTERNAL / "events.json").read_bytes())
    except FileNotFoundError:
        return {}
