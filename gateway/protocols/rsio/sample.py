"""Made-up readings of electricity meters, ~125 bytes each, no two alike."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.sdk.source import identified, timestamp

_METERS = 60


def meters(seed: int) -> Iterator[tuple[str, bytes]]:
    """Ids, unique for this seed, and the events that carry them, without end."""
    chance, ids = identified(seed)
    counted = [chance.uniform(0, 9999) for _ in range(_METERS)]
    for identity in ids:
        meter, watts = chance.randrange(_METERS), chance.randrange(50, 9000)
        counted[meter] += watts / 3.6e6
        yield (
            identity,
            f'{{"@timestamp":"{timestamp()}","event":{{"id":"{identity}"}},'
            f'"meter":"m{meter:02d}","W":{watts},"kWh":{counted[meter]:.6f}}}'.encode(),
        )
