"""The protocols of one daemon: what the configuration says reaches those it is for, and
what a plug-in gets wrong costs nobody else."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr
from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher

from gateway import config
from gateway.admin.site import OWN_PATHS
from gateway.daemon.protocols import Broken, Protocols
from gateway.plugins import Installed, installed
from gateway.protocols.pravega.segments import Segments
from gateway.sdk.interfaces import Memory
from gateway.sdk.protocol import Port, Protocol, Service, Unusable
from gateway.sdk.publisher import Fault
from gateway.testing import FakeConnection
from gateway.testing.plugins import lend
from making import Make
from memory_daemon import listener

Load = Make[config.Listener]
BUILT_IN = ("lumberjack", "pomelo", "pravega", "rsio")


@pytest.fixture
def load(tmp_path) -> Load:
    """A listener with these options."""

    def load_options(options: str, protocol: str = "pomelo") -> config.Listener:
        file = tmp_path / "gateway.yaml"
        file.write_text(
            f"listeners: [{{name: game, protocol: {protocol}, listen: tcp:1, "
            f"options: {options}}}]"
        )
        [listener] = config.load(file).listeners
        return listener

    return load_options


@pytest.fixture
def serve(tmp_path) -> Make:
    """The service of a built-in protocol for these listeners."""

    def make(name: str, *listeners: config.Listener) -> Any:
        protocol = installed().protocols[name]
        return protocol.service(lend(protocol, tmp_path, listeners))

    return make


# What the built-in ones make of their options


def test_every_option_of_pomelo(load, serve, tmp_path):
    """Reaches its server, in its own unit."""
    routes = tmp_path / "routes.json"
    routes.write_text("[]")
    listener = load(
        "{heartbeat: 0s, token: t, routes: routes.json, profiles: {a: c2}, "
        "jwt: {key: k, leeway: 5s}, push_bytes: 1KiB, push_policy: kick}"
    )
    [port] = serve("pomelo", listener).ports(listener)
    options = port.accept.options
    assert options.heartbeat == 0
    assert options.token == SecretStr("t")
    assert options.routes == routes
    assert options.profiles == {"a": "c2"}
    assert (options.jwt.key, options.jwt.leeway) == (SecretStr("k"), 5.0)
    assert (options.push_bytes, options.push_policy) == (1024, "kick")


def test_pravega_listeners_share_their_segments(load, serve):
    """Every one serves the same container."""
    listener = load("{}", "pravega")
    service = serve("pravega", listener, listener)
    one, other = (next(iter(service.ports(listener))).accept for _ in range(2))
    assert one.container is other.container is service.container


def test_what_pravega_writers_write(load):
    """Octets, unless the configuration knows better."""
    state = Segments()
    state.create("s", 0)
    last = state.segments["s"].number_of(b"w" * 16)
    event = b"\0\0\0\0\0\0\0\x02{}"
    body = state.append("s", b"w" * 16, 1, event, 0, claimed=1, last=last).body
    for options, expected in (
        ("{}", "application/octet-stream"),
        ("{content_type: application/json}", "application/json"),
    ):
        listener = load(options, "pravega")
        decoders = Protocols(installed(), [listener], lambda name: None).decoders()
        assert decoders["pravega"](body).content_type == expected


def test_clients_of_all_listeners_are_reached(load, serve):
    """Listeners share the registry that pushes look at."""
    listener = load("{}")
    service = serve("pomelo", listener)
    [port] = service.ports(listener)
    connection = FakeConnection(protocol="pomelo")
    connection.serve(port.accept(connection))
    connection.deliver(b"\x01\0\0\x0a" + b'{"sys":{}}' + b"\x02\0\0\0")
    assert len(service.registry) == 1


def test_a_controller_is_a_port_of_its_own(load, serve):
    """HTTP/2, over TLS, too, never over WebSocket, with a name that tells."""
    listener = load("{controller: tcp:9090}, websocket: {}", "pravega")
    segments, controller = serve("pravega", listener).ports(listener)
    assert (segments.suffix, segments.listen) == ("", None)
    assert controller.suffix == ".controller"
    assert str(controller.listen) == "tcp:9090"
    assert not controller.websocket
    assert (controller.prefixes, controller.alpn) == ([b"PRI "], [b"h2"])
    listener = load("{}", "pravega")
    assert len(list(serve("pravega", listener).ports(listener))) == 1


def test_nothing_is_published_unasked(load, serve):
    """Whoever may write events may not read everybody's."""
    origin = FakeConnection(protocol="rsio").origin

    def publishers(options: str) -> Any:
        listener = load(options, "rsio")
        [port] = serve("rsio", listener).ports(listener)
        return port.accept.publishers

    with pytest.raises(Fault, match="404"):
        publishers("{}").subscribe("tap", None, origin, lambda: None)
    found = publishers("{publish: [tap]}").subscribe("tap", None, origin, lambda: None)
    assert found


def test_a_slow_reader_is_cut_off_after_its_pushes_stop(load, serve):
    """The network's patience is well above what is ever pushed."""
    listener = load("{push_bytes: 64MiB}")
    [port] = serve("pomelo", listener).ports(listener)
    assert port.unread_bytes > 2 * 64 * 2**20
    assert port.mixed
    assert port.text


@pytest.mark.parametrize("name", BUILT_IN)
def test_who_remembers(name, serve):
    """A protocol has a memory exactly if it says so, without any listener too."""
    memory = serve(name).memory
    assert (memory is not None) == installed().protocols[name].remembers
    if memory is not None:
        calls = [call for call in vars(Memory) if not call.startswith("_")]
        assert all(callable(getattr(memory, call)) for call in calls)


# What a plug-in gets wrong


class Clumsy(Service):
    """Whatever is in `raising` raises."""

    def __init__(self, raising: set[str]) -> None:
        self.raising = raising
        self.called: list[str] = []

    def _call(self, name: str) -> None:
        self.called.append(name)
        if name in self.raising:
            raise RuntimeError(f"{name} is broken")

    def ports(self, listener: Any) -> Iterator[Port]:
        self._call("ports")
        yield Port(accept=lambda connection: None)  # type: ignore[arg-type, return-value]

    def start(self) -> None:
        self._call("start")

    async def stop(self) -> None:
        self._call("stop")

    def close(self) -> None:
        self._call("close")

    def reload(self) -> None:
        self._call("reload")

    def files_removed(self) -> None:
        self._call("files_removed")

    def statistics(self) -> Any:
        self._call("statistics")
        return ()

    def posts(self) -> Any:
        self._call("posts")
        return {}


class World:
    """Two protocols in a daemon, of which `clumsy` raises."""

    def __init__(self, raising: str) -> None:
        self.clumsy, self.sound = Clumsy({raising}), Clumsy(set())
        self.failures: list[str] = []
        self.protocols = Protocols(
            Installed({"clumsy": self._plugin(self.clumsy),
                       "sound": self._plugin(self.sound)}, {}),
            [self._listener("clumsy"), self._listener("sound")],
            self.failures.append,
        )  # fmt: skip
        self.protocols.open([], lambda name, listeners: None)  # type: ignore[arg-type, return-value]

    def _plugin(self, made: Service) -> Protocol:
        class Plugin(Protocol):
            def service(self, context: Any) -> Service:
                return made

        return Plugin()

    def _listener(self, protocol: str) -> config.Listener:
        return config.Listener.model_construct(
            name=f"on-{protocol}", protocol=protocol, options=None
        )


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What is logged meanwhile."""
    lines: list[str] = []

    def observe(event: Any) -> None:
        lines.append((event.get("log_format") or "").format(**event))

    globalLogPublisher.addObserver(observe)
    yield lines
    globalLogPublisher.removeObserver(observe)


@pytest.mark.parametrize("call", ["ports", "start", "posts"])
def test_at_the_start(call):
    """A plug-in that raises ends the start, by its name and with the reason."""
    world = World(call)

    def ask() -> None:
        if call == "ports":
            world.protocols.ports(world._listener("clumsy"))
        else:
            getattr(world.protocols, call)()

    with pytest.raises(Broken, match=f"'clumsy' fails.*RuntimeError: {call} is broken"):
        ask()


@pytest.mark.parametrize(
    ("call", "paths", "why"),
    [
        ("gets", {"/metrics": None}, "/metrics is not below /api/"),
        ("gets", {"/api/status": None}, "/api/status is taken by another"),
        ("posts", {"/api/reload": None}, "/api/reload is taken by another"),
        ("posts", None, "fails in .*it gives None, and not a Mapping"),
    ],
)
def test_pages_that_it_can_not_have(call, paths, why, monkeypatch):
    """The gateway's own stay what they are."""
    world = World("nothing")
    monkeypatch.setattr(world.clumsy, call, lambda: paths)
    with pytest.raises(Broken, match=f"protocol 'clumsy'.*{why}"):
        getattr(world.protocols, call)()


def test_the_gateways_own_pages_are_known(start):
    """All that a daemon answers below /api/ without help of a protocol."""
    site: Any = start(listener("beats", "lumberjack", 5044)).running.admin.site
    paths = {*site._pages, *site._posts}
    assert {path for path in paths if path.startswith("/api/")} == OWN_PATHS


@pytest.mark.parametrize("found", [[], [7]])
def test_ports_that_are_none(found, monkeypatch):
    """A listener that listens nowhere does not begin."""
    world = World("nothing")
    monkeypatch.setattr(world.clumsy, "ports", lambda listener: found)
    with pytest.raises(Broken, match=r"'clumsy' fails in .*ports of on-clumsy are \["):
        world.protocols.ports(world._listener("clumsy"))


@pytest.mark.parametrize("hook", ["service", "decoder"])
def test_a_hook_that_gives_nothing(hook):
    """The start ends with its name; it is no traceback."""

    class Empty(Protocol):
        def service(self, context: Any) -> Any: ...
        def decoder(self, options: Any) -> Any: ...

    listener = config.Listener.model_construct(protocol="empty", options=None)
    protocols = Protocols(
        Installed({"empty": Empty()}, {}), [listener], lambda name: None
    )
    asks = {
        "service": lambda: protocols.open([], lambda name, listeners: None),  # type: ignore[arg-type, return-value]
        "decoder": protocols.decoders,
    }
    with pytest.raises(Broken, match=rf"'empty' fails in .*{hook}: .*it gives None"):
        asks[hook]()


@pytest.mark.parametrize("call", ["close", "reload", "files_removed", "statistics"])
def test_while_it_runs(call, logged):
    """It is counted each time and told once; the other protocol is called all the same."""
    world = World(call)
    for _ in range(3):
        getattr(world.protocols, call)()
    assert world.sound.called == [call] * 3
    assert world.failures == ["clumsy"] * 3
    assert logged == [f"protocol clumsy fails in {call}; told once"]


def test_at_the_end(logged):
    world = World("stop")
    done = Deferred.fromCoroutine(world.protocols.stop())
    assert done.called
    assert world.sound.called == ["stop"]
    assert logged == ["protocol clumsy fails in stop; told once"]


@pytest.mark.parametrize(("served", "remembers"), [(1, 0), (0, 1), (0, 0)])
def test_a_decoder_that_is_not_there(served, remembers, logged):
    """The start ends if somebody needs it; else all others go on."""

    class Undecided(Protocol):
        def decoder(self, options: Any) -> Any:
            raise RuntimeError("no idea")

    plugin = Undecided()
    plugin.remembers = bool(remembers)  # type: ignore[misc]
    listener = config.Listener.model_construct(protocol="undecided", options=None)
    found = Installed({**installed().protocols, "undecided": plugin}, {})
    protocols = Protocols(found, [listener] * served, lambda name: None)
    why = "protocol 'undecided' fails in .*decoder: RuntimeError: no idea"
    if served or remembers:
        with pytest.raises(Broken, match=why):
            protocols.decoders()
    else:
        assert set(protocols.decoders()) == set(installed().protocols)
        assert logged[-1].startswith("left out: protocol 'undecided'")


def test_options_that_can_not_be_used(load, tmp_path):
    """… are an error of the start, which names the listener and the option."""
    listener = load("{routes: [a, a]}")
    protocols = Protocols(installed(), [listener], lambda name: None)
    protocol = installed().protocols["pomelo"]
    protocols.open([], lambda name, own: lend(protocol, tmp_path, own))
    with pytest.raises(Unusable, match=r"listener game: .*there twice"):
        protocols.ports(listener)


def test_what_is_remembered_is_kept_unserved(load, tmp_path):
    """A protocol with state on disk is opened though no listener serves it."""
    protocols = Protocols(installed(), [load("{}")], lambda name: None)
    memories = protocols.open(
        ["rsio"], lambda name, own: lend(installed().protocols[name], tmp_path, own)
    )
    assert set(memories) == {"rsio"}
    assert not protocols.remember
