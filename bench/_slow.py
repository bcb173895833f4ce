"""A server on this machine that answers as late as one elsewhere: a proxy of HTTP that lets
each request wait, by its kind, and counts them.

It reads no more of HTTP than where a request begins: behind an answer, as clients of object
storage send one after the other on a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping

__all__ = ["DOLLARS", "SlowServer", "kinds", "slow"]

#: What AWS asks for a thousand of each, in us-east-1.
DOLLARS = {"GET": 0.0004, "PUT": 0.005, "DELETE": 0.0, "LIST": 0.005}
_CHUNK = 1 << 16


def kinds(text: str) -> dict[str, float]:
    """Seconds by kind, of milliseconds for GET, PUT (and COPY), DELETE and LIST."""
    numbers = [float(one) / 1e3 for one in text.split(",")]
    return dict(zip(DOLLARS, numbers, strict=True))


class SlowServer:
    """The proxy: *address* is where it listens, *counts* has the requests that came."""

    def __init__(self, port: int, seconds: Mapping[str, float]) -> None:
        self._port, self._seconds = port, seconds
        self.counts: Counter[str] = Counter()
        self.address = ""

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await stop.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
            answered = asyncio.Event()
            answered.set()

            async def answer() -> None:
                with contextlib.suppress(OSError):
                    while data := await there.read(_CHUNK):
                        answered.set()
                        writer.write(data)
                        await writer.drain()
                writer.close()

            task = asyncio.create_task(answer())
            while data := await reader.read(_CHUNK):
                if answered.is_set():
                    answered.clear()
                    kind = _kind(data)
                    self.counts[kind] += 1
                    await asyncio.sleep(self._seconds[kind])
                back.write(data)
                await back.drain()
            back.close()
            await task


def _kind(head: bytes) -> str:
    line = head.partition(b"\r\n")[0]
    method, _, rest = line.partition(b" ")
    if method == b"GET" and b"list-type=" in rest:
        return "LIST"
    found = method.decode("ascii", "replace")
    return found if found in DOLLARS else "GET"


@contextlib.contextmanager
def slow(port: int, seconds: Mapping[str, float]) -> Iterator[SlowServer]:
    """One before the server at *port*, in a thread."""
    proxy, ready = SlowServer(port, seconds), threading.Event()
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(proxy.serve(ready, stop)), daemon=True
    )
    thread.start()
    ready.wait()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)
