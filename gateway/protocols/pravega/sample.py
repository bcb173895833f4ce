"""What sensors of a plant might say: no two alike, ~130 bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

__all__ = ["readings"]

_SENSORS = 40


def readings(seed: int) -> Iterator[tuple[str, bytes]]:
    """Identifiers, unique for this seed, and the events that carry them, for ever."""
    chance = random.Random(seed)  # noqa: S311 - varied, not secret
    run = f"{chance.getrandbits(48):012x}"
    warmth = [chance.uniform(15, 80) for _ in range(_SENSORS)]
    number = 0
    while True:
        number += 1
        identity = f"{run}-{number:012d}"
        sensor = chance.randrange(_SENSORS)
        warmth[sensor] += chance.gauss(0, 0.2)
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds")[:23]
        yield (
            identity,
            f'{{"@timestamp":"{stamp}Z","event":{{"id":"{identity}"}},'
            f'"sensor":"t{sensor:02d}","celsius":{warmth[sensor]:.2f}}}'.encode(),
        )
