"""What players of a game might send: no two alike, ~110 bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator

__all__ = ["moves"]

_PLAYERS = 50


def moves(seed: int) -> Iterator[tuple[str, bytes]]:
    """Identifiers, unique for this seed, and the events that carry them, for ever."""
    chance = random.Random(seed)  # noqa: S311 - varied, not secret
    run = f"{chance.getrandbits(48):012x}"
    number = 0
    while True:
        number += 1
        identity = f"{run}-{number:012d}"
        x, y = chance.randrange(1000), chance.randrange(1000)
        player, points = chance.randrange(_PLAYERS), chance.randrange(10)
        yield (
            identity,
            f'{{"event":{{"id":"{identity}"}},"player":"p{player}","x":{x},"y":{y},'
            f'"points":{points}}}'.encode(),
        )
