"""The hub's end of a connection: what it answers to edges, and when."""

from __future__ import annotations

import base64
import errno
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h11
import pytest
from msgspec.json import encode
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from forwarded import Sent
from gateway.protocols.forward import _Service, protocol
from gateway.protocols.forward.options import Options, may_bring
from gateway.protocols.forward.server import ForwardListener, ForwardServer
from gateway.protocols.forward.turns import Turns
from gateway.sdk.arrivals import DIGEST, EVENTS, OFFSET, WHY, digest_field
from gateway.sdk.http1 import METHODS
from gateway.store.directories import Directories
from gateway.store.hub.arrivals import Arrivals
from gateway.store.objects.node_record import NodeRecord, at_hub
from gateway.store.system.disk import RealDisk
from gateway.testing import FakeConnection
from gateway.testing.plugins import FakeDaemon, listener_of
from gateway_testkit.settings import options_of, settings
from incarnations import A


class Hub:
    """A listener in memory, on a directory; its threads run when the test says so, if it
    wants to.
    """

    def __init__(self, folder: Path, **options: Any) -> None:
        self.directories = Directories.under(folder)
        self.directories.spool.mkdir(exist_ok=True)
        self.clock = Clock()
        self.full: str | None = None
        self.disk = RealDisk()
        self.arrivals = Arrivals(
            "hub", self.directories, self.disk, lambda _: None, by=lambda: "h" * 10
        )
        self.arrivals.watch(lambda _: self.full, lambda: len(self.files))
        self.connections: set[ForwardServer] = set()
        self.refused = 0
        self.steps: list[tuple[Callable[[], object], Deferred[Any]]] | None = None
        """Those that wait for `step`; None: each is taken at once."""
        self.listener = ForwardListener(
            settings(Options, **options),
            self.arrivals,
            self.clock,
            self.connections,
            self._count,
            Turns(self._in_thread),
        )

    def _count(self) -> None:
        self.refused += 1

    def _in_thread(self, do: Callable[[], object]) -> Deferred[Any]:
        if self.steps is None:
            return maybeDeferred(do)
        done: Deferred[Any] = Deferred()
        self.steps.append((do, done))
        return done

    def step(self) -> None:
        """The next one in a thread is over."""
        assert self.steps
        do, done = self.steps.pop(0)
        maybeDeferred(do).chainDeferred(done)

    @property
    def files(self) -> list[str]:
        names = self.disk.names(self.directories.spool)
        return [name for name in names if name[0] != "."]

    @property
    def parts(self) -> list[str]:
        names = self.disk.names(self.directories.spool)
        return [name for name in names if name.startswith(".arriving-")]

    def connect(self, name: str = "shop", token: str = "", **origin: Any) -> Edge:
        connection = FakeConnection(protocol="forward", prefixes=METHODS)
        for key, value in origin.items():
            setattr(connection.origin, key, value)
        connection.serve(self.listener(connection))
        return Edge(connection, name, token)


class Reply(NamedTuple):
    code: int
    fields: Mapping[str, str]
    body: bytes

    @property
    def why(self) -> str:
        return self.fields.get(WHY, "")


class Edge:
    """The other end; it need not wait for an answer before it asks again."""

    def __init__(self, connection: FakeConnection, name: str, token: str) -> None:
        self.connection = connection
        self._proof = base64.b64encode(f"{name}:{token}".encode()).decode()
        self._asked: list[bytes] = []
        self._heard = b""

    def head(self, method: str, target: str, size: int = 0, **fields: str) -> bytes:
        lines = [
            f"{method} {target} HTTP/1.1", "Host: hub", f"Authorization: Basic {self._proof}",
            *(f"{key.replace('_', '-')}: {value}" for key, value in fields.items()),
        ]  # fmt: skip
        if method == "PUT":
            lines.append(f"Content-Length: {size}")
        self._asked.append(method.encode())
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def say(self, data: bytes) -> None:
        self.connection.deliver(data)

    def get(self, node: str = "edge", **fields: str) -> None:
        self.say(self.head("GET", f"/nodes/{node}", **fields))

    def of(self, sent: Sent, at: int = 0, method: str = "PUT") -> bytes:
        """The header of a request for a file."""
        file, size = sent.file, len(sent.data)
        more = {"Content_Range": f"bytes {at}-{size - 1}/{size}"} if at else {}
        return self.head(
            method, f"/spool/{file.name}", size - at,
            **{DIGEST: digest_field(bytes.fromhex(file.sha256)), EVENTS: file.events},
            **more,
        )  # fmt: skip

    def put(self, sent: Sent, at: int = 0, piece: int = 1000) -> None:
        self.say(self.of(sent, at))
        for begin in range(at, len(sent.data), piece):
            self.say(sent.data[begin : begin + piece])

    def ask(self, sent: Sent) -> int:
        """How much is there."""
        self.say(self.of(sent, method="HEAD"))
        [reply] = self.replies()
        assert reply.code == 404
        return int(reply.fields[OFFSET])

    def replies(self) -> list[Reply]:
        """Since the last time."""
        self._heard += self.connection.sent
        self.connection.clear()
        found: list[Reply] = []
        while self._heard:
            method = self._asked.pop(0) if self._asked else b"GET"
            http = h11.Connection(h11.CLIENT)
            http.send(
                h11.Request(method=method, target=b"/", headers=[("Host", "hub")])
            )
            http.send(h11.EndOfMessage())
            http.receive_data(self._heard)
            head = http.next_event()
            if isinstance(head, h11.InformationalResponse):
                head = http.next_event()
            assert isinstance(head, h11.Response)
            body = b""
            while isinstance(event := http.next_event(), h11.Data):
                body += event.data
            assert isinstance(event, h11.EndOfMessage)
            self._heard = http.trailing_data[0]
            fields = {key.decode(): value.decode() for key, value in head.headers}
            found.append(Reply(head.status_code, fields, body))
        return found

    def codes(self) -> list[int]:
        return [one.code for one in self.replies()]


@pytest.fixture
def hub(tmp_path) -> Hub:
    return Hub(tmp_path)


def test_files_come_one_after_the_other(hub):
    """Each is told to be there when it is, and in the hub's spool as it was in the edge's."""
    edge = hub.connect()
    one, two = Sent(1, 1000), Sent(1001)
    edge.get()
    [known] = edge.replies()
    said = {"hub": "hub", "incarnation": "h" * 10, "waiting": 0, "lsns": {}}
    assert (known.code, json.loads(known.body)) == (200, said)
    edge.put(one)
    edge.put(two)
    first, second = edge.replies()
    assert (first.code, json.loads(first.body)) == (201, {"waiting": 1})
    assert (second.code, json.loads(second.body)) == (201, {"waiting": 2})
    assert hub.files == [one.name, two.name]
    for sent in (one, two):
        assert (hub.directories.spool / sent.name).read_bytes() == sent.data
    assert edge.connection.counted == 1003
    edge.get(If_None_Match=known.fields["etag"])
    edge.get()
    assert edge.codes()[0] == 304
    assert hub.connections
    edge.connection.lose()
    assert not hub.connections


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_requests_come_in_any_slicing(hub, size):
    """One behind the other, without waiting for answers."""
    one, two = Sent(1), Sent(4)
    edge = hub.connect()
    stream = edge.of(one) + one.data + edge.of(two) + two.data
    for at in range(0, len(stream), size):
        edge.say(stream[at : at + size])
    assert edge.codes() == [201, 201]
    assert hub.files == [one.name, two.name]


def test_a_line_that_dies_unseen(hub):
    """What came of a slow one in ten seconds is kept, though it was never cut here: or one
    that dies again and again would bring the same octets for ever.
    """
    sent = Sent(1, 1000)
    dead = hub.connect()
    dead.say(dead.of(sent) + sent.data[:2000])
    assert dead.connection.held_bytes >= 2000
    hub.clock.advance(10)
    edge = hub.connect()
    assert edge.ask(sent) == 2000
    edge.put(sent, at=2000)
    assert edge.codes() == [201]
    assert (hub.directories.spool / sent.name).read_bytes() == sent.data
    dead.say(sent.data[2000:])
    assert dead.codes() == [409]


def test_what_is_there_is_not_taken_again(hub):
    """Its sender did not hear that it is; it hears so now, with the digest of the events."""
    sent, other = Sent(1), Sent(1, text="other")
    edge = hub.connect()
    edge.put(sent)
    edge.replies()
    edge.say(edge.of(sent, method="HEAD"))
    edge.say(edge.of(other, method="HEAD"))
    same, differs = edge.replies()
    assert (same.code, differs.code) == (200, 200)
    assert same.fields[EVENTS] == differs.fields[EVENTS] == sent.file.events
    edge.say(edge.of(other))
    [there] = edge.replies()
    assert (there.code, there.fields[EVENTS]) == (412, sent.file.events)
    assert edge.connection.closed
    assert hub.arrivals.files == 1


def test_nothing_is_told_before_it_is_durable(hub):
    """While a thread writes, nothing is read, and nothing is said; a line that is lost
    meanwhile leaves a file that is there.
    """
    hub.steps = []
    sent = Sent(1)
    edge = hub.connect()
    edge.put(sent)
    assert edge.connection.paused
    hub.step()
    assert edge.replies() == []
    assert hub.files == []
    edge.connection.lose()
    hub.step()
    assert hub.files == [sent.name]
    while hub.steps:
        hub.step()
    assert not hub.arrivals._known("edge").hands


def test_no_room(hub):
    """The edge hears why, and may come again on the same connection."""
    edge, sent = hub.connect(), Sent(1)
    hub.full = "the spool holds 20 GiB"
    edge.say(edge.of(sent, method="HEAD"))
    [full] = edge.replies()
    assert (full.code, full.why) == (503, "the spool holds 20 GiB")
    assert not edge.connection.closed
    assert hub.files == []
    assert hub.refused == 0
    hub.full = None
    assert edge.ask(sent) == 0
    edge.put(sent)
    assert edge.codes() == [201]
    hub.full = "the spool holds 20 GiB"
    edge.say(edge.of(sent, method="HEAD"))
    assert edge.codes() == [200], "that one is there"


def test_no_room_in_the_middle_of_a_file(hub):
    """What came is not written before there is: a thousand files that begin where there was
    room for each do not take what the hub has acknowledged its own.
    """
    sent = Sent(1, 200_000)
    hub.connections.update(object() for _ in range(1000))  # type: ignore[misc]
    edge = hub.connect()
    edge.say(edge.of(sent))
    edge.say(sent.data[:20_000])
    hub.full = "the disk is full"
    edge.say(sent.data[20_000:])
    assert edge.codes() == [503]
    assert edge.connection.closed
    hub.full = None
    edge = hub.connect()
    at = edge.ask(sent)
    assert at == 20_000
    edge.put(sent, at, 1 << 14)
    assert edge.codes() == [201]


def test_a_disk_that_is_full(hub, monkeypatch):
    """Nothing is taken, and the edge may come again."""
    edge = hub.connect()

    def full(path: Path) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(hub.disk, "create", full)
        edge.put(Sent(1))
    [reply] = edge.replies()
    assert reply.code == 503
    assert "No space left" in reply.why
    edge = hub.connect()
    edge.put(Sent(1))
    assert edge.codes() == [201]


def test_the_daemon_stops(hub):
    """At once, or when what is in a thread is over; the edge hears that it may come again."""
    idle = hub.connect()
    idle.get()
    idle.replies()
    idle.connection.drain()
    assert idle.connection.closed
    hub.steps = []
    busy = hub.connect()
    busy.get()
    busy.connection.drain()
    assert not busy.connection.closed
    hub.step()
    assert busy.codes() == [200]
    assert busy.connection.closed
    hub.steps = None
    half = hub.connect()
    half.say(half.of(Sent(1)) + Sent(1).data[:100])
    half.connection.drain()
    assert half.codes() == [503]
    assert half.connection.closed


def test_what_an_incarnation_says_of_itself(hub):
    """It is kept; what is no word is not."""
    edge = hub.connect()
    word = encode(NodeRecord(A, 1, 3, 5.0, "journal"))

    def say(target: str, word: bytes) -> None:
        edge.say(edge.head("PUT", f"/words/{target}", len(word)) + word)

    say(f"edge_{A}", word)
    say(f"edge_{A}", b"{}")
    say(f"edge_{'b' * 10}", word)
    assert edge.codes() == [204, 422, 422]
    [heard] = at_hub(hub.directories.arrivals)
    assert heard.record is not None
    assert (heard.node, heard.record.lsn) == ("edge", 3)


# Who it is


def test_tokens(tmp_path):
    """Name and token go together, and a name brings its own node alone, unless more are
    configured: never because it came first.
    """
    hub = Hub(
        tmp_path,
        tokens={"shop": "secret", "ship": "other"},
        nodes={"shop": ["edge", "till-*"]},
    )
    edge = hub.connect("ship", "other")
    edge.get()
    edge.put(Sent(1))
    refused, also = edge.replies()
    assert (refused.code, also.code) == (403, 403)
    assert refused.why == "ship may not bring node edge (options.nodes)"
    edge = hub.connect("shop", "secret")
    edge.get()
    assert edge.codes() == [200]
    assert edge.connection.origin.principal == "shop"
    for name, token in (("shop", ""), ("shop", "other"), ("nobody", ""), ("", "")):
        edge = hub.connect(name, token)
        edge.get()
        assert edge.codes() == [401]
        assert edge.connection.refused is not None
        assert edge.connection.refused.wrong_credentials
    assert hub.refused == 6


@pytest.mark.parametrize(
    ("who", "node", "may"),
    [
        ("shop", "shop", True),
        ("CN=shop", "shop", True),
        ("CN=shop,O=Shops", "shop", True),
        ("O=Shops,CN=shop", "shop", False),
        (r"CN=shop\,17", "shop", False),
        ("shop", "shop-17", False),
        ("region", "shop-17", True),
        ("CN=region,O=Shops", "till-3", True),
        ("region", "region", False),
    ],
)
def test_who_may_bring_a_node(who, node, *, may):
    options = options_of(Options, nodes={"region": ["shop-*", "till-?"]})
    assert may_bring(options, who, node) is may


def test_a_token_that_is_taken_away(tmp_path):
    """Ends the connection that came by it, in the middle of a file, which goes on under
    the new one.
    """
    nodes = {"shop": ["edge"]}
    hub = Hub(tmp_path, tokens={"shop": "secret"}, nodes=nodes)
    file = Sent(1, 500)
    edge = hub.connect("shop", "secret")
    edge.say(edge.of(file) + file.data[:2000])
    [server] = hub.connections
    more = {"shop": "secret", "ship": "other"}
    hub.listener.options = options_of(Options, tokens=more, nodes=nodes)
    server.look_again()
    assert edge.connection.refused is None
    hub.listener.options = options_of(Options, tokens={"shop": "new"}, nodes=nodes)
    server.look_again()
    [reply] = edge.replies()
    assert reply.code == 401
    assert reply.why == "no such name and token (options.tokens): it was taken away"
    old = hub.connect("shop", "secret")
    old.get()
    assert old.codes() == [401]
    again = hub.connect("shop", "new")
    at = again.ask(file)
    assert at == 2000
    again.put(file, at)
    assert again.codes() == [201]


@pytest.fixture
def _without_threads(monkeypatch) -> None:
    monkeypatch.setattr(_Service, "_in_thread", lambda _, do: maybeDeferred(do))


@pytest.mark.usefixtures("_without_threads")
def test_a_reload_asks_for_tokens_again(tmp_path):
    """Of who is there: also where none was asked for before, and not of other listeners; and
    of who has come before, and asks for something after it.
    """
    daemon = FakeDaemon(protocol, tmp_path, options={"tokens": {"edge": "secret"}})
    edge, late = (Edge(daemon.connect(), "edge", "secret") for _ in range(2))
    edge.get()
    daemon.service.reload()
    assert edge.codes() == [200]
    daemon.context.listeners.clear()  # another one is drained
    daemon.service.reload()
    assert edge.connection.refused is None
    options = {"tokens": {"ship": "secret"}}
    daemon.context.listeners.append(listener_of(protocol, tmp_path, options, {}))
    daemon.service.reload()
    assert edge.codes() == [401]
    late.get()
    assert late.codes() == [401]
    daemon.service.retired(daemon.port)
    assert daemon.service._accepting == set()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("shown", "said"),
    [("Sat, 25 Dec 2064 05:20:00 GMT", "720.0 h behind the one"),
     ("Mon, 23 Feb 2065 05:20:00 GMT", "720.0 h ahead of the one"),
     ("Sat, 24 Jan 2065 05:24:00 GMT", ""), ("", ""), ("yesterday", ""),
     ("Mon, 1 Jan 99999999999 00:00:00 GMT", "")],
)  # fmt: skip
def test_a_clock_that_is_a_month_off(hub, shown, said):
    """It is told at the hub, where days go by it, while that edge is there; one that does
    not say what it shows is not taken for wrong.
    """
    hub.listener.wall_clock = lambda: 3e9
    edge = hub.connect()
    edge.get(**({"Date": shown} if shown else {}))
    [server] = hub.connections
    assert (server.trouble is not None) == bool(said)
    assert said in (server.trouble or "")
    assert "shop" in (server.trouble or "shop")
    assert edge.codes() == [200]


def test_certificates(tmp_path):
    """Without tokens the certificate says who it is, whatever it says; a token of another
    name is refused.
    """
    hub = Hub(tmp_path)
    edge = hub.connect(principal="CN=edge,O=Shops")
    edge.get()
    assert edge.codes() == [200]
    edge = hub.connect(principal="CN=till-7,O=Shops")
    edge.get()
    [refused] = edge.replies()
    assert refused.code == 403
    assert refused.why == "CN=till-7,O=Shops may not bring node edge (options.nodes)"
    hub = Hub(tmp_path, tokens={"edge": "secret"})
    for principal, code in (("CN=till-7", 401), ("CN=edge", 200)):
        edge = hub.connect("edge", "secret", principal=principal)
        edge.get()
        assert edge.codes() == [code]


# What breaks the rules

NAME = Sent(1).name
DIGESTS = (
    f"{DIGEST}: {digest_field(bytes(32))}\r\n{EVENTS}: {'0' * 64}\r\n"
    "Content-Length: 100\r\n"
)


@pytest.mark.parametrize(
    ("request_", "code", "why"),
    [
        ("GET /", 404, "nothing here"),
        ("GET /spool/x", 404, "nothing here"),
        ("DELETE /spool/x", 404, "nothing here"),
        ("GET /nodes/..", 422, "no node's name"),
        ("GET /nodes/hub", 403, "has its journal on this machine"),
        ("PUT /spool/x\r\nContent-Length: 3", 422, "no spool file"),
        (f"PUT /spool/{NAME}\r\nContent-Length: 3", 422, "without digests"),
        (f"PUT /spool/{NAME}\r\nTransfer-Encoding: chunked", 411, "length"),
        (f"PUT /spool/{NAME}\r\n{DIGESTS}Content-Range: bytes 2-9/12", 400, "no range"),
        (
            f"PUT /spool/{NAME}\r\n{DIGESTS}Content-Range: bytes 5-104/105",
            409,
            "can not go on at byte 5",
        ),
        (f"PUT /words/edge_{A}\r\nContent-Length: 65537", 413, "a word of 65537"),
        (f"PUT /words/edge_{A}\r\nContent-Length: 1", 422, "no word"),
        ("rubbish", 400, ""),
        ("PUT /spool/x\r\nContent-Length: -1", 400, ""),
        ("GET /" + "x" * 20000, 431, ""),
    ],
)
def test_violations(hub, request_, code, why):
    """They are answered with the reason; nothing of it is in the spool."""
    edge = hub.connect()
    line, _, rest = request_.partition("\r\n")
    more = f"{rest.rstrip()}\r\n" if rest else ""
    edge.say(f"{line} HTTP/1.1\r\nHost: hub\r\n{more}\r\nx".encode())
    reply = edge.replies()[0]
    assert (reply.code, why in reply.why) == (code, True)
    assert edge.connection.failure is None
    assert hub.files == hub.parts == []


def test_requests_that_bring_nothing(tmp_path):
    """Without end they are refused; some are what any edge sends."""
    hub = Hub(tmp_path, control_messages=100)
    edge = hub.connect()
    for _ in range(100):
        edge.get()
    assert edge.connection.refused is None
    edge.get()
    assert edge.connection.refused is not None
    assert "control messages without end" in edge.connection.refused.rule
    assert edge.codes()[-1] == 429


def test_small_pieces_are_taken_in_turns(hub):
    """Many requests in one read are as good, and others are served in between."""
    edge = hub.connect()
    edge.say(b"".join(edge.head("GET", "/nodes/edge") for _ in range(3000)))
    assert edge.codes() == [200] * 3000
    assert edge.connection.turns > 3


# The plug-in


@pytest.mark.usefixtures("_without_threads")
def test_the_plug_in(tmp_path):
    """It is served as any protocol is, shows what it took, and has no memory."""
    daemon = FakeDaemon(protocol, tmp_path)
    edge = Edge(daemon.connect(), "edge", "")
    edge.get()
    assert edge.codes() == [200]
    [section] = daemon.service.statistics()
    assert section.by_name == {
        "connections": 1, "files": 0, "bytes": 0, "events": 0, "refused": 0
    }  # fmt: skip


def test_a_spool_in_a_bucket(hub):
    """A file that waits to be there is not told to be there; or, after half a minute, that
    it may be asked for again.
    """
    waiting = {Sent(1).name, Sent(4).name}
    hub.arrivals.is_settled = lambda name: name not in waiting  # type: ignore[method-assign]
    edge = hub.connect()
    edge.put(Sent(1))
    assert hub.files == [Sent(1).name]
    hub.clock.advance(1)
    assert edge.codes() == []
    waiting.remove(Sent(1).name)
    hub.clock.advance(1)
    assert edge.codes() == [201]
    edge.put(Sent(4))
    hub.clock.pump([1] * 31)
    [reply] = edge.replies()
    assert (reply.code, "not in the bucket yet" in reply.why) == (503, True)
    edge.say(edge.of(Sent(4), method="HEAD"))
    assert edge.codes() == [503]
    edge.put(Sent(7))
    edge.connection.lose()
    hub.clock.advance(40)
    assert not hub.clock.getDelayedCalls()


@pytest.mark.parametrize("proved", [False, True])
def test_edges_take_turns(hub, proved):
    """By the name that they prove; or else by address, as anybody may say many names."""
    hub.steps = []

    def comes(node: str, peer: str) -> None:
        name = f"CN={node}" if proved else None
        hub.connect(peer=peer, principal=name).get(node)

    for number in range(6):
        comes(f"many-{number}", "192.0.2.1:4711")
    comes("other", "192.0.2.2:4711")
    order = []
    while hub.steps:
        [do, _] = hub.steps[0]
        assert isinstance(do, partial)
        order.append(do.args[0])
        hub.step()
    last = order.index("other")
    assert last == (6 if proved else 5)  # four were in threads, and one was next


def test_many_edges_together_hold_little(hub):
    """The more there are the less of a file is gathered before it is written."""
    edge = hub.connect()
    hub.connections.update(object() for _ in range(1000))  # type: ignore[misc]
    hub.steps = []
    sent = Sent(1, 20_000)
    edge.say(edge.of(sent))
    hub.step()
    for at in range(0, 40_000, 10_000):
        edge.say(sent.data[at : at + 10_000])
    assert len(hub.steps) == 1
    hub.step()
    [part] = hub.parts
    assert 16_000 < (hub.directories.spool / part).stat().st_size <= 20_000
