"""How the daemon stops: what it has taken is answered and published, whoever is impatient."""

import itertools
import os
import signal
import struct
import threading
import time
from typing import Any

import pytest
from pylogbeat import PyLogBeatClient

from daemons import TERMINATED, listener
from deadlines import eventually
from forwarded import Sent
from gateway.protocols.pomelo import wire as pomelo
from gateway.protocols.pravega.codec import encode
from gateway.protocols.pravega.wire import (
    AppendBlockEnd,
    DataAppended,
    Hello,
    SetupAppend,
)
from gateway.protocols.pravega.wire_segments import CreateSegment
from gateway.protocols.rsio import wire as rsio
from gateway.protocols.rsio.messages import ClientHello, Goodbye, OnSubscribe, Request
from gateway.sdk.arrivals import DIGEST, EVENTS, digest_field


@pytest.mark.fresh
def test_sigterm_answers_what_was_taken(start, connect):
    """Writers in full swing when SIGTERM comes: each hears of every window that was
    stored, then FIN; all of it is published and the journal is empty.
    """
    daemon = start(spool={"roll_interval": "1h"})
    address = daemon.address()
    peers = [connect(address) for _ in range(4)]
    heard: dict[str, int] = {peer.name: 0 for peer in peers}

    def write(peer: Any) -> None:
        numbers = itertools.count()
        try:
            while True:
                peer.send(
                    peer.window(*(b'{"n":%d}' % next(numbers) for _ in range(20)))
                )
                time.sleep(0.002)  # however long it takes, it is not much to publish
        except OSError:
            return

    def read(peer: Any) -> None:
        for ack in peer.acks():
            assert ack > heard[peer.name]
            heard[peer.name] = ack

    threads = [
        threading.Thread(target=work, args=[peer], daemon=True)
        for peer in peers
        for work in (read, write)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: min(heard.values()) > 300, "windows on every connection")
    assert daemon.terminate() in TERMINATED
    for thread in threads:
        thread.join()
    stored = dict.fromkeys(heard, 0)
    for row in daemon.rows():
        assert row["seq"] == stored[row["peer"]] + 1
        stored[row["peer"]] += 1
    assert stored == heard
    assert daemon.segments() == []
    assert "did not finish in time" not in daemon.log
    assert "Stopped: everything acknowledged" in daemon.log


def _said_by_pravega() -> tuple[bytes, bytes, bytes]:
    writer, event = b"w" * 16, struct.pack(">II", 0, 2) + b"{}"
    opened = (
        Hello(17, 5),
        CreateSegment(1, "scope/stream/0", 0, 0),
        SetupAppend(2, writer, "scope/stream/0"),
    )
    block = AppendBlockEnd(writer, len(event), event, 1, 1, 9)
    return (
        b"".join(map(encode, opened)),
        encode(block),
        encode(DataAppended(writer, 1, -(2**63), 9, len(event))),
    )


_FILE = Sent(1)
_WORDS: dict[str, tuple[bytes, bytes, bytes]] = {
    "forward": (
        b"GET /nodes/edge HTTP/1.1\r\nHost: hub\r\n\r\n",
        (
            f"PUT /spool/{_FILE.name} HTTP/1.1\r\nHost: hub\r\n"
            f"{DIGEST}: {digest_field(bytes.fromhex(_FILE.file.sha256))}\r\n"
            f"{EVENTS}: {_FILE.file.events}\r\n"
            f"Content-Length: {len(_FILE.data)}\r\n\r\n"
        ).encode()
        + _FILE.data,
        b"HTTP/1.1 201",
    ),
    "lumberjack": (
        b"2W" + struct.pack(">I", 1000),
        b"2J" + struct.pack(">II", 7, 2) + b"{}" + b"2J\0",
        b"2A" + struct.pack(">I", 7),
    ),
    "pomelo": (
        pomelo.package(pomelo.HANDSHAKE, b'{"sys":{"type":"test","version":"1"}}')
        + pomelo.package(pomelo.ACK),
        pomelo.request(1, "chat.room.say", b"{}"),
        b'{"code":200',
    ),
    "pravega": _said_by_pravega(),
    "rsio": (
        rsio.encode(ClientHello(0, ())) + rsio.encode(OnSubscribe(1, 0)),
        rsio.on_next(1, [b"{}"]),
        rsio.encode(Request(1, 1)) + rsio.encode(Goodbye("E503 stopping")),
    ),
}
"""Of each protocol: how a peer begins, an event that is whole, and its acknowledgement."""


def test_what_is_whole_at_sigterm_is_stored_and_answered(start, connect):
    """The daemon stands still, a peer of each protocol sends an event (an edge a file), and
    SIGTERM comes before the daemon has read it.  What comes behind it, and is not whole, is
    dropped.
    """
    listeners = [listener(name, name) for name in _WORDS]
    listeners[2]["options"] = {"session_events": False}
    daemon = start(listeners=listeners)
    peers = {name: connect(daemon.address(name)) for name in _WORDS}
    for name, (opening, _, _) in _WORDS.items():
        peers[name].send(opening)
        eventually(
            lambda: daemon.listener(name)["bytes"] >= len(opening),  # noqa: B023
            "it is read",
        )
    os.kill(daemon.pid, signal.SIGSTOP)
    for name, (_, whole, _) in _WORDS.items():
        peers[name].send(whole)
    os.kill(daemon.pid, signal.SIGTERM)
    os.kill(daemon.pid, signal.SIGCONT)
    for name, (_, _, answer) in _WORDS.items():
        heard = b""
        while answer not in heard:
            heard += (more := peers[name].socket.recv(1 << 16))
            assert more, (name, heard)
        peers[name].socket.close()
    eventually(lambda: daemon.process.poll() in TERMINATED, "it ends")
    (daemon.spool / _FILE.name).unlink()  # which has lsns of its own
    stored = {row["protocol"]: row["payload"] for row in daemon.rows()}
    assert stored == dict.fromkeys(_WORDS.keys() - {"forward"}, b"{}")


def test_who_is_impatient_does_no_harm(start):
    """SIGTERM and ^C, at once and again while it stops: it stops in order all the same."""
    daemon = start(spool={"roll_interval": "1h"})
    with PyLogBeatClient(*daemon.address()) as client:
        client.send([{"number": number} for number in range(5)])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        os.kill(daemon.pid, number)
    # What comes before the first is handled may be one with it.
    daemon.eventually(lambda: "Received SIG" in daemon.log, "it stops")
    assert daemon.terminate() in (*TERMINATED, -signal.SIGINT, 128 + signal.SIGINT)
    assert "Stopping already: " in daemon.log
    assert "Traceback" not in daemon.log
    assert len(daemon.rows()) == 5
