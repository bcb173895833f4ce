"""What the made-up events of all protocols have in common: a seed, ids and timestamps."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count

__all__ = ["identified", "timestamp"]


def identified(seed: int) -> tuple[random.Random, Iterator[str]]:
    """A source of randomness, and ids without end; both follow from *seed*.

    An id is `RUN-NUMBER`: 12 hexadecimal digits that differ from seed to seed, and
    12 decimal digits that count from 1.
    """
    chance = random.Random(seed)  # noqa: S311 - varied, not secret
    run = f"{chance.getrandbits(48):012x}"
    return chance, (f"{run}-{number:012d}" for number in count(1))


def timestamp() -> str:
    """Now, in UTC, as Beats write it: `2026-11-21T08:00:00.000Z`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")[:23] + "Z"
