"""Made-up moves of a game's players, ~85 bytes each, no two alike."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.sdk.source import identified

_PLAYERS = 50


def moves(seed: int) -> Iterator[tuple[str, bytes]]:
    """Ids, unique for this seed, and the events that carry them, without end."""
    chance, ids = identified(seed)
    for identity in ids:
        x, y = chance.randrange(1000), chance.randrange(1000)
        player, points = chance.randrange(_PLAYERS), chance.randrange(10)
        yield (
            identity,
            f'{{"event":{{"id":"{identity}"}},"player":"p{player}","x":{x},"y":{y},'
            f'"points":{points}}}'.encode(),
        )
