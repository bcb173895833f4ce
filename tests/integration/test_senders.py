"""`gateway send` and `gateway rsio-check` against a daemon as users start it."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

import warm
from daemons import listener, tls
from deadlines import eventually, finish

REACTIVE = listener(
    "reactive", "rsio", options={"check_publishers": True, "window": 64}
)
CHECKED = listener(
    "checked",
    "rsio",
    limits={"handshake": "3s"},
    options={
        "check_publishers": True,
        "subscribe": ["events", "more"],
        "publish": ["events"],
        "window": 128,
        "hello_timeout": "3s",
    },
)
LISTENERS = [
    listener("streams", "pravega"),
    REACTIVE,
    listener(
        "reactive-web",
        "rsio",
        websocket={"path": "/rsio"},
        options={"check_publishers": True},
    ),
]
SENDERS = {
    "seed": ("streams", "pravega", "--dialect", "seed"),
    "v17": ("streams", "pravega", "--dialect", "v17"),
    "rsio": ("reactive", "rsio"),
    "packed": ("reactive", "rsio", "--packed", "192"),
    "web": ("reactive-web", "rsio", "--websocket", "/rsio"),
    "http2": ("reactive", "rsio", "--http2", "/rsio"),
}


def _address(daemon: Any, name: str) -> str:
    host, port = daemon.address(name)
    return f"{host}:{port}"


def test_exactly_once_through_a_kill(prepare, free_port, tmp_path, gateway_command):
    """The daemon is killed while all send; every event is there, and once."""
    listeners = [
        {**each, "listen": f"tcp:127.0.0.1:{free_port()}"} for each in LISTENERS
    ]
    daemon = prepare(listeners=listeners).start()
    running = []
    for name, (where, *words) in SENDERS.items():
        command = [
            sys.executable, "-m", "gateway.cli", "send", words[0],
            _address(daemon, where), *words[1:], "--generate", "8000",
            "--rate", "4000", "--connections", "2", "--patience", "100000", "--json",
            "--acked", str(tmp_path / f"{name}.acked"),
        ]  # fmt: skip
        running.append(warm.start(command, stdout=subprocess.PIPE, text=True))
    try:
        eventually(
            lambda: daemon.status()["journal"]["durable_lsn"] > 9000, "they send"
        )
        daemon.restart()
        totals = [json.loads(finish(each)[0]) for each in running]
    finally:
        for each in running:
            each.kill()
            each.wait()
    assert all(one["complete"] for one in totals)
    assert sum(one["connections"] for one in totals) > 2 * len(SENDERS)
    daemon.terminate()
    audit = gateway_command(
        "audit", "--config", daemon.config, "--json",
        "--acknowledged", *sorted(tmp_path.glob("*.acked")),
    )  # fmt: skip
    assert audit.returncode == 0, audit.stdout + audit.stderr
    rows = daemon.rows()
    assert len(rows) == 8000 * len(SENDERS)


#: Carries standard input and output to a port, as `ssh` and `socat` do: so many bytes at a
#: time, and closes its output when so many came.
RELAY = """
import os, socket, sys, threading
host, port, piece, most = sys.argv[1], *map(int, sys.argv[2:])
peer = socket.create_connection((host, port))
def back():
    came = 0
    while came < most and (data := peer.recv(piece)):
        came += len(data)
        os.write(1, data)
    os.close(1)
threading.Thread(target=back).start()
try:
    while data := os.read(0, piece):
        peer.sendall(data)
    peer.shutdown(socket.SHUT_WR)
except OSError:
    pass  # the gateway is gone first
"""
PLENTY = 1 << 40


def test_over_pipes(prepare, tmp_path, gateway_command):
    """A sender whose connection is its standard input and output, joined to the gateway
    by another process: however slow that is, all arrives; when the way back ends, or the
    process, the sender ends by itself and says why; when the sender is killed, the other
    two ends hear of it.  What was acknowledged is there, once.
    """
    daemon = prepare(listeners=[REACTIVE]).start()

    def joined(name: str, most: int, *words: str, piece: int = 1 << 16) -> Any:
        down, up = os.pipe(), os.pipe()
        send = warm.start(
            [sys.executable, "-m", "gateway.cli", "send", "rsio", "--stdio", "--json",
             "--acked", str(tmp_path / f"{name}.acked"), *words],
            stdin=down[0], stdout=up[1], stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        where = (*daemon.address("reactive"), piece, most)
        relay = subprocess.Popen(
            [sys.executable, "-c", RELAY, *map(str, where)], stdin=up[0], stdout=down[1]
        )
        for descriptor in (*down, *up):
            os.close(descriptor)
        running.extend((send, relay))
        return send, relay

    def open_connections() -> int:
        [found] = [
            one for one in daemon.status()["listeners"] if one["name"] == "reactive"
        ]
        return int(found["connections"])

    def acknowledged(name: str) -> bool:
        path = tmp_path / f"{name}.acked"
        return path.exists() and path.stat().st_size > 0

    running: list[subprocess.Popen[Any]] = []
    endless = ("--generate", "100000000", "--rate", "2000")
    try:
        send, relay = joined("slow", PLENTY, "--generate", "2000", piece=97)
        totals = json.loads(finish(send)[1].splitlines()[-1])
        assert (totals["complete"], totals["acknowledged"]) == (True, 2000)
        assert relay.wait() == 0

        send, relay = joined("half", 5000, *endless)
        errors = finish(send)[1]
        assert send.returncode == 1
        assert "the other end of standard input and output is gone" in errors
        assert relay.wait() == 0

        send, relay = joined("relay", PLENTY, *endless)
        eventually(lambda: acknowledged("relay"), "it is heard")
        relay.kill()
        errors = finish(send)[1]
        assert send.returncode == 1
        assert "the other end of standard input and output is gone" in errors

        send, relay = joined("sender", PLENTY, *endless)
        eventually(lambda: acknowledged("sender"), "it is heard")
        send.kill()
        assert relay.wait() == 0
        eventually(lambda: not open_connections(), "the gateway hears of it")
    finally:
        for each in running:
            each.kill()
            each.wait()
    daemon.terminate()
    audit = gateway_command(
        "audit", "--config", daemon.config, "--json",
        "--acknowledged", *sorted(tmp_path.glob("*.acked")),
    )  # fmt: skip
    assert audit.returncode == 0, audit.stdout + audit.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    [
        "tcp",
        *(
            pytest.param(way, marks=pytest.mark.long)
            for way in (
                *("tls", "websocket", "http2", "unix"),
                *("tls and websocket", "tls and http2"),
            )
        ),
    ],
)
def test_conformance(start, gateway_command, authority, tmp_path, way):
    """All tests pass, none is left out, however the daemon is reached."""
    checked = {**CHECKED, "options": dict(CHECKED["options"])}
    words = ["--strict", "--hello-timeout", "3"]
    if "tls" in way:
        pair = authority.issue("gateway.example")
        checked["tls"] = tls(pair)
        words += ["--tls", "--ca", str(authority.ca)]
    if way == "tls":
        checked["options"]["tokens"] = {"checker": "s3cret"}
        words += ["--token", "s3cret"]
    if way == "unix":
        target = checked["listen"] = f"unix:{tmp_path / 'rsio'}"
    if "websocket" in way:
        checked["websocket"] = {"path": "/rsio"}
        words += ["--websocket", "/rsio"]
    if "http2" in way:
        words += ["--http2", "/rsio"]
    daemon = start(listeners=[checked])
    if way != "unix":
        target = _address(daemon, "checked")
    run = gateway_command("rsio-check", target, *words, "--json")
    results = json.loads(run.stdout)
    assert [one for one in results if one["outcome"] != "passed"] == []
    assert len(results) > 160
    assert run.returncode == 0
    if "websocket" in way or "http2" in way:  # plain connections come to the same port
        plain = gateway_command("rsio-check", target, *words[:-2], "--only", "hello_is")
        assert plain.returncode == 0, plain.stdout + plain.stderr
