"""The table of protocols: what the configuration says reaches those it is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from gateway import config, pomelo, pravega, rsio
from gateway.protocols import PROTOCOLS, Shared, pomelo_options, rsio_options
from gateway.rsio.offsets import Offsets
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
    return Shared(
        journal,
        clock,
        registry=pomelo.Registry(),
        container=pravega.Container(journal, clock),
        offsets=Offsets(),
        publishers={},
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


def test_clients_of_all_listeners_are_reached(load: Load) -> None:
    """Listeners share the registry that pushes look at."""
    shared = shared_by_all()
    accept = PROTOCOLS["pomelo"].accept(load("{}"), shared)
    connection = FakeConnection(protocol="pomelo")
    connection.serve(accept(connection))
    connection.deliver(b"\x01\0\0\x0a" + b'{"sys":{}}' + b"\x02\0\0\0")
    assert len(shared.registry) == 1


def test_definitions_that_can_not_be_used(load: Load) -> None:
    """… are an error of the start, which names the option."""
    shared: Any = shared_by_all()
    with pytest.raises(pomelo.Unusable, match="there twice"):
        PROTOCOLS["pomelo"].accept(load("{routes: [a, a]}"), shared)


def test_a_slow_reader_is_cut_off_after_its_pushes_stop(load: Load) -> None:
    """The network's patience is well above what is ever pushed."""
    port = PROTOCOLS["pomelo"].port(load("{push_bytes: 64MiB}"))
    assert port["unread_bytes"] > 2 * 64 * 2**20
    assert port["mixed"]
    assert port["text"]
