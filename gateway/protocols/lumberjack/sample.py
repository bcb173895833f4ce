"""Events like those that Filebeat makes of an access log: no two alike, ~530 bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

__all__ = ["access_log"]

_EVENT = (
    '{{"@timestamp":"{stamp}Z","@metadata":{{"beat":"filebeat","type":"_doc",'
    '"version":"8.13.4"}},"event":{{"id":"{id}"}},"message":"{ip} - - '
    '\\"{verb} /{path}/{word}?q={query} HTTP/1.1\\" {status} {size} \\"{agent}\\"",'
    '"log":{{"offset":{offset},"file":{{"path":"/var/log/nginx/{path}.log"}}}},'
    '"input":{{"type":"log"}},"ecs":{{"version":"8.0.0"}},'
    '"host":{{"name":"web-{host:02d}.example"}},'
    '"agent":{{"id":"{beat}","name":"web-{host:02d}","type":"filebeat",'
    '"version":"8.13.4"}}}}'
)
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/126.0",
    "curl/8.5.0",
    "kube-probe/1.29",
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-"


def access_log(seed: int) -> Iterator[tuple[str, bytes]]:
    """Identifiers, unique for this seed, and the events that carry them, for ever."""
    chance = random.Random(seed)  # noqa: S311 - varied, not secret
    words = ["".join(chance.choices(_LETTERS, k=3 + n % 8)) for n in range(2000)]
    run = f"{chance.getrandbits(48):012x}"
    offset = number = 0
    while True:
        number += 1
        identity = f"{run}-{number:012d}"
        path, word, query, agent = chance.choices(words, k=4)
        offset += 180 + len(path)
        event = _EVENT.format(
            stamp=datetime.now(UTC).isoformat(timespec="milliseconds")[:23],
            id=identity,
            ip=".".join(map(str, chance.getrandbits(32).to_bytes(4))),
            verb="POST" if number % 5 == 0 else "GET",
            path=path,
            word=word,
            query=query,
            status=404 if number % 17 == 0 else 200,
            size=chance.getrandbits(17),
            agent=f"{_AGENTS[number % len(_AGENTS)]} {agent}",
            offset=offset,
            host=number % 30,
            beat=run,
        )
        yield identity, event.encode()
