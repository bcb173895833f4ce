"""The hub's end of a connection: what it says to edges, and when."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from forwarded import Sent
from gateway.protocols.forward import protocol
from gateway.protocols.forward.options import Options, may_bring
from gateway.protocols.forward.server import ForwardListener, ForwardServer
from gateway.protocols.forward.turns import Turns
from gateway.sdk.forwarding import (
    Begun,
    File,
    Frames,
    Hello,
    Life,
    Message,
    Ping,
    Position,
    Refused,
    Stored,
    Welcome,
    Word,
    data,
    encode,
)
from gateway.store.directories import Directories
from gateway.store.hub.arrivals import Arrivals
from gateway.store.system.disk import RealDisk
from gateway.testing import FakeConnection
from gateway.testing.plugins import FakeDaemon, listener_of
from gateway_testkit.settings import options_of, settings
from incarnations import A, B

HELLO = encode(Hello(0, "shop"))
LIFE = encode(Life("edge", A))


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
        self.arrivals = Arrivals("hub", self.directories, self.disk, lambda _: None)
        self.arrivals.watch(lambda _: self.full, lambda: len(self.files))
        self.connections: set[ForwardServer] = set()
        self.refused = 0
        self.steps: list[tuple[Callable[[], object], Deferred[Any]]] | None = None
        """Those that wait for `step`; None: each is taken at once."""
        self.listener = ForwardListener(
            settings(Options, **options),
            "hub",
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

    def connect(self, *frames: bytes, **origin: Any) -> Edge:
        connection = FakeConnection(protocol="forward")
        for name, value in origin.items():
            setattr(connection.origin, name, value)
        connection.serve(self.listener(connection))
        edge = Edge(connection)
        edge.say(*frames)
        return edge


class Edge:
    """The other end."""

    def __init__(self, connection: FakeConnection) -> None:
        self.connection = connection
        self._frames = Frames()

    def say(self, *frames: bytes) -> None:
        for frame in frames:
            self.connection.deliver(frame)

    def heard(self) -> list[Message]:
        """Since the last time."""
        connection = self.connection
        self._frames.feed(connection.sent)
        connection.clear()
        found: list[Message] = []
        while (message := self._frames.next()) is not None:
            assert not isinstance(message, bytes)
            found.append(message)
        return found

    def refusal(self) -> Refused:
        """It was refused with this, and nothing else was said."""
        refused = self.connection.refused
        assert refused is not None
        self._frames.feed(refused.reply)
        found = self._frames.next()
        assert isinstance(found, Refused)
        return found


def whole(sent: Sent, at: int = 0, piece: int = 1000) -> Iterator[bytes]:
    """The frames of a file."""
    yield encode(sent.at(at))
    for begin in range(at, len(sent.data), piece):
        yield data(sent.data[begin : begin + piece])


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


def test_files_come_one_after_the_other(hub: Hub) -> None:
    """Each is told to be there when it is, and in the hub's spool as it was in the edge's."""
    edge = hub.connect(HELLO, LIFE)
    assert edge.heard() == [Welcome(0, "hub"), Position("edge", {A: 0})]
    one, two = Sent(1, 1000), Sent(1001)
    edge.say(*whole(one), *whole(two))
    assert edge.heard() == [Stored(one.name, A, 1), Stored(two.name, A, 2)]
    assert hub.files == [one.name, two.name]
    for sent in (one, two):
        assert (hub.directories.spool / sent.name).read_bytes() == sent.data
    assert edge.connection.counted == 1003
    assert hub.connections
    edge.connection.lose()
    assert not hub.connections
    assert not hub.arrivals.bringing


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_octets_come_in_any_slicing(hub: Hub, size: int) -> None:
    """Frames need not be reads."""
    sent = Sent(1)
    stream = b"".join([HELLO, LIFE, *whole(sent, piece=333)])
    edge = hub.connect()
    for at in range(0, len(stream), size):
        edge.say(stream[at : at + size])
    assert edge.heard()[-1] == Stored(sent.name, A, 1)


def test_a_line_that_is_cut_anywhere(hub: Hub) -> None:
    """After each frame, and within each: the file goes on where it is, and is there once.

    Of all that was cut off before, nothing is told to be there that is not.
    """
    sent = Sent(1, 200)
    piece = len(sent.data) // 5
    stream = b"".join([HELLO, LIFE, *whole(sent, piece=piece)])
    for cut in range(0, len(stream), 97):
        at, other = cut, Sent(1 + 1000 * (cut + 1), 200)
        frames = b"".join([HELLO, LIFE, *whole(other, piece=piece)])
        edge = hub.connect(frames[: min(at, len(frames) - 1)])  # sizes differ
        assert not any(isinstance(one, Stored) for one in edge.heard())
        edge.connection.lose()
        edge = hub.connect(HELLO, LIFE)
        [_, position] = edge.heard()
        assert isinstance(position, Position)
        begun = position.begun
        goes_on = begun is not None and begun.name == other.name
        edge.say(*whole(other, at=begun.at if begun is not None and goes_on else 0))
        assert edge.heard() == [Stored(other.name, A, len(hub.files))]
        assert (hub.directories.spool / other.name).read_bytes() == other.data
        edge.connection.lose()


def test_a_part_is_told(hub: Hub) -> None:
    """Whoever comes again hears how much there is of which file."""
    sent = Sent(1, 100)
    edge = hub.connect(HELLO, LIFE, encode(sent.file), data(sent.data[:500]))
    edge.say(data(sent.data[500:600])[:-1])
    edge.connection.lose()
    edge = hub.connect(HELLO, LIFE)
    [_, position] = edge.heard()
    assert isinstance(position, Position)
    assert position.begun == Begun(sent.name, A, sent.file.sha256, 500)


def test_a_line_that_dies_unseen(hub: Hub) -> None:
    """What came of a slow one in ten seconds is kept, though it was never cut here: or one
    that dies again and again would bring the same octets for ever.
    """
    sent = Sent(1, 1000)
    frames = [*whole(sent)]
    dead = hub.connect(HELLO, LIFE, *frames[:3])
    assert dead.connection.held_bytes == 2000
    hub.clock.advance(10)
    assert dead.connection.held_bytes == 0
    dead.say(frames[3])
    edge = hub.connect(HELLO, LIFE)
    [_, position] = edge.heard()
    assert isinstance(position, Position)
    assert position.begun == Begun(sent.name, A, sent.file.sha256, 2000)
    edge.say(*whole(sent, at=2000))
    assert edge.heard() == [Stored(sent.name, A, 1)]
    assert (hub.directories.spool / sent.name).read_bytes() == sent.data


def test_no_file_waits_while_others_are_looked_up(hub: Hub) -> None:
    """Whether a node may be brought is asked in a bucket, which may hang, for each edge that
    comes back: those that are there go on.
    """
    edge = hub.connect(HELLO, LIFE, encode(Sent(1).file))
    edge.heard()
    hub.steps = asked = []
    for number in range(20):
        hub.connect(HELLO, encode(Life(f"edge-{number}", A)))
    hang = len(asked)
    edge.say(data(Sent(1).data))
    while len(asked) > hang:
        do, done = asked.pop()
        maybeDeferred(do).chainDeferred(done)
    assert edge.heard() == [Stored(Sent(1).name, A, 1)]


def test_what_is_there_is_read_and_dropped(hub: Hub) -> None:
    """Its sender did not hear that it is; it hears so now."""
    sent = Sent(1)
    hub.connect(HELLO, LIFE, *whole(sent)).connection.lose()
    (hub.directories.spool / sent.name).unlink()
    edge = hub.connect(HELLO, LIFE, *whole(sent), *whole(Sent(4)))
    assert edge.heard()[2:] == [Stored(sent.name, A, 0), Stored(Sent(4).name, A, 1)]
    assert hub.files == [Sent(4).name]


def test_nothing_is_told_before_it_is_durable(hub: Hub) -> None:
    """While a thread writes, nothing is read, and nothing is said; a line that is lost
    meanwhile leaves a node that another can bring.
    """
    hub.steps = []
    sent = Sent(1)
    edge = hub.connect(HELLO, LIFE)
    assert edge.heard() == [Welcome(0, "hub")]
    assert edge.connection.paused
    edge.say(*whole(sent))
    hub.step()
    for _ in ("begin", "write"):
        assert not any(isinstance(one, Stored) for one in edge.heard())
        hub.step()
    assert edge.heard() == []
    assert hub.files == []
    edge.connection.lose()
    hub.step()
    assert hub.files == [sent.name]
    hub.step()  # it lets go
    assert not hub.arrivals.bringing


def test_no_room(hub: Hub) -> None:
    """The edge hears why it waits, once, and that it goes on; it is not idle meanwhile."""
    edge = hub.connect(HELLO, LIFE)
    edge.heard()
    hub.full = "the spool holds 20 GiB"
    edge.say(*whole(Sent(1)))
    assert edge.heard() == [Word("the spool holds 20 GiB")]
    assert edge.connection.paused
    assert edge.connection.waiting
    hub.clock.pump([1.0] * 5)
    assert edge.heard() == []
    assert hub.files == []
    hub.full = None
    hub.clock.advance(1)
    assert edge.heard() == [Word(), Stored(Sent(1).name, A, 1)]
    assert not edge.connection.paused
    assert not edge.connection.waiting


def test_no_room_in_the_middle_of_a_file(hub: Hub) -> None:
    """What came is not written before there is: a thousand files that begin where there was
    room for each do not take what the hub has acknowledged its own.
    """
    sent = Sent(1, 200)
    [begin, *octets] = whole(sent)
    edge = hub.connect(HELLO, LIFE, begin, octets[0])
    edge.heard()
    hub.full = "the disk is full"
    edge.say(*octets[1:])
    assert edge.heard() == [Word("the disk is full")]
    assert edge.connection.paused
    assert not hub.arrivals.nodes["edge"].placing
    hub.full = None
    hub.clock.advance(1)
    assert edge.heard() == [Stored(sent.name, A, 1), Word()]
    assert (hub.directories.spool / sent.name).read_bytes() == sent.data


def test_a_disk_that_is_full(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a file: it goes on by itself."""
    edge = hub.connect(HELLO, LIFE)
    edge.heard()

    def full(path: Path) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(hub.disk, "create", full)
        edge.say(*whole(Sent(1)))
        [word] = edge.heard()
        assert isinstance(word, Word)
        assert "No space left" in word.why
    hub.clock.advance(1)
    assert edge.heard() == [Word(), Stored(Sent(1).name, A, 1)]


def test_somebody_is_there(hub: Hub) -> None:
    """A sign of life each ten seconds, which says why it waits, if it does."""
    edge = hub.connect(HELLO, LIFE)
    edge.heard()
    hub.clock.advance(10)
    assert edge.heard() == [Word()]
    hub.full = "no room"
    edge.say(*whole(Sent(1)))
    edge.heard()
    hub.clock.pump([1.0] * 10)
    assert edge.heard() == [Word("no room")]
    edge.connection.lose()
    hub.clock.advance(20)
    assert edge.heard() == []
    assert not hub.clock.getDelayedCalls()


def test_a_sign_of_life_comes_before_an_edge_gives_up() -> None:
    """Which is after a minute, whatever is configured here."""
    assert Options.model_validate({"word_interval": "30s"}).word_interval == 30
    with pytest.raises(ValueError, match="30s"):
        Options.model_validate({"word_interval": "31s"})


def test_a_newer_connection_ends_the_earlier_one(hub: Hub) -> None:
    """With the reason, at its next sign of life at the latest; whichever life it is of."""
    old = hub.connect(HELLO, LIFE)
    hub.connect(HELLO, encode(Life("edge", B)))
    hub.clock.advance(10)
    assert old.refusal().code == 409
    assert "by a newer connection" in old.refusal().why


def test_the_daemon_stops(hub: Hub) -> None:
    """At once, or when what is in a thread is over; the edge hears that it may come again."""
    idle = hub.connect(HELLO, LIFE)
    idle.heard()
    idle.connection.drain()
    assert idle.heard() == [Refused(503, "the gateway stops")]
    assert idle.connection.closed
    hub.steps = []
    busy = hub.connect(HELLO, LIFE)
    busy.connection.drain()
    assert not busy.connection.closed
    hub.step()
    assert busy.connection.closed
    hub.step()
    hub.steps = None
    hub.full = "no room"
    waiting = hub.connect(HELLO, LIFE, *whole(Sent(1)))
    waiting.connection.drain()
    assert waiting.connection.closed


# Who it is


def test_tokens(tmp_path: Path) -> None:
    """Name and token go together, and a name brings its own node alone, unless more are
    configured: never because it came first.
    """
    hub = Hub(
        tmp_path,
        tokens={"shop": "secret", "ship": "other"},
        nodes={"shop": ["edge", "till-*"]},
    )
    edge = hub.connect(encode(Hello(0, "ship", "other")), LIFE)
    why = "ship may not bring node edge (options.nodes)"
    assert edge.refusal() == Refused(403, why)
    edge = hub.connect(encode(Hello(0, "shop", "secret")), LIFE)
    assert edge.heard() == [Welcome(0, "hub"), Position("edge", {A: 0})]
    assert edge.connection.origin.principal == "shop"
    for name, token in (("shop", ""), ("shop", "other"), ("nobody", ""), ("", "")):
        edge = hub.connect(encode(Hello(0, name, token)))
        assert edge.refusal().code == 401
        assert edge.connection.refused is not None
        assert edge.connection.refused.wrong_credentials
    assert hub.refused == 5


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
def test_who_may_bring_a_node(who: str, node: str, *, may: bool) -> None:
    options = options_of(Options, nodes={"region": ["shop-*", "till-?"]})
    assert may_bring(options, who, node) is may


def test_a_token_that_is_taken_away(tmp_path: Path) -> None:
    """Ends the connection that came by it, in the middle of a file, which goes on under
    the new one.
    """
    nodes = {"shop": ["edge"]}
    hub = Hub(tmp_path, tokens={"shop": "secret"}, nodes=nodes)
    file = Sent(1, 500)
    edge = hub.connect(encode(Hello(0, "shop", "secret")), LIFE)
    edge.say(*[*whole(file)][:3])
    edge.heard()
    now = options_of(Options, tokens={"shop": "new"}, nodes=nodes)
    [server] = hub.connections
    more = {"shop": "secret", "ship": "other"}
    hub.listener.options = options_of(Options, tokens=more, nodes=nodes)
    server.look_again()
    assert edge.connection.refused is None
    hub.listener.options = now
    server.look_again()
    assert edge.refusal() == Refused(
        401, "no such name and token (options.tokens): it was taken away"
    )
    assert hub.connect(encode(Hello(0, "shop", "secret"))).refusal().code == 401
    again = hub.connect(encode(Hello(0, "shop", "new")), LIFE)
    _, position = again.heard()
    assert isinstance(position, Position)
    assert position.begun is not None
    again.say(*whole(file, position.begun.at))
    assert again.heard() == [Stored(file.name, A, 1)]


def test_a_reload_asks_for_tokens_again(tmp_path: Path) -> None:
    """Of who is there: also where none was asked for before, and not of other listeners; and
    of who has come before, and says its name after it.
    """
    daemon = FakeDaemon(protocol, tmp_path, options={"tokens": {"shop": "secret"}})
    edge, late = Edge(daemon.connect()), Edge(daemon.connect())
    edge.say(encode(Hello(0, "shop", "secret")))
    daemon.service.reload()
    assert edge.heard() == [Welcome(0, "node")]
    daemon.context.listeners.clear()  # another one is drained
    daemon.service.reload()
    assert edge.connection.refused is None
    options = {"tokens": {"ship": "secret"}}
    daemon.context.listeners.append(listener_of(protocol, tmp_path, options, {}))
    daemon.service.reload()
    assert edge.refusal().code == 401
    late.say(encode(Hello(0, "shop", "secret")))
    assert late.refusal().code == 401
    daemon.service.retired(daemon.port)
    assert daemon.service._accepting == set()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-2592000.0, "720.0 h behind the one"), (2592000.0, "720.0 h ahead of the one"),
     (250.0, ""), (None, "")],
)  # fmt: skip
def test_a_clock_that_is_a_month_off(
    hub: Hub, seconds: float | None, said: str
) -> None:
    """It is told at the hub, where days go by it, while that edge is there; one that does
    not say what it shows, as earlier ones, is not taken for wrong.
    """
    hub.listener.wall_clock = lambda: 3e9
    shown = 0.0 if seconds is None else 3e9 + seconds
    edge = hub.connect(encode(Hello(0, "shop", time=shown)), LIFE, *whole(Sent(1)))
    [server] = hub.connections
    assert (server.trouble is not None) == bool(said)
    assert said in (server.trouble or "")
    assert "shop" in (server.trouble or "shop")
    assert edge.heard()[-1] == Stored(Sent(1).name, A, 1)


def test_certificates(tmp_path: Path) -> None:
    """Without tokens the certificate says who it is, whatever it says; a token of another
    name is refused.
    """
    hub = Hub(tmp_path)
    edge = hub.connect(HELLO, LIFE, principal="CN=edge,O=Shops")
    assert edge.heard() == [Welcome(0, "hub"), Position("edge", {A: 0})]
    edge = hub.connect(HELLO, LIFE, principal="CN=till-7,O=Shops")
    why = "CN=till-7,O=Shops may not bring node edge (options.nodes)"
    assert edge.refusal() == Refused(403, why)
    hub = Hub(tmp_path, tokens={"shop": "secret"})
    edge = hub.connect(encode(Hello(0, "shop", "secret")), principal="CN=till-7")
    assert edge.refusal().code == 401
    edge = hub.connect(encode(Hello(0, "shop", "secret")), principal="CN=shop")
    assert edge.heard() == [Welcome(0, "hub")]


# What breaks the rules

FILE = encode(File(Sent(1).name, A, 100, "0" * 64))


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([LIFE], "something else than a hello first"),
        ([HELLO, HELLO], "a second hello"),
        ([encode(Hello(1, "shop"))], "version 1; 0 only"),
        ([encode(Hello(0, "x" * 256))], "a name of more than 255 characters"),
        ([HELLO, FILE], "File at a time that is not for it"),
        ([HELLO, data(b"x")], "octets of no file"),
        ([HELLO, LIFE, data(b"x")], "octets of no file"),
        ([HELLO, LIFE, FILE, FILE], "File at a time that is not for it"),
        ([HELLO, LIFE, FILE, LIFE], "Life at a time that is not for it"),
        ([HELLO, encode(Word())], "Word at a time that is not for it"),
        ([HELLO, LIFE, FILE, data(b"x" * 101)], "more bytes than it says"),
        ([HELLO, LIFE, encode(File(Sent(1).name, A, 1, "0" * 64, 2))], "can not go on"),
        (
            [HELLO, LIFE, encode(File(Sent(1).name, A, 9, "0" * 64, -1))],
            "can not go on",
        ),
        ([HELLO, encode(Life("../x", A))], "no node's name"),
        ([b"GET / HTTP/1.1\r\n\r\n"], "unknown type 0x47"),
        ([b"\x01\x00\x01\x00\x01"], "65537 bytes, limit 65536"),
        ([HELLO, LIFE, FILE, b"\x04\x00\x04\x00\x01"], "262145 bytes, limit 262144"),
        ([b"\x01\x00\x00\x00\x02[]"], "Expected `object`, got `array`"),
        ([b"\x01\x00\x00\x00\x01{"], "truncated"),
    ],
)
def test_violations(hub: Hub, frames: list[bytes], why: str) -> None:
    """The connection ends with the reason; nothing of it is in the spool."""
    edge = hub.connect(*frames)
    assert why in edge.refusal().why
    assert edge.connection.failure is None
    assert hub.files == []
    assert not hub.arrivals.bringing


def test_messages_that_bring_nothing(tmp_path: Path) -> None:
    """Pings without end, and lives, are refused; some are what any edge sends."""
    hub = Hub(tmp_path, control_messages=100)
    edge = hub.connect(HELLO, *[encode(Ping())] * 100)
    assert edge.connection.refused is None
    edge.say(encode(Ping()))
    assert "control messages without end" in edge.refusal().why
    edge = hub.connect(HELLO, *[LIFE] * 6)
    assert edge.connection.refused is None
    edge.say(LIFE)
    assert "control messages without end" in edge.refusal().why


def test_small_frames_are_taken_in_turns(hub: Hub) -> None:
    """An octet in each is a file as well, and others are served in between; none in one
    brings nothing, and is counted.
    """
    sent = Sent(1, 1000)
    edge = hub.connect(HELLO, LIFE, encode(sent.at(0)))
    before = edge.connection.turns
    edge.say(b"".join(data(sent.data[at : at + 1]) for at in range(len(sent.data))))
    assert edge.heard()[-1] == Stored(sent.name, A, 1)
    assert edge.connection.turns > before + 3
    edge.say(encode(Sent(1001).at(0)), data(b"") * (1 << 15))
    assert "control messages without end" in edge.refusal().why


def test_no_hello(hub: Hub) -> None:
    """Who says nothing is not waited for."""
    edge = hub.connect()
    hub.clock.advance(10)
    assert edge.refusal() == Refused(400, "no hello")
    assert edge.connection.refused is not None
    assert edge.connection.refused.key == "options.hello_timeout"


def test_a_hello_that_we_have_not_read(hub: Hub) -> None:
    """It is here: the edge is not late."""
    edge = hub.connect()
    edge.connection.unread_input = True
    hub.clock.pump([5] * 9)
    assert edge.connection.refused is None
    edge.connection.unread_input = False
    hub.clock.pump([5] * 2)
    assert edge.refusal() == Refused(400, "no hello")


# The plug-in


def test_the_plug_in(tmp_path: Path) -> None:
    """It is served as any protocol is, shows what it took, and has no memory."""
    daemon = FakeDaemon(protocol, tmp_path)
    edge = Edge(daemon.connect())
    edge.say(HELLO)
    assert edge.heard() == [Welcome(0, "node")]
    [section] = daemon.service.statistics()
    assert section.by_name == {
        "connections": 1, "files": 0, "bytes": 0, "events": 0, "refused": 0
    }  # fmt: skip


def test_a_spool_in_a_bucket(hub: Hub) -> None:
    """What waits to be there is not told, and the next files come meanwhile; all are told
    in order, and no more once the line is lost.
    """
    waiting: set[str] = set()
    hub.arrivals.is_settled = lambda name: name not in waiting  # type: ignore[method-assign]
    files = [Sent(1), Sent(4), Sent(7)]
    waiting |= {files[0].name, files[2].name}
    edge = hub.connect(HELLO, LIFE)
    edge.heard()
    edge.say(*(frame for one in files for frame in whole(one)))
    assert len(hub.files) == 3
    hub.clock.advance(1)
    assert edge.heard() == []
    waiting.remove(files[0].name)
    hub.clock.advance(1)
    assert edge.heard() == [Stored(one.name, A, 3) for one in files[:2]]
    edge.connection.lose()
    waiting.clear()
    hub.clock.advance(1)
    assert edge.heard() == []


@pytest.mark.parametrize("proved", [False, True])
def test_edges_take_turns(hub: Hub, proved: bool) -> None:
    """By the name that they prove; or else by address, as anybody may say many names."""
    hub.steps = []

    def comes(node: str, peer: str) -> None:
        name = f"CN={node}" if proved else None
        hub.connect(HELLO, encode(Life(node, A)), peer=peer, principal=name)

    for number in range(6):
        comes(f"many-{number}", "192.0.2.1:4711")
    comes("other", "192.0.2.2:4711")
    order = []
    while hub.steps:
        [do, _] = hub.steps[0]
        assert isinstance(do, partial)
        order.append(do.args[0].node)
        hub.step()
    last = order.index("other")
    assert last == (6 if proved else 5)  # four were in threads, and one was next


def test_many_edges_together_hold_little(hub: Hub) -> None:
    """The more there are the less of a file is gathered before it is written."""
    edge = hub.connect(HELLO, LIFE)
    hub.connections.update(object() for _ in range(1000))
    hub.steps = []
    edge.say(encode(File(Sent(1).name, A, 100_000, "0" * 64)))
    hub.step()
    edge.say(*[data(bytes(10_000))] * 4)
    assert len(hub.steps) == 1
    hub.step()
    assert next(hub.directories.spool.iterdir()).stat().st_size == 20_000
