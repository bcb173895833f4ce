"""The table of protocols: what the configuration says reaches those it is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from gateway import config
from gateway.daemon.protocols import (
    PROTOCOLS,
    Unusable,
    decoders,
    doors,
    pomelo,
    pomelo_options,
    pravega,
    rsio,
    rsio_options,
)
from gateway.daemon.shared import Shared
from gateway.feeds.live import Live, Tap
from gateway.feeds.publisher import Fault
from gateway.feeds.replay import Replay
from gateway.interfaces import Memory
from gateway.protocols.pravega.controller import Controller
from gateway.protocols.pravega.segments import Segments
from gateway.protocols.rsio.offsets import Offsets
from gateway.store.directories import Directories
from gateway.testing import FakeConnection, ManualJournal

Load = Callable[..., config.Listener]


@pytest.fixture
def load(tmp_path: Path) -> Load:
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


def shared_by_all() -> Shared:
    """What `tap` makes, on a journal in memory."""
    journal, clock = ManualJournal(), Clock()
    container = pravega.Container(journal, clock)
    live = Live(
        "n",
        {},
        durable_lsn=lambda: 0,
        in_thread=maybeDeferred,
        clock=clock,
    )
    return Shared(
        journal=journal,
        reactor=clock,
        registry=pomelo.Registry(),
        container=container,
        history=cast(Any, None),
        controller=Controller(container, clock, advertise=lambda host: (host, 1)),
        offsets=Offsets(),
        tap=Tap(live),
        replay=Replay(live, Directories.under(Path("none")), in_thread=maybeDeferred),
        publishers={"tap": Tap(live)},
    )


def test_every_option_reaches_pomelo(load: Load, tmp_path: Path) -> None:
    """In the types that it takes; defaults are the same on both sides."""
    assert pomelo_options(load("{}").options) == pomelo.Options()
    routes = tmp_path / "routes.json"
    routes.write_text("[]")
    assert pomelo_options(
        load(
            "{heartbeat: 0s, token: t, routes: routes.json, profiles: {a: c2}, "
            "jwt: {key: k, leeway: 5s}, push_bytes: 1KiB, push_policy: kick}"
        ).options
    ) == pomelo.Options(
        heartbeat=0,
        token="t",
        routes=routes,
        profiles={"a": "c2"},
        jwt=pomelo.Jwt(key="k", algorithms=["HS256"], leeway=5.0),
        push_bytes=1024,
        push_policy="kick",
    )


def test_every_option_reaches_rsio(load: Load) -> None:
    """… likewise."""
    assert rsio_options(load("{}", "rsio").options) == rsio.Options(
        subscribe=["events"]
    )
    assert rsio_options(
        load("{subscribe: [a, b], tokens: {x: secret}, window: 7}", "rsio").options
    ) == rsio.Options(subscribe=["a", "b"], tokens={"x": "secret"}, window=7)


def test_pravega_listeners_share_their_segments(load: Load) -> None:
    """Every one serves the same container."""
    shared = shared_by_all()
    one, other = (
        PROTOCOLS["pravega"].accept(load("{}", "pravega"), shared) for _ in range(2)
    )
    assert one.container is other.container is shared.container  # type: ignore[attr-defined]


def test_what_pravega_writers_write(tmp_path: Path) -> None:
    """Octets, unless the configuration knows better."""
    file = tmp_path / "gateway.yaml"
    listener = "{name: a, protocol: pravega, listen: tcp:1, options: {%s}}"
    state = Segments()
    state.create("s", 0)
    last = state.segments["s"].number_of(b"w" * 16)
    event = b"\0\0\0\0\0\0\0\x02{}"
    body = state.append("s", b"w" * 16, 1, event, 0, claimed=1, last=last).body
    for options, expected in (
        ("", "application/octet-stream"),
        ("content_type: application/json", "application/json"),
    ):
        file.write_text(f"listeners: [{listener % options}]")
        assert decoders(config.load(file))["pravega"](body).content_type == expected


def test_clients_of_all_listeners_are_reached(load: Load) -> None:
    """Listeners share the registry that pushes look at."""
    shared = shared_by_all()
    accept = PROTOCOLS["pomelo"].accept(load("{}"), shared)
    connection = FakeConnection(protocol="pomelo")
    connection.serve(accept(connection))
    connection.deliver(b"\x01\0\0\x0a" + b'{"sys":{}}' + b"\x02\0\0\0")
    assert len(shared.registry) == 1


def test_definitions_that_can_not_be_used(load: Load) -> None:
    """… are an error of the start, which names the listener and the option."""
    with pytest.raises(Unusable, match=r"listener game: .*there twice"):
        list(doors(load("{routes: [a, a]}"), shared_by_all()))


def test_a_controller_is_a_door_of_its_own(load: Load) -> None:
    """With the listener's limits and certificate, HTTP/2, and a name that tells."""
    listener = load("{controller: tcp:9090}, websocket: {}", "pravega")
    segments, controller = doors(listener, shared_by_all())
    assert segments.settings is listener
    assert controller.settings.name == "game.controller"
    assert str(controller.settings.listen) == "tcp:9090"
    assert controller.settings.limits == listener.limits
    assert segments.settings.websocket is not None
    assert controller.settings.websocket is None
    assert controller.port["http2"]
    assert len(list(doors(load("{}", "pravega"), shared_by_all()))) == 1


def test_nothing_is_published_unasked(load: Load) -> None:
    """Whoever may write events may not read everybody's."""
    shared = shared_by_all()
    origin = FakeConnection(protocol="rsio").origin
    closed: Any = PROTOCOLS["rsio"].accept(load("{}", "rsio"), shared)
    with pytest.raises(Fault, match="404"):
        closed.publishers.subscribe("tap", None, origin, lambda: None)
    opened: Any = PROTOCOLS["rsio"].accept(load("{publish: [tap]}", "rsio"), shared)
    assert opened.publishers.subscribe("tap", None, origin, lambda: None)


def test_who_remembers(load: Load) -> None:
    """What protocols are said to remember is what the checkpoint is given."""
    memories = shared_by_all().memories
    assert set(memories) == {name for name, one in PROTOCOLS.items() if one.remembers}
    names = [name for name in vars(Memory) if not name.startswith("_")]
    assert all(
        callable(getattr(one, name)) for one in memories.values() for name in names
    )


def test_a_slow_reader_is_cut_off_after_its_pushes_stop(load: Load) -> None:
    """The network's patience is well above what is ever pushed."""
    port = PROTOCOLS["pomelo"].port(load("{push_bytes: 64MiB}"))
    assert port["unread_bytes"] > 2 * 64 * 2**20
    assert port["mixed"]
    assert port["text"]
