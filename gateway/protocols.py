"""The protocols of this version: who serves their connections, who reads their batches,
and what their ports are like.

Part of the composition root: nothing but `tap` and `cli` imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, TypeVar, cast

from pydantic import SecretStr
from twisted.internet.interfaces import IReactorTime

from gateway import config, lumberjack, pomelo, pravega, rsio
from gateway.event import Decode
from gateway.interfaces import Accept, Journal
from gateway.rsio.offsets import Offsets
from gateway.rsio.publisher import Publisher, Publishers

__all__ = ["PROTOCOLS", "Port", "Protocol", "Shared", "container"]

_MiB = 2**20
_Options = TypeVar("_Options")


class Port(TypedDict, total=False):
    """What `net.Listener` takes beside the configuration."""

    subprotocols: Sequence[str]
    alpn: Sequence[bytes]
    mixed: bool
    text: bool
    unread_bytes: int


@dataclass(frozen=True, slots=True)
class Shared:
    """What listeners are made with."""

    journal: Journal
    reactor: Any
    registry: pomelo.Registry
    """The Pomelo clients of all listeners, for pushes."""
    container: pravega.Container
    """The Pravega segments of all listeners."""
    offsets: Offsets
    """How far the RS.io senders of all listeners are stored."""
    publishers: Mapping[str, Publisher]
    """What RS.io peers may subscribe to, where a listener publishes it."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """One protocol."""

    accept: Callable[[config.Listener, Shared], Accept]
    """May raise `pomelo.Unusable` or `pomelo.Unavailable`."""
    decode: Decode
    port: Callable[[config.Listener], Port]


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


def container(
    settings: config.Config, journal: Journal, reactor: Any, reader: pravega.Reader
) -> pravega.Container:
    """The segments of all Pravega listeners, as these are configured."""
    for listener in settings.listeners:
        if isinstance(listener.options, config.PravegaOptions):
            options = listener.options
            break
    else:
        options = config.PravegaOptions()
    return pravega.Container(
        journal,
        cast(IReactorTime, reactor),
        reader=reader,
        recent_bytes=options.recent_bytes,
        writer_retention=options.writer_retention,
    )


def _accept_pravega(listener: config.Listener, shared: Shared) -> Accept:
    settings: Any = listener  # whose options are Pravega's
    return pravega.accept(settings, shared.container)


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
    return rsio.Options(tokens=_revealed(options.tokens), **given)


def _revealed(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: secret.get_secret_value() for name, secret in secrets.items()}


def _rsio_port(_: config.Listener) -> Port:
    return {"subprotocols": ["rsio.v0"], "alpn": [b"rsio/0"]}


PROTOCOLS: Mapping[str, Protocol] = {
    "lumberjack": Protocol(_accept_lumberjack, lumberjack.decode, lambda _: {}),
    "pomelo": Protocol(_accept_pomelo, pomelo.decode, _pomelo_port),
    "pravega": Protocol(_accept_pravega, pravega.decode, lambda _: {}),
    "rsio": Protocol(_accept_rsio, rsio.decode, _rsio_port),
}
