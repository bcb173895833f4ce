"""Words of a table's commits beside their rows: the ledgers of the jobs that write it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def numbered(folder: Path, form: re.Pattern[str]) -> list[Path]:
    """The files there whose names fit, the one with the highest number first."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    found = [(int(match[1]), name) for name in names if (match := form.fullmatch(name))]
    return [folder / name for _, name in sorted(found, reverse=True)]


def of_each(told: Mapping[str, str], key: str) -> Iterator[str]:
    """The values that `sink.json` has under *key*, for `events` and for each table by rule."""
    for name, one in told.items():
        if name.partition(":")[0] == key:
            yield one


def ledgers_in(words: Any) -> list[dict[str, Any]]:
    """The ledgers in the words of a commit, if they are a job's.

    Its own, and in `others` those that maintenance has carried on for other jobs of the table.
    """
    if not isinstance(words, str) or '"committed"' not in words:
        return []
    try:
        found = json.loads(words)
    except ValueError:
        return []  # somebody else's
    if not isinstance(found, dict):
        return []
    others = found.pop("others", ())
    return [
        one
        for one in (found, *others)
        if isinstance(one, dict) and isinstance(one.get("committed"), dict)
    ]
