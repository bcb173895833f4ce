"""No acknowledgement is sent before the `fdatasync` that covers it has returned: judged by
the daemon's system calls, under senders of all four protocols.

A library that is preloaded into the daemon (`system_calls.c`) writes the calls down in
their order, and `Judge` replays them.  What a segment held when a sync of it began that
has returned 0 since is durable, if its directory was synced as well; so it is known how
many events of each connection are.  What was sent on a connection tells how many it was
acknowledged, which may never be more: events of a connection are stored in their order.

Connections are plain TCP, where an acknowledgement can be read off what is sent.
"""

import contextlib
import json
import os
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import warm
from daemons import Daemon, listener
from deadlines import finish, run
from gateway.protocols.pomelo.wire import DATA, Packages, message
from gateway.protocols.pravega.codec import REPLIES, decode
from gateway.protocols.pravega.frames import Frames
from gateway.protocols.pravega.wire import DataAppended
from gateway.protocols.pravega.wire_segments import SegmentCreated
from gateway.protocols.rsio.limits import Limits
from gateway.protocols.rsio.messages import Request, Stored
from gateway.protocols.rsio.wire import Incomplete, parse
from gateway.store.journal.segment import SUFFIX, Scan
from programs import lacking

pytestmark = [pytest.mark.slow, pytest.mark.needs_apt]

EVENTS, CONNECTIONS = 450, 3


class Call(NamedTuple):
    """A record of `system_calls.c`; *name* is a path, or "PORT PEER:PORT"."""

    kind: str
    """w: written; s, S: a sync begins, has returned; t, T: a send likewise."""
    thread: int
    result: int
    offset: int
    name: str
    data: bytes


def read_calls(path: Path) -> Iterator[Call]:
    data, at = path.read_bytes(), 0
    head = struct.Struct("=iiqqII")
    while at + head.size <= len(data):
        kind, *more, name_bytes, size = head.unpack_from(data, at)
        at += head.size
        name = data[at : at + name_bytes].decode()
        at += name_bytes + size
        if at > len(data):
            return  # the daemon was killed while it wrote
        yield Call(chr(kind), *more, name, data[at - size : at])


# -- how many events of a connection what was sent on it acknowledges; None: it is nothing


def lumberjack(sent: bytes) -> int | None:
    """Windows as a whole, each numbered from 1; a keepalive has 0."""
    acks = list(struct.iter_unpack(">2sI", sent[: len(sent) // 6 * 6]))
    assert all(kind == b"2A" for kind, _ in acks)
    return sum(seq for _, seq in acks) or None


def pomelo(sent: bytes) -> int | None:
    """Responses; requests are numbered from 1, and each is an event."""
    packages = Packages(1 << 20, 1 << 20)
    packages.feed(sent)
    found = [each.body for each in iter(packages.next, None) if each.kind == DATA]
    answers = list(map(message, found))
    assert all(json.loads(each.body)["code"] == 200 for each in answers)
    return max((each.id for each in answers), default=None)


def pravega(sent: bytes) -> int | None:
    """Writers number events from 1; that the segment was created is stored without one."""
    found = None
    for frame in Frames(REPLIES).feed(sent):
        match decode(*frame):
            case DataAppended(last_event=number):
                found = number
            case SegmentCreated():
                found = 0
    return found


def rsio(sent: bytes) -> int | None:
    """Demand beyond that of the subscription; the offset of a sender who is new."""
    at = requested = stored = 0
    with contextlib.suppress(Incomplete):
        while at < len(sent):
            said, at = parse(sent[at], sent, at + 1, Limits())
            requested += said.demand if isinstance(said, Request) else 0
            stored = said.offset if isinstance(said, Stored) else stored
    return max(requested, stored) or None


ACKNOWLEDGED = {each.__name__: each for each in (lumberjack, pomelo, pravega, rsio)}
# So that a connection has several batches on their way, in one sync and the next.
OPTIONS = {
    "lumberjack": ("--window", "3", "--pipelining", "8"),
    "pomelo": ("--depth", "20"),
    "pravega": ("--window", "12"),
    "rsio": (),
}

Events = Counter[tuple[str, str]]
"""How many, by protocol and peer; a peer with metadata only has 0."""


def events_of(segment: bytes | None) -> Events:
    found: Events = Counter()
    for stored in Scan(segment) if segment else ():
        origin = stored.batch.origin
        found[origin.protocol, origin.peer] += stored.batch.count
    return found


class Judge:
    """Replays calls; *ports* are the listeners', with their protocols."""

    def __init__(self, ports: dict[int, str], calls: Iterable[Call]) -> None:
        # Each by protocol.
        self.syncs: Counter[str] = Counter()
        """Those that covered more of its events."""
        self.acks: Counter[str] = Counter()
        """Acknowledgements."""
        self.early: Counter[str] = Counter()
        """Those that were sent too early."""
        self.events: Counter[str] = Counter()
        """Events that were acknowledged."""
        self.shared = 0
        """Syncs that covered more events of several connections."""
        self.meanwhile: Counter[str] = Counter()
        """Acknowledgements while a sync of later events of that connection went on."""
        self._ports = ports
        self._written: dict[str, bytes] = {}
        """The segments as they are."""
        self._syncing: dict[int, tuple[set[str], Events, Events]] = {}
        """By thread: the segments when it began to sync, the events of that one, and
        those that no sync has covered yet."""
        self._synced: dict[str, Events] = {}
        self._named: set[str] = set()
        """Segments whose directory was synced."""
        self._durable: Events = Counter()
        self._sending: dict[int, tuple[Events, Events]] = {}
        """By thread: what was durable when it began to send, and what was in a sync."""
        self._sent: dict[str, bytes] = {}
        for call in calls:
            self._replay(call)

    def _replay(self, call: Call) -> None:
        thread, name = call.thread, call.name
        match call.kind:
            case "w" if name.endswith(SUFFIX):
                before = self._written.get(name, b"")
                assert len(before) == call.offset, "a segment only grows"
                self._written[name] = before + call.data
            case "s":
                events = events_of(self._written.get(name))
                more = events - self._synced.get(name, Counter())
                self._syncing[thread] = set(self._written), events, more
            case "S":
                there, events, more = self._syncing.pop(thread)
                if call.result == 0:
                    self._named |= {
                        one for one in there if os.path.split(one)[0] == name
                    }
                    self._has_synced(name, events, more)
            case "t":
                more = sum((more for _, _, more in self._syncing.values()), Counter())
                self._sending[thread] = self._durable, more
            case "T":
                port, peer = name.split()
                if int(port) in self._ports:
                    self._has_sent(call, self._ports[int(port)], peer)

    def _has_synced(self, name: str, events: Events, more: Events) -> None:
        self._synced[name] = events
        self._durable = Counter()
        for segment in self._named & self._synced.keys():
            self._durable.update(self._synced[segment])
        self.syncs.update({protocol for protocol, _ in more})
        self.shared += len(more) > 1

    def _has_sent(self, call: Call, protocol: str, peer: str) -> None:
        acknowledged = ACKNOWLEDGED[protocol]
        sent = self._sent.get(call.name, b"")
        self._sent[call.name] = sent + call.data
        before, told = acknowledged(sent), acknowledged(sent + call.data)
        if told is not None and told != before:
            durable, more = self._sending[call.thread]
            self.acks[protocol] += 1
            self.early[protocol] += told > durable.get((protocol, peer), -1)
            self.events[protocol] += told - (before or 0)
            self.meanwhile[protocol] += (protocol, peer) in more


class Watched(Daemon):
    """A daemon whose calls are written down in the file `calls`."""

    @property
    def environment(self) -> dict[str, str]:
        home = self.config.parent.resolve()
        mine = {"LD_PRELOAD": home / "calls.so", "JOURNAL_CALLS": home / "calls"}
        mine["JOURNAL_UNDER"] = home / "data" / "journal"
        return super().environment | {name: str(path) for name, path in mine.items()}


def compile_library(made: Path) -> None:
    """`system_calls.c`; without a compiler, the test is skipped."""
    if not sys.platform.startswith("linux") or shutil.which("cc") is None:
        lacking("needs Linux and a C compiler, cc, on the PATH")
    source = Path(__file__).with_name("system_calls.c")
    done = run("cc", "-shared", "-fPIC", "-o", made, source, "-ldl")
    assert done.returncode == 0, done.stderr


def send(protocol: str, port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gateway.cli", "send", protocol]
    command += [f"127.0.0.1:{port}", "--json", "--generate", str(EVENTS)]
    command += ["--connections", str(CONNECTIONS), *OPTIONS[protocol]]
    pipe = subprocess.PIPE
    process: subprocess.Popen[str] = warm.start(command, stdout=pipe, text=True)
    return process


def test_no_acknowledgement_is_sent_before_its_sync(tmp_path):
    """Each protocol acknowledges all that came, and only what a sync covers that began
    after it was written; what waits for the next sync is not acknowledged by this one.
    """
    compile_library(tmp_path / "calls.so")
    listeners = [listener(name, name) for name in ("lumberjack", "pomelo", "pravega")]
    listeners.append(listener("rsio", "rsio", options={"window": 16}))
    with Watched(tmp_path, {"listeners": listeners}) as daemon:
        ports = {daemon.address(name)[1]: name for name in OPTIONS}
        senders = [send(name, port) for port, name in ports.items()]
        try:
            totals = [json.loads(finish(each)[0]) for each in senders]
        finally:
            for each in senders:
                each.kill()
                each.wait()
    for one in totals:
        assert one["complete"], daemon.log
        assert one["connections"] == CONNECTIONS, "resent events are not judged"

    calls = list(read_calls(tmp_path / "calls"))
    judge = Judge(ports, calls)
    print(f"acknowledgements {judge.acks}, in a sync of more {judge.meanwhile}")
    print(f"syncs {judge.syncs}, of several connections {judge.shared}")
    assert judge.early.total() == 0, f"too early: {judge.early}"
    assert judge.events == dict.fromkeys(OPTIONS, EVENTS)
    assert judge.shared, "each sync covered one connection only: this shows nothing"
    assert judge.meanwhile.total(), "nothing waited for the next: this shows nothing"
    it_notices_failed_syncs(ports, calls, judge.acks)


def it_notices_failed_syncs(
    ports: dict[int, str], calls: list[Call], acks: Counter[str]
) -> None:
    """Every acknowledgement is early if all syncs of segments had failed, or all of their
    directory; one of many is noticed as well.
    """

    def early(failed: Iterable[int]) -> Counter[str]:
        spoiled = list(calls)
        for n in failed:
            spoiled[n] = spoiled[n]._replace(result=-1)
        return Judge(ports, spoiled).early

    syncs = [n for n, call in enumerate(calls) if call.kind == "S"]
    segments = [n for n in syncs if calls[n].name.endswith(SUFFIX)]
    assert early(segments) == early(set(syncs) - set(segments)) == acks
    assert any(early([n]).total() for n in segments)
