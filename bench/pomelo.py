"""Pomelo through one gateway process: requests, notifies, idle clients, a push.

    python bench/pomelo.py                    all cases
    python bench/pomelo.py --case tcp,crowd   some

tcp      requests with 64 B of JSON, 100 connections, 10 in flight on each
web      the same over WebSocket
depth1   like tcp, one in flight
notify   notifies, 100 connections; rate and CPU are those of events made durable
crowd    10 000 connections with heartbeats every 3 s, then one push to all

fsync is on and Parquet is written meanwhile.  The generator is this process, on the
same machine; CPU is that of all threads of the gateway, user and system, from the
first event until the last one is in Parquet, ÷ events.  All messages are alike, which
flatters whatever caches or compresses them.  Memory is the growth of the resident set:
what the process had free before does not show.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import socket
import struct
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from _daemon import Consumer, Gateway, Usage
from _machine import machine
from _report import Broken, Claim, Report, arguments, main, workplace

CASES = ("tcp", "web", "depth1", "notify", "crowd")
_ROUTE = b"area.player.move"
_BODY = b'{"x":12,"text":"%s"}' % (b"a" * 46)
_UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_SETTLE_SECONDS = 3.0
_ANSWER_BYTES = 18  # package head, flag, id below 128, {"code":200}


def package(kind: int, body: bytes = b"") -> bytes:
    return struct.pack(">I", kind << 24 | len(body)) + body


_SYS = {"type": "js-websocket", "version": "0.0.1", "rsa": {}}
_HELLO = package(1, json.dumps({"sys": _SYS, "user": {}}).encode())
_TAIL = bytes([len(_ROUTE)]) + _ROUTE + _BODY
_REQUEST = package(4, b"\x00\x05" + _TAIL)
_NOTIFY = package(4, b"\x02" + _TAIL)


def framed(data: bytes) -> bytes:
    """As a WebSocket client sends it; masked with zeros."""
    size = len(data)
    head = struct.pack(">BB", 0x82, 0x80 | size) if size < 126 else b""
    return (head or struct.pack(">BBH", 0x82, 0xFE, size)) + bytes(4) + data


def greeted(address: str, *, web: bool = False) -> socket.socket:
    """A connection that is ready for messages."""
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wrap = framed if web else bytes
    if web:
        sock.sendall(_UPGRADE)
        _until(sock, b"\r\n\r\n")
    sock.sendall(wrap(_HELLO))
    _until(sock, b"}}")
    sock.sendall(wrap(package(2)))
    return sock


def _until(sock: socket.socket, end: bytes) -> None:
    heard = b""
    while not heard.endswith(end):
        data = sock.recv(65536)
        if not data:
            raise Broken(f"the gateway hung up: {heard[-200:]!r}")
        heard += data


@contextlib.contextmanager
def clients(address: str, count: int, *, web: bool) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(greeted(address, web=web)) for _ in range(count)]


@dataclass
class Run:
    rate: float
    us: float


def requests(gateway: Gateway, seconds: float, *, depth: int, web: bool) -> Run:
    """As many as are answered."""
    one, size = _REQUEST, _ANSWER_BYTES
    if web:
        one, size = framed(one), size + 2
    with clients(gateway.address("game"), 100, web=web) as socks:
        poll = select.epoll()
        by_number = {sock.fileno(): sock for sock in socks}
        heard = dict.fromkeys(by_number, 0)
        for sock in socks:
            poll.register(sock, select.EPOLLIN)
            sock.sendall(one * depth)

        def answered(until: float) -> int:
            total = 0
            while time.monotonic() < until:
                for number, _ in poll.poll(0.1):
                    data = by_number[number].recv(65536)
                    if not data:
                        raise Broken("the gateway hung up")
                    count, heard[number] = divmod(heard[number] + len(data), size)
                    by_number[number].sendall(one * count)
                    total += count
            return total

        before, first = gateway.usage(), gateway.lsns()[0]
        count = answered(time.monotonic() + seconds)
        took = time.monotonic() - before.at
        poll.close()
    return whole(gateway, before, first, count, took)


def notifies(gateway: Gateway, seconds: float) -> Run:
    """As many as the gateway reads."""
    many = _NOTIFY * 200
    with clients(gateway.address("game"), 100, web=False) as socks:
        before, first = gateway.usage(), gateway.lsns()[0]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for sock in socks:
                sock.sendall(many)
        took, count = time.monotonic() - before.at, gateway.lsns()[0] - first
    return whole(gateway, before, first, count, took)


def whole(gateway: Gateway, before: Usage, first: int, count: int, took: float) -> Run:
    """The rate while it lasted, the CPU until all is in Parquet."""
    gateway.wait_published()
    stored = gateway.lsns()[0] - first
    if stored < count:
        raise Broken(f"{count} were answered, and {stored} are stored")
    return Run(count / took, (gateway.usage().cpu - before.cpu) / stored * 1e6)


def crowd(gateway: Gateway, count: int, seconds: float, report: Report) -> None:
    """Connect, beat, push."""
    address = gateway.address("game")
    for sock in [greeted(address) for _ in range(50)]:  # whatever the first ones import
        sock.close()
    time.sleep(_SETTLE_SECONDS)
    before = gateway.usage()
    with clients(address, count, web=False) as socks:
        connected = gateway.usage()
        rate = count / (connected.at - before.at)
        beats(socks, seconds / 2)
        quiet = gateway.usage()
        beats(socks, seconds)
        after = gateway.usage()
        took = push(gateway, socks)
    report.add("gateway before the crowd", before.rss / 2**20, "MiB")
    report.add("gateway with the crowd", after.rss / 2**20, "MiB")
    report.claims += [
        Claim("connect and handshake", rate, "/s", 1500, at_least=True),
        Claim("memory of a connection", (after.rss - before.rss) / count / 1024, "KiB", 25),
        Claim("CPU of the heartbeats", after.since(quiet)[0] * 100, "%", 25),
        Claim("one push to all, in the hands of the last", took, "s", 0.5),
    ]  # fmt: skip


def beats(socks: list[socket.socket], seconds: float) -> None:
    """A heartbeat of each within 3 s, evenly."""
    end, beat = time.monotonic() + seconds, package(3)
    while time.monotonic() < end:
        begin = time.monotonic()
        for at, sock in enumerate(socks):
            sock.sendall(beat)
            sock.recv(65536)  # there is at least the first heartbeat
            if at % 100 == 99:
                due = begin + 2.8 * at / len(socks)
                time.sleep(max(0.0, due - time.monotonic()))


def push(gateway: Gateway, socks: list[socket.socket]) -> float:
    """Seconds from the request to the last client's reading of it."""
    body = {"route": "bench.push", "body": {"n": 1}, "to": {"all": {}}}
    request = urllib.request.Request(
        f"http://127.0.0.1:{gateway.admin_port}/api/push",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    begin = time.monotonic()
    with urllib.request.urlopen(request, timeout=30) as answer:
        told = json.load(answer)
    if told["sent"] != len(socks):
        raise Broken(f"pushed to {told} of {len(socks)}")
    for sock in socks:
        heard = b""
        while b"bench.push" not in heard:
            heard += sock.recv(65536)
    return time.monotonic() - begin


def started(home: Path, heartbeat: str) -> Gateway:
    limits = {"connections": 12_000, "connections_per_peer": 12_000, "idle": "1h"}
    game = {
        "name": "game",
        "protocol": "pomelo",
        "listen": "tcp:127.0.0.1:0",
        "websocket": {"path": "/"},
        "limits": limits,
        "options": {"heartbeat": heartbeat},
    }
    return Gateway(home, {"listeners": [game]})


_LIMITS = {  # events a second, CPU in microseconds
    "tcp": (30_000, 30),
    "web": (None, 45),
    "depth1": (15_000, None),
    "notify": (80_000, 12),
}


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--seconds", type=float, default=6.0, help="of each case")
    parser.add_argument("--connections", type=int, default=10_000, help="of crowd")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with workplace(options) as home:
        report = Report("Pomelo", machine(home))
        for case in options.case.split(","):
            heartbeat = "3s" if case == "crowd" else "0s"
            with started(home / case, heartbeat) as gateway:
                consumer = Consumer(gateway)
                consumer.start()
                if case == "crowd":
                    crowd(gateway, options.connections, options.seconds, report)
                    run = None
                elif case == "notify":
                    run = notifies(gateway, options.seconds)
                else:
                    depth = 1 if case == "depth1" else 10
                    web = case == "web"
                    run = requests(gateway, options.seconds, depth=depth, web=web)
                consumer.stop()
            if run is not None:
                judge(report, case, run)
    report.add("load average", os.getloadavg()[0])
    return report.finish(as_json=options.json)


def judge(report: Report, case: str, run: Run) -> None:
    rate, us = _LIMITS[case]
    report.add(f"{case}: rate", run.rate, "/s")
    report.add(f"{case}: CPU", run.us, "µs each")
    if rate is not None:
        claim = Claim(f"{case}: events a second", run.rate, "/s", rate, at_least=True)
        report.claims.append(claim)
    if us is not None:
        report.claims.append(Claim(f"{case}: CPU of one", run.us, "µs", us))


if __name__ == "__main__":
    main(bench)
