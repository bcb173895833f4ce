"""What the connections of all listeners have in common, and what of it is remembered.

Part of the composition root: nothing but `tap` and `protocols` imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import SecretStr
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThread

from gateway import config
from gateway.event import Decode
from gateway.feeds.live import Live, Tap
from gateway.feeds.publisher import Publisher
from gateway.feeds.replay import Replay
from gateway.interfaces import Journal, Memory
from gateway.protocols import pomelo, pravega
from gateway.protocols.pravega.controller import Controller
from gateway.protocols.pravega.history import History
from gateway.protocols.rsio.offsets import Offsets
from gateway.store.storage import Storage

__all__ = ["Advertise", "Shared", "pravega_options", "revealed", "share"]

Advertise = Callable[[str], tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What listeners are made with."""

    journal: Journal
    reactor: Any
    registry: pomelo.Registry
    """The Pomelo clients of all listeners, for pushes."""
    container: pravega.Container
    """The Pravega segments of all listeners."""
    history: History
    """Reads them back from files."""
    controller: Controller
    """Where Pravega's clients find them."""
    offsets: Offsets
    """How far the RS.io senders of all listeners are stored."""
    tap: Tap
    """All events as they become durable."""
    replay: Replay
    """All events, from any one on."""
    publishers: Mapping[str, Publisher]
    """What RS.io peers may subscribe to, where a listener publishes it."""

    @property
    def memories(self) -> Mapping[str, Memory]:
        """By the protocol that remembers."""
        return {"pravega": self.container, "rsio": self.offsets}


def share(
    settings: config.Config,
    storage: Storage,
    live: Live,
    reactor: Any,
    *,
    decoders: Mapping[str, Decode],
    advertise: Advertise,
) -> Shared:
    """All of it, as the daemon has it.

    *advertise* gives host and port of the segments to who calls the controller by a
    host.
    """
    history = History(
        settings.node,
        storage.directories,
        protocol="pravega",
        decode=decoders["pravega"],
        in_thread=deferToThread,
    )
    options = pravega_options(settings)
    clock = cast(IReactorTime, reactor)
    container = pravega.Container(
        storage.journal,
        clock,
        reader=history,
        recent_bytes=options.recent_bytes,
        writer_retention=options.writer_retention,
    )
    tap = Tap(live)
    replay = Replay(live, storage.directories, in_thread=deferToThread)
    return Shared(
        journal=storage.journal,
        reactor=reactor,
        registry=pomelo.Registry(),
        container=container,
        history=history,
        controller=Controller(
            container,
            clock,
            advertise=advertise,
            users=revealed(options.users),
            tokens={token: name for name, token in revealed(options.tokens).items()},
            token_lifetime=options.token_lifetime,
            segments=options.segments,
            table_bytes=options.table_bytes,
        ),
        offsets=Offsets(),
        tap=tap,
        replay=replay,
        publishers={"tap": tap, "events": replay},
    )


def pravega_options(settings: config.Config) -> config.PravegaOptions:
    """What all listeners agree on, from the first."""
    for listener in settings.listeners:
        if isinstance(listener.options, config.PravegaOptions):
            return listener.options
    return config.PravegaOptions()


def revealed(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    """Where secrets stop being secret types."""
    return {name: secret.get_secret_value() for name, secret in secrets.items()}
