"""What an idle connection costs the gateway in memory.

Opens 10 000 connections that say nothing (claim: ≤ 25 KiB each), then lets each
send one small window and go quiet again, and compares both with a bare Twisted
server that does nothing at all.  Resident memory only: the kernel's socket buffers
are not in it, for either.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path

from _daemon import Gateway, listener, most_files, usage
from _machine import machine
from _report import Broken, Claim, Report, arguments, main, workplace
from _windows import build

_SETTLE_SECONDS = 3.0


def connect(address: str, count: int) -> list[socket.socket]:
    """Open slowly enough for any accept queue."""
    host, _, port = address.rpartition(":")
    socks = []
    for at in range(count):
        socks.append(socket.create_connection((host, int(port)), timeout=30))
        if at % 20 == 19:
            time.sleep(0.01)
    return socks


def speak(socks: list[socket.socket]) -> None:
    """One window of 50 events on each, acknowledged before the next one speaks."""
    frames = build(64, 50, 3, seed=11).frames
    for at, sock in enumerate(socks):
        sock.sendall(frames[at % len(frames)])
        answer = b""
        while len(answer) < 6:
            got = sock.recv(6 - len(answer))
            if not got:
                raise Broken("the gateway closed an idle connection")
            answer += got
            if answer == b"2A\0\0\0\0":
                answer = b""


def serve_bare() -> None:
    """The floor: Twisted's own cost of a connection."""
    from twisted.internet import reactor
    from twisted.internet.endpoints import TCP4ServerEndpoint
    from twisted.internet.protocol import Factory, Protocol

    endpoint = TCP4ServerEndpoint(reactor, 0, backlog=512, interface="127.0.0.1")
    listening = endpoint.listen(Factory.forProtocol(Protocol))
    listening.addCallback(lambda port: print(port.getHost().port, flush=True))
    reactor.run()


def bare(count: int) -> float:
    """Bytes per connection of the floor."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve-bare"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        address = f"127.0.0.1:{int(process.stdout.readline())}"
        time.sleep(1)
        before = usage(process.pid).rss
        with contextlib.ExitStack() as stack:
            for sock in connect(address, count):
                stack.enter_context(sock)
            time.sleep(_SETTLE_SECONDS)
            return (usage(process.pid).rss - before) / count
    finally:
        process.terminate()
        process.wait()


def measure(home: Path, options: argparse.Namespace) -> dict[str, float]:
    count = options.connections
    limits = {"connections": count + 100, "connections_per_peer": count + 100}
    made = listener("beats", "lumberjack", limits={**limits, "idle": "1h"})
    with Gateway(home, {"listeners": [made]}) as gateway:
        address = gateway.address()
        for sock in connect(address, 50):  # whatever the first ones import
            speak([sock])
            sock.close()
        gateway.wait_published()
        time.sleep(_SETTLE_SECONDS)
        before = gateway.usage().rss
        socks = connect(address, count)
        time.sleep(_SETTLE_SECONDS)
        seen = gateway.listener("beats")
        if seen["connections"] < count:
            raise Broken(
                f"the gateway has {seen['connections']} of {count} connections"
            )
        silent = gateway.usage()
        speak(socks)
        gateway.wait_published()
        time.sleep(_SETTLE_SECONDS)
        spoken = gateway.usage()
        cpu_before = gateway.usage()
        time.sleep(10)
        idle_cores, _ = gateway.usage().since(cpu_before)
        for sock in socks:
            sock.close()
    return {
        "before": before,
        "silent": (silent.rss - before) / count,
        "spoken": (spoken.rss - before) / count,
        "idle_cores": idle_cores,
    }


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--serve-bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    most = most_files()
    if options.serve_bare:
        serve_bare()
        return 0
    if most < options.connections + 500:
        parser.error(f"{options.connections} connections, but at most {most} files")
    with workplace(options) as home:
        report = Report("idle connections", machine(home))
        floor = bare(options.connections)
        found = measure(home, options)
    report.add("connections", options.connections)
    report.add("gateway before", found["before"] / 2**20, "MiB")
    report.add("bare Twisted", floor / 1024, "KiB each")
    report.add("never spoke", found["silent"] / 1024, "KiB each")
    report.add("idle after one window", found["spoken"] / 1024, "KiB each")
    report.add("never spoke ÷ bare Twisted", found["silent"] / floor, "x")
    report.add("CPU while all are idle", found["idle_cores"] * 100, "% of a core")
    for what in ("silent", "spoken"):
        words = "never spoke" if what == "silent" else "idle after one window"
        claim = f"memory of a connection that is {words}".replace("is never", "never")
        report.claims.append(Claim(claim, found[what] / 1024, "KiB", 25))
    report.raw.update(found, bare=floor)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
