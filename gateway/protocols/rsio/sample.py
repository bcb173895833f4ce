"""What electricity meters might say: no two alike, ~140 bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

__all__ = ["meters"]

_METERS = 60


def meters(seed: int) -> Iterator[tuple[str, bytes]]:
    """Identifiers, unique for this seed, and the events that carry them, for ever."""
    chance = random.Random(seed)  # noqa: S311 - varied, not secret
    run = f"{chance.getrandbits(48):012x}"
    counted = [chance.uniform(0, 9999) for _ in range(_METERS)]
    number = 0
    while True:
        number += 1
        identity = f"{run}-{number:012d}"
        meter, watts = chance.randrange(_METERS), chance.randrange(50, 9000)
        counted[meter] += watts / 3.6e6
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds")[:23]
        yield (
            identity,
            f'{{"@timestamp":"{stamp}Z","event":{{"id":"{identity}"}},'
            f'"meter":"m{meter:02d}","W":{watts},"kWh":{counted[meter]:.6f}}}'.encode(),
        )
