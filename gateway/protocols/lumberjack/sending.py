"""`gateway send lumberjack`: as a Beats shipper."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from gateway.protocols.lumberjack.client import Client
from gateway.protocols.lumberjack.writer import Writer
from gateway.sdk.command import endpoint, websocket
from gateway.sdk.sending import Feeding
from gateway.sdk.source import identified, timestamp


class Sending(Feeding):
    def __init__(self, args: Namespace) -> None:
        # One lot more than may be in flight, so that no window waits for us.
        super().__init__(args, access_log, size=args.window, lots=args.pipelining + 1)

    def client(self) -> Client:
        args = self.args
        writer = Writer(
            v1=args.v1,
            window=args.window,
            pipelining=args.pipelining,
            compression=args.compression,
        )
        return Client(
            endpoint(self.reactor, args),
            clock=self.reactor,
            sets_aside=True,
            writer=writer,
            websocket=websocket(args),
        )


_EVENT = (
    '{{"@timestamp":"{stamp}","@metadata":{{"beat":"filebeat","type":"_doc",'
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
    """Ids, unique for this seed, and the events that carry them, without end."""
    chance, ids = identified(seed)
    words = ["".join(chance.choices(_LETTERS, k=3 + n % 8)) for n in range(2000)]
    offset = 0
    for number, identity in enumerate(ids, 1):
        path, word, query, agent = chance.choices(words, k=4)
        offset += 180 + len(path)
        event = _EVENT.format(
            stamp=timestamp(),
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
            beat=identity.partition("-")[0],
        )
        yield identity, event.encode()
