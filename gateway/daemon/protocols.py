"""The protocols of this version: who serves their connections, who reads their batches,
and what their ports are like.

Part of the composition root: nothing but `tap` and `cli` imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypedDict, TypeVar, cast

from twisted.internet.interfaces import IReactorTime

from gateway import config
from gateway.daemon.shared import Shared, pravega_options, revealed
from gateway.event import Decode
from gateway.feeds.publisher import Publishers
from gateway.interfaces import Accept
from gateway.protocols import lumberjack, pomelo, pravega, rsio
from gateway.protocols.pravega import controller

__all__ = ["PROTOCOLS", "Door", "Port", "Protocol", "Unusable", "decoders", "doors"]

_MiB = 2**20
_Options = TypeVar("_Options")


class Port(TypedDict, total=False):
    """What `net.Listener` takes beside the configuration."""

    subprotocols: Sequence[str]
    alpn: Sequence[bytes]
    mixed: bool
    text: bool
    http2: bool
    unread_bytes: int


@dataclass(frozen=True, slots=True)
class Protocol:
    """One protocol."""

    accept: Callable[[config.Listener, Shared], Accept]
    """May raise `pomelo.Unusable` or `pomelo.Unavailable`."""
    decode: Decode
    port: Callable[[config.Listener], Port]
    remembers: bool = False
    """It has a memory: `Shared.memories`."""


@dataclass(frozen=True, slots=True)
class _Settings(Generic[_Options]):
    """A listener's configuration, its options in the protocol's own words."""

    limits: config.Limits
    options: _Options


def _accept_lumberjack(listener: config.Listener, shared: Shared) -> Accept:
    settings: Any = listener  # whose options are Lumberjack's
    return lumberjack.accept(settings, shared.journal, shared.reactor)


def _accept_pomelo(listener: config.Listener, shared: Shared) -> Accept:
    settings = _Settings(listener.limits, pomelo_options(listener.options))
    clock = cast(IReactorTime, shared.reactor)
    return pomelo.accept(settings, shared.journal, clock, shared.registry)


def pomelo_options(options: object) -> pomelo.Options:
    """Where secrets stop being secret types."""
    assert isinstance(options, config.PomeloOptions)
    given = {
        name: getattr(options, name)
        for name in type(options).model_fields
        if name not in ("heartbeat", "token", "jwt", "outbox")
    }
    token, jwt = options.token, options.jwt
    return pomelo.Options(
        heartbeat=int(options.heartbeat),
        token=None if token is None else token.get_secret_value(),
        jwt=None
        if jwt is None
        else pomelo.Jwt(
            key=jwt.key.get_secret_value(),
            algorithms=jwt.algorithms,
            audience=jwt.audience,
            issuer=jwt.issuer,
            leeway=jwt.leeway,
            claim=jwt.claim,
        ),
        **given,
    )


def _pomelo_port(listener: config.Listener) -> Port:
    assert isinstance(listener.options, config.PomeloOptions)
    # Pushes stop at push_bytes; being cut off is for those who read nothing at all.
    return {
        "mixed": True,
        "text": True,
        "unread_bytes": 8 * listener.options.push_bytes + 16 * _MiB,
    }


def _accept_pravega(listener: config.Listener, shared: Shared) -> Accept:
    settings: Any = listener  # whose options are Pravega's
    # The check keeps everybody out of our own segments, too.
    return pravega.accept(settings, shared.container, shared.controller.tokens.check)


def _accept_rsio(listener: config.Listener, shared: Shared) -> Accept:
    assert isinstance(listener.options, config.RsioOptions)
    return rsio.accept(
        _Settings(listener.limits, rsio_options(listener.options)),
        shared.journal,
        cast(IReactorTime, shared.reactor),
        publishers=Publishers(
            {name: shared.publishers[name] for name in listener.options.publish}
        ),
        offsets=shared.offsets,
    )


def rsio_options(options: object) -> rsio.Options:
    """Where secrets stop being secret types."""
    assert isinstance(options, config.RsioOptions)
    given = {
        name: getattr(options, name)
        for name in type(options).model_fields
        if name not in ("tokens", "publish")
    }
    return rsio.Options(tokens=revealed(options.tokens), **given)


def _rsio_port(_: config.Listener) -> Port:
    return {"subprotocols": ["rsio.v0"], "alpn": [b"rsio/0"], "mixed": True}


PROTOCOLS: Mapping[str, Protocol] = {
    "lumberjack": Protocol(_accept_lumberjack, lumberjack.decode, lambda _: {}),
    "pomelo": Protocol(_accept_pomelo, pomelo.decode, _pomelo_port),
    "pravega": Protocol(_accept_pravega, pravega.decode, lambda _: {}, remembers=True),
    "rsio": Protocol(_accept_rsio, rsio.decode, _rsio_port, remembers=True),
}


def decoders(settings: config.Config) -> Mapping[str, Decode]:
    """Who turns stored batches into rows, as configured."""
    plain = {name: each.decode for name, each in PROTOCOLS.items()}
    content_type = pravega_options(settings).content_type
    return {**plain, "pravega": partial(pravega.decode, content_type=content_type)}


class Unusable(Exception):
    """A listener's options can not be had."""


@dataclass(frozen=True, slots=True)
class Door:
    """Something to listen on."""

    settings: config.Listener
    accept: Accept
    port: Port


def doors(listener: config.Listener, shared: Shared) -> Iterator[Door]:
    """What one entry of `listeners` opens: itself, and Pravega's controller.

    Raises `Unusable`.
    """
    protocol = PROTOCOLS[listener.protocol]
    try:
        accept = protocol.accept(listener, shared)
    except (pomelo.Unusable, pomelo.Unavailable) as why:
        raise Unusable(f"listener {listener.name}: {why}") from None
    yield Door(listener, accept, protocol.port(listener))
    options = listener.options
    if isinstance(options, config.PravegaOptions) and options.controller is not None:
        yield Door(
            listener.model_copy(
                update={
                    "name": f"{listener.name}.controller",
                    "listen": options.controller,
                    "websocket": None,  # gRPC is never carried over one
                }
            ),
            controller.accept(listener, shared.controller),
            {"alpn": [b"h2"], "http2": True, "unread_bytes": 4 * _MiB},
        )
