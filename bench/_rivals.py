"""What others do with the same elements: one stream, one connection, two processes.

    python bench/_rivals.py grpc --octets 128 --seconds 5
    python bench/_rivals.py rsocket --octets 128 --seconds 5

A server streams (gRPC: server streaming; RSocket: request-stream) as fast as its client
takes; nothing is kept.  Both are the Python packages of their projects, `grpcio` and
`rsocket`.  Prints JSON: elements/s, CPU of the receiving process per element.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

from _elements import elements

_METHOD = "/bench.Elements/Stream"
_TOP_UP = 4096


class Meter:
    """Counts from the end of the warm-up on."""

    def __init__(self, warm_up: float, seconds: float) -> None:
        self.count = 0
        self._seconds = seconds
        self._start = time.monotonic() + warm_up
        self._end = self._start + seconds
        self._first: int | None = None
        self._cpu = 0.0

    def seen(self) -> bool:
        """One element more; whether that is enough."""
        self.count += 1
        if self.count & 0xFF:
            return False
        now = time.monotonic()
        if self._first is None and now >= self._start:
            self._first, self._cpu, self._start = self.count, time.process_time(), now
        return now >= self._end

    def say(self) -> None:
        count = self.count - (self._first or 0)
        seconds = time.monotonic() - self._start
        print(
            json.dumps(
                {
                    "events_per_second": count / seconds,
                    "receiver_us": (time.process_time() - self._cpu) / count * 1e6,
                }
            ),
            flush=True,
        )


def _forever(octets: int) -> Iterator[bytes]:
    ring = elements(octets)
    while True:
        yield from ring


def serve_grpc(octets: int) -> None:
    import grpc

    def stream(request: bytes, context: Any) -> Iterator[bytes]:
        return _forever(octets)

    server = grpc.server(futures.ThreadPoolExecutor(2))
    handler = grpc.unary_stream_rpc_method_handler(stream)
    service, method = _METHOD[1:].split("/")
    handlers = grpc.method_handlers_generic_handler(service, {method: handler})
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


def read_grpc(port: int, meter: Meter) -> None:
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_stream(_METHOD)(b"")
        for _ in call:
            if meter.seen():
                break
        meter.say()
        call.cancel()


async def serve_rsocket(octets: int) -> None:
    from rsocket.payload import Payload
    from rsocket.request_handler import BaseRequestHandler
    from rsocket.rsocket_server import RSocketServer
    from rsocket.streams.stream_from_generator import StreamFromGenerator
    from rsocket.transports.tcp import TransportTCP

    def stream() -> Iterator[tuple[Any, bool]]:
        for element in _forever(octets):
            yield Payload(element), False

    class Handler(BaseRequestHandler):  # type: ignore[misc]
        async def request_stream(self, payload: Any) -> Any:
            return StreamFromGenerator(stream)  # type: ignore[arg-type]

    def session(*connection: Any) -> None:
        RSocketServer(TransportTCP(*connection), handler_factory=Handler)

    server = await asyncio.start_server(session, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def read_rsocket(port: int, meter: Meter, read_bytes: int) -> None:
    from reactivestreams.subscriber import Subscriber
    from rsocket.helpers import single_transport_provider
    from rsocket.payload import Payload
    from rsocket.rsocket_client import RSocketClient
    from rsocket.transports.tcp import TransportTCP

    done = asyncio.Event()

    class Sink(Subscriber):  # type: ignore[misc]
        def on_subscribe(self, subscription: Any) -> None:
            self.subscription = subscription

        def on_next(self, value: Any, is_complete: bool = False) -> None:
            if meter.seen():
                done.set()
            if meter.count % (_TOP_UP // 2) == 0:
                self.subscription.request(_TOP_UP // 2)

        def on_error(self, exception: Exception) -> None:
            done.set()

        def on_complete(self) -> None:
            done.set()

    connection = await asyncio.open_connection("127.0.0.1", port)
    transport = TransportTCP(*connection, read_buffer_size=read_bytes)
    client = await RSocketClient(single_transport_provider(transport)).connect()
    stream = client.request_stream(Payload(b"stream"))
    stream.initial_request_n(_TOP_UP).subscribe(Sink())
    await done.wait()
    meter.say()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rival", choices=("grpc", "rsocket"))
    parser.add_argument("--octets", type=int, default=128)
    parser.add_argument("--warm-up", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument(
        "--read-bytes", type=int, default=1024, help="of rsocket's transport"
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        if options.rival == "grpc":
            serve_grpc(options.octets)
        else:
            asyncio.run(serve_rsocket(options.octets))
        return 0
    words = [options.rival, "--serve", "--octets", str(options.octets)]
    server = subprocess.Popen(
        [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        meter = Meter(options.warm_up, options.seconds)
        if options.rival == "grpc":
            read_grpc(port, meter)
        else:
            asyncio.run(read_rsocket(port, meter, options.read_bytes))
    finally:
        server.kill()
        server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
