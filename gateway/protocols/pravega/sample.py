"""Made-up events for `gateway send pravega`: sensor readings of ~115 bytes in JSON."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.sdk.source import identified, timestamp

_SENSORS = 40


def readings(seed: int) -> Iterator[tuple[str, bytes]]:
    """Ids, unique for this seed, and the events that carry them, without end."""
    chance, ids = identified(seed)
    warmth = [chance.uniform(15, 80) for _ in range(_SENSORS)]
    for identity in ids:
        sensor = chance.randrange(_SENSORS)
        warmth[sensor] += chance.gauss(0, 0.2)
        yield (
            identity,
            f'{{"@timestamp":"{timestamp()}","event":{{"id":"{identity}"}},'
            f'"sensor":"t{sensor:02d}","celsius":{warmth[sensor]:.2f}}}'.encode(),
        )
