"""The types of one listener: where, what is spoken, TLS, WebSocket, PROXY, limits.

As in `model`, which has the others; `listeners[].options` is of the type that the
installed protocol names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializeAsAny,
    ValidationInfo,
    field_validator,
    model_validator,
)

from gateway import plugins
from gateway.config.fields import OneOrSeveral
from gateway.sdk.endpoint import Systemd, Tcp, Unix
from gateway.sdk.fields import (
    TEXT_SCHEMA,
    FilePath,
    Listen,
    Name,
    Network,
    Switch,
    Text,
    UrlPath,
    WebOrigin,
    matching,
)
from gateway.sdk.limits import Limits
from gateway.sdk.section import NEW_CONNECTIONS, Place, Section


class WebSocket(Section):
    """The protocol as binary WebSocket messages (RFC 6455)."""

    path: UrlPath = Field(default="/", description="Where clients may upgrade")
    origins: list[WebOrigin] = Field(
        default=[],
        description="Web pages that may connect, as https://host; [] = any",
    )


class ProxyProtocol(Section):
    """PROXY protocol v1 and v2, as load balancers send it."""

    trusted: list[Network] = Field(
        min_length=1,
        description="Networks whose PROXY header is believed; others are refused",
    )
    names: Switch = Field(
        default=False,
        description="Believe them, too, whose certificate their client has shown (v2, TLV SSL, CN)",
    )


AllowedName = Annotated[
    str,
    matching(
        re.compile(r"[^*]+|\*(\.[^*.,=\s]+)+"),
        "be whole, or begin with *. for any first label, as *.example.org (others: each "
        "name, or an authority of their own as client_ca)",
    ),
    TEXT_SCHEMA,
]


class Tls(Section):
    """Certificates; files that change are read again, and on SIGHUP."""

    certificate: FilePath = Field(
        description="PEM file: the certificate, then its intermediates"
    )
    private_key: FilePath = Field(description="PEM file: the certificate's key")
    client_auth: Literal["none", "optional", "required"] = Field(
        default="none", description="Client certificates: none, optional or required"
    )
    client_ca: FilePath | None = Field(
        default=None, description="PEM file: authorities that sign client certificates"
    )
    client_crl: OneOrSeveral[FilePath] | None = Field(
        default=None,
        description="PEM file, or a list: what those authorities have revoked; null = not looked at",
    )
    client_crl_expired: Literal["refuse", "accept"] = Field(
        default="refuse",
        description="Client certificates whose authority's CRL has expired: refuse or accept",
    )
    allowed_names: list[AllowedName] = Field(
        default=[],
        description="Subjects, alternative names, *.example.org that may connect; [] = any signed",
    )
    minimum_version: Literal["TLSv1.2", "TLSv1.3"] = Field(
        default="TLSv1.2", description="The oldest TLS version to accept"
    )

    @property
    def crl_files(self) -> list[FilePath]:
        """The files of `client_crl`, one or several."""
        found = self.client_crl
        return found if isinstance(found, list) else [found] if found else []

    def misfits(self) -> Iterator[tuple[Place, str]]:
        """Keys about client certificates that do not agree with each other."""
        if self.client_auth != "none" and self.client_ca is None:
            yield ("client_ca",), f"needed for client_auth: {self.client_auth}"
        if self.client_auth == "none" and self.client_ca is not None:
            yield ("client_ca",), "has no effect with client_auth: none"
        if self.client_auth == "none" and self.client_crl is not None:
            yield ("client_crl",), "has no effect with client_auth: none"
        if self.client_crl is None and self.client_crl_expired == "accept":
            yield ("client_crl_expired",), "has no effect without client_crl"
        if self.client_auth == "none" and self.allowed_names:
            yield ("allowed_names",), "needs client_auth: required or optional"


def _not_by_accident(value: object, info: ValidationInfo) -> object:
    if value is None and info.context:  # all its lines are comments, perhaps
        raise ValueError("is empty; leave the key out to have no encryption")
    return value


def _off(value: object) -> object:
    return None if value is False or value == "false" else value


def _write_off(value: Section | None) -> Any:
    return value.model_dump(mode="json") if value else False


_OR_FALSE = (BeforeValidator(_off), PlainSerializer(_write_off, when_used="json"))
Encryption = Annotated[Tls | None, BeforeValidator(_not_by_accident)]
Balancers = Annotated[ProxyProtocol | None, *_OR_FALSE]


class NoOptions(Section):
    """`options` of a protocol that takes none."""


class Listener(Section):
    """One place to listen and the protocol that is spoken there."""

    reload: ClassVar = NEW_CONNECTIONS

    name: Name = Field(description="Yours to choose; events and metrics carry it")
    protocol: Text = Field(description="What is spoken: the name of an installed one")
    listen: Listen = Field(
        description="tcp:PORT (IPv4), tcp:[::]:PORT (all), tcp:HOST:PORT, unix:PATH or systemd:NAME"
    )
    reuse_port: Switch = Field(
        default=False,
        description="Several gateways of this machine and user share the port",
    )
    websocket: Annotated[WebSocket | None, *_OR_FALSE] = Field(
        default=None,
        description="false, or where WebSocket clients upgrade; default: the protocol's",
    )
    proxy_protocol: Balancers = Field(
        default=None, description="false, or which load balancers to believe"
    )
    tls: Encryption = Field(default=None, description="Absent = not encrypted")
    limits: Limits = Field(
        default_factory=Limits, description="What peers may take of us"
    )
    options: SerializeAsAny[Section] = Field(
        default_factory=lambda: None,  # the validator knows which
        validate_default=True,
        description="The protocol's own",
    )

    @property
    def client_certificates(self) -> bool:
        return self.tls is not None and self.tls.client_auth == "required"

    def misfits(self) -> Iterator[tuple[Place, str]]:
        """Keys that need another protocol or endpoint.

        Only a TCP port with a fixed number can be shared, and only some protocols end connections
        between messages.
        """
        if self.limits.connection_age is not None:
            known = plugins.installed().protocols
            if not known[self.protocol].ages:
                those = ", ".join(sorted(name for name in known if known[name].ages))
                why = f"is not for {self.protocol} ({those} have it)"
                yield ("limits", "connection_age"), why
        if not self.reuse_port:
            return
        match self.listen:
            case Tcp(_, 0):
                why = "is for a port that others know, not for any free one (tcp:0)"
                yield ("reuse_port",), why
            case Unix() | Systemd():
                yield ("reuse_port",), f"is for a port of tcp:, not for {self.listen}"

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_protocol(cls, value: object) -> object:
        """Some protocols' clients need WebSocket, or other limits, and do not say so."""
        if not isinstance(value, dict):
            return value
        known = plugins.installed().protocols.get(str(value.get("protocol")))
        if known is None:
            return value
        limits = value.get("limits") or {}
        if known.limits and isinstance(limits, dict):
            value = {**value, "limits": {**known.limits, **limits}}
        return {"websocket": {}, **value} if known.websocket else value

    @field_validator("protocol")
    @classmethod
    def _installed(cls, protocol: str) -> str:
        found = plugins.installed()
        if protocol not in found.protocols:
            raise ValueError(found.why_not(protocol))
        return protocol

    @field_validator("options", mode="before")
    @classmethod
    def _of_the_protocol(cls, value: object, info: ValidationInfo) -> object:
        kind = options_of(info.data.get("protocol", ""))
        if kind is None:  # the protocol is a problem already
            return NoOptions()
        return kind.model_validate(value or {}, context=info.context)


def options_of(protocol: object) -> type[Section] | None:
    """The type of a protocol's options; None if not installed, ValueError if it does not say."""
    known = plugins.installed().protocols.get(str(protocol))
    if known is None:
        return None
    try:
        kind = known.options() or NoOptions
        if not (isinstance(kind, type) and issubclass(kind, Section)):
            raise TypeError(f"{kind!r} is no subclass of gateway.sdk.section.Section")
    except plugins.RAISED as why:
        raise ValueError(plugins.failure(str(protocol), "options", why)) from why
    return kind


def options_of_all() -> Iterator[tuple[str, type[Section]]]:
    """The name of each protocol that is installed, and the type of its options.

    Standard error says which can not be asked; those are left out.
    """
    for name in plugins.installed().protocols:
        try:
            kind = options_of(name)
        except ValueError as why:
            plugins.complain(str(why))
        else:
            assert kind is not None
            yield name, kind
