"""What an idle connection costs the gateway in memory.

Opens 10 000 connections that say nothing (claim: ≤ 25 KiB each), then lets each
send one small window and go quiet again, and compares both with a bare Twisted
server that does nothing at all; then 1 500 over TLS 1.3, and 1 500 with client
certificates (claim: ≤ 45 KiB each).  Resident memory only: the kernel's socket
buffers are not in it, for either.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

from _daemon import Gateway, listener, most_files, usage
from _machine import machine
from _report import Broken, Claim, Report, arguments, main, workplace
from _windows import build

from gateway_testkit.certificates import Authority

_SETTLE_SECONDS = 3.0


def connect(
    address: str, count: int, tls: ssl.SSLContext | None = None
) -> list[socket.socket]:
    """Open slowly enough for any accept queue."""
    host, _, port = address.rpartition(":")
    socks = []
    for at in range(count):
        sock = socket.create_connection((host, int(port)), timeout=30)
        if tls is not None:
            sock = tls.wrap_socket(sock, server_hostname="localhost")
        socks.append(sock)
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


def measure(
    home: Path, count: int, tls: ssl.SSLContext | None = None, **section: str
) -> dict[str, float]:
    """Of connections by *tls*, as a client has it, to a listener with that `tls`."""
    limits = {"connections": count + 100, "connections_per_peer": count + 100}
    made = listener("beats", "lumberjack", limits={**limits, "idle": "1h"})
    if section:
        made["tls"] = section
    with Gateway(home, {"listeners": [made]}) as gateway:
        address = gateway.address()
        for sock in connect(address, 50, tls):  # whatever the first ones import
            speak([sock])
            sock.close()
        gateway.wait_published()
        time.sleep(_SETTLE_SECONDS)
        before = gateway.usage().rss
        socks = connect(address, count, tls)
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


def measure_tls(home: Path, count: int) -> dict[str, dict[str, float]]:
    """The same over TLS, and with certificates of clients."""
    authority = Authority(home)
    server, client = authority.issue("server"), authority.issue("client")
    section = {"certificate": str(server.certificate), "private_key": str(server.key)}
    context = ssl.create_default_context(cafile=str(authority.ca))
    found = {"tls": measure(home / "tls", count, context, **section)}
    context.load_cert_chain(*client)
    section |= {"client_auth": "required", "client_ca": str(authority.ca)}
    return found | {"mtls": measure(home / "mtls", count, context, **section)}


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--tls-connections", type=int, default=1500)
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
        found = measure(home / "plain", options.connections)
        by_tls = measure_tls(home, options.tls_connections)
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
    for how, one in by_tls.items():
        report.add(f"{how}: never spoke", one["silent"] / 1024, "KiB each")
        report.add(f"{how}: idle after one window", one["spoken"] / 1024, "KiB each")
        claim = f"memory of a connection by {how} that is idle after one window"
        report.claims.append(Claim(claim, one["spoken"] / 1024, "KiB", 45))
    report.raw.update(found, bare=floor, **by_tls)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
