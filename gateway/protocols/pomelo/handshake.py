"""Pomelo's handshake: admits a client, and sends it the dictionary and definitions.

    -> {"sys": {"type", "version", "dictVersion", "protoVersion", …}, "user": {…}}
    <- {"code": 200, "sys": {"heartbeat", the dictionary, the protos}, "user": …}

A handshake that can not be read, or a client that is not admitted, is answered with
`{"code": 500}`, a client that is too old with `{"code": 501}`; then comes FIN.

Client libraries differ in what they understand; a `Profile` describes one family of
them.  Connections with the same profile and the same definitions share their `Terms`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from attrs import define

from gateway.protocols.pomelo import wire
from gateway.protocols.pomelo.auth import Admit, Admitted, Denied
from gateway.protocols.pomelo.protobuf import Schema, Unencodable
from gateway.protocols.pomelo.routes import STORED, Definitions, Protos
from gateway.protocols.pomelo.text import ascii_json, ascii_text, text
from gateway.protocols.pomelo.wire import Route
from gateway.sdk.interfaces import Refusal

OK = ascii_json(STORED)

_MOST_NAME = 64
_NEVER_SECONDS = 3600
"""The heartbeat that pitaya's clients are told if there is none: its Go client panics
without one."""
_MOST_DEPTH = 4


@dataclass(slots=True, frozen=True)
class Profile:
    """The abilities of a family of client libraries."""

    name: str
    dictionary: bool = True
    """Whether it is sent the dictionary."""
    most_code: int = 0xFFFF
    """The largest code in its dictionary."""
    coded_pushes: bool = True
    """Whether it understands pushes that use the dictionary's codes."""
    protos: bool = True
    """Whether it is sent the protobuf definitions."""
    encoded_responses: bool = True
    """Whether it decodes responses with them, too."""
    browser: bool = False
    """Whether it caches definitions across connections and has protobuf strings in CESU-8."""
    pitaya: bool = False
    """Whether it knows `serializer` and the error bit."""


PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile("js", browser=True),
        Profile("pinus"),
        Profile("c", most_code=0xFF),
        Profile("c2", encoded_responses=False),
        Profile("py", coded_pushes=False),
        Profile("plain", dictionary=False, protos=False),
        Profile("pitaya", dictionary=False, protos=False, pitaya=True),
    )
}

#: The types of libpomelo2, whose programs choose the name of their platform.
_C2 = frozenset(
    ("desktop", "android", "ios", "linux", "mac", "osx", "macos", "windows", "win32",
     "python", "java", "csharp", "c#")
)  # fmt: skip


def _profile(sys: Mapping[str, Any], configured: Mapping[str, str]) -> Profile:
    kind = sys.get("type")
    pitaya = "platform" in sys and "libVersion" in sys
    if pitaya and kind is None:
        kind = sys["platform"]
    name = configured.get(str(kind)) or configured.get("*")
    if name is None:
        if pitaya:
            name = "pitaya"
        elif kind == "c":
            name = "c"
        elif kind == "socket":
            name = "py"
        elif isinstance(sys.get("rsa"), Mapping):  # only browsers' clients send it
            name = "js"
        elif str(kind).lower() in _C2:
            name = "c2"
        else:
            name = "pinus"
    return PROFILES[name]


@dataclass(slots=True, frozen=True)
class KnownRoute:
    """A route in the dictionary, or with a protobuf definition."""

    name: str
    coded: bool
    """The key that it is listed under is its code."""
    request: Schema | None
    """Decodes the bodies of its requests and notifies; None if they are JSON."""
    answer: bool
    """Whether responses are in protobuf."""
    backed: bool = False
    """A service of the game's answers its requests."""


class _Cached(NamedTuple):
    """The definitions that a client has cached from earlier connections."""

    dictionary: bool
    protos: bool
    others: bool
    """Definitions of any version."""


@define(eq=False, slots=False)
class Terms:
    """The terms of a connection: definitions that its handshake sent, and encoding by them."""

    profile: Profile
    _definitions: Definitions
    heartbeat: int
    _backed: Collection[str] = ()
    _user: bytes | None = None

    def __attrs_post_init__(self) -> None:
        profile, definitions = self.profile, self._definitions
        self._dictionary = definitions.dictionary if profile.dictionary else None
        self._protos = definitions.protos if profile.protos else None
        self._codes: dict[str, int] = {}
        if self._dictionary is not None:
            self._codes = {
                name: code
                for name, code in self._dictionary.codes.items()
                if code <= profile.most_code
            }
        self._answers: Schema | None = None
        if self._protos is not None:
            protos = self._protos
            self._answers = (
                protos.browser_answers if profile.browser else protos.answers
            )
        self._responses = self._answers if profile.encoded_responses else None
        """The schemas of responses; pushes have `_answers`, whatever the profile."""
        self.routes: dict[Route, KnownRoute] = dict(self._known())
        """Routes by code, and by name in UTF-8; the client knows no other codes."""
        self._told: dict[_Cached, bytes] = {}
        self._replies: dict[_Cached, bytes] = {}
        self._ok: dict[str, bytes] = {}

    def _known(self) -> Iterator[tuple[Route, KnownRoute]]:
        requests = None if self._protos is None else self._protos.requests
        answers = self._responses
        names = {*self._codes, *self._backed}
        for schema in (requests, answers):
            names.update(() if schema is None else schema.routes)
        for name in names:
            decodes = requests if requests is not None and name in requests else None
            answer = answers is not None and name in answers
            backed = name in self._backed
            if decodes is not None or answer or backed:
                yield name.encode(), KnownRoute(name, False, decodes, answer, backed)
            if name in self._codes:
                code = self._codes[name]
                yield code, KnownRoute(name, True, decodes, answer, backed)

    # The reply

    def reply(self, sys: Mapping[str, Any], user: bytes | None = None) -> bytes:
        """The package that answers a handshake, without what the client has cached.

        *user* is what it tells this client alone, in place of what all are told: JSON in
        ASCII.
        """
        cached = self._cached(sys)
        if user is None and (reply := self._replies.get(cached)) is not None:
            return reply
        told = self._told.get(cached)
        if told is None:
            told = self._told[cached] = ascii_json(self._sys(cached))
        if user is not None:
            return _reply(told, user)
        reply = self._replies[cached] = _reply(told, self._user)
        return reply

    def _cached(self, sys: Mapping[str, Any]) -> _Cached:
        dictionary, protos = self._dictionary, self._protos
        version = sys.get("protoVersion")
        return _Cached(
            dictionary is not None and sys.get("dictVersion") == dictionary.version,
            protos is not None and version == protos.version,
            bool(version),
        )

    def _sys(self, cached: _Cached) -> dict[str, Any]:
        sys: dict[str, Any] = {}
        if self.heartbeat:
            sys["heartbeat"] = self.heartbeat
        if self.profile.pitaya:
            sys.setdefault("heartbeat", _NEVER_SECONDS)
            sys["serializer"] = "json"
            return sys
        if self._dictionary is not None:
            if not cached.dictionary:
                sys["dict"] = sys["routeToCode"] = self._codes
                sys["codeToRoute"] = {str(c): name for name, c in self._codes.items()}
                sys["dictVersion"] = self._dictionary.version
            sys["useDict"] = True
        if self._protos is not None:
            if not cached.protos:
                sys["protos"] = _shown(self._protos)
            sys["useProto"] = True
        elif cached.others and self.profile.browser:
            # It would go on encoding by what another server sent it once.
            sys["protos"] = {"server": {}, "client": {}, "version": 0}
        return sys

    # Responses and pushes

    def ok(self, route: str) -> bytes:
        """The body of a response that says "stored"; an empty message on one that `is_mute`."""
        body = self._ok.get(route)
        if body is None:
            body = b"" if self.is_mute(route) else self._answer(route, STORED)
            self._ok[route] = body
        return body

    def answered(self, number: int, route: str, body: bytes) -> bytes:
        """A response's package.  Raises ValueError for bad JSON, or one unlike its definition."""
        return wire.response(number, _encoded(self._responses, route, body))

    def late(self, number: int, route: str, value: Mapping[str, Any]) -> bytes:
        """The package of a response that says that there is no answer."""
        if self.profile.pitaya:
            return self.failed(number, None, str(value.get("msg", "no answer")), 504)
        if self._responses is not None and route in self._responses:
            return wire.response(number, self._answer(route, value))
        return wire.response(number, ascii_json(value))

    def is_mute(self, route: str) -> bool:
        """Responses on this route, which has a definition, can not say `code`: there is
        none to a request that is not stored.
        """
        assert self._protos is not None
        return route in self._protos.mute

    def failed(
        self, number: int, route: str | None, why: str, code: int = 500
    ) -> bytes:
        """The package of a response that says "not stored"."""
        if self.profile.pitaya:
            body = ascii_json({"code": f"PIT-{code}", "msg": why})
            return wire.response(number, body, error=True)
        value = {"code": code, "msg": why}
        if route is None:
            return wire.response(number, ascii_json(value))
        return wire.response(number, self._answer(route, value))

    def _answer(self, route: str, value: Mapping[str, Any]) -> bytes:
        """The encoded body; empty, as Pomelo does it, if required fields are missing."""
        assert self._answers is not None
        try:
            return self._answers.encode(route, value)
        except Unencodable:
            return b""

    def push(self, route: str, body: bytes) -> bytes:
        """The package of a push with this JSON body.

        Raises ValueError if the route is too long, or if the body does not fit the
        route's definition.
        """
        encoded = _encoded(self._answers, route, body)
        by = self._codes.get(route) if self.profile.coded_pushes else None
        return wire.push(route if by is None else by, encoded)


def _encoded(schema: Schema | None, route: str, body: bytes) -> bytes:
    """JSON as clients with these definitions are sent it.  Raises ValueError."""
    if schema is None or route not in schema:
        return ascii_text(body)
    return schema.encode(route, msgspec.json.decode(body))


def _reply(sys: bytes, user: bytes | None) -> bytes:
    end = b"" if user is None else b',"user":' + user
    return wire.package(wire.HANDSHAKE, b'{"code":200,"sys":' + sys + end + b"}")


def _shown(protos: Protos) -> dict[str, Any]:
    return {"server": protos.server, "client": protos.client, "version": protos.version}


@dataclass(slots=True)
class Handshake:
    reply: bytes
    terms: Terms
    attributes: dict[str, str]
    """Attributes of all events of the connection."""
    admitted: Admitted
    said: bytes
    """The client's handshake, JSON in UTF-8."""
    sys: Mapping[str, Any]
    """The same, what it says of itself."""

    def bind(self, admitted: Admitted) -> None:
        """A service has admitted the client; what its token proved stays true.

        The uid is the service's, if it named one; the earlier end of the two counts.
        What it has for the client goes into the reply.
        """
        if admitted.user is not None:
            self.reply = self.terms.reply(self.sys, admitted.user)
        told = self.admitted
        uid = admitted.uid or told.principal
        ends = [at for at in (told.expires_at, admitted.expires_at) if at is not None]
        self.admitted = admitted = Admitted(
            uid, uid, expires_at=min(ends, default=None)
        )
        for name in ("uid", "uid_unproven"):
            self.attributes.pop(name, None)
        if admitted.uid is not None:
            self.attributes["uid"] = admitted.uid


@define(eq=False, slots=False)
class Handshaker:
    """Answers the handshakes of one listener."""

    _definitions: Definitions
    _admit: Admit
    heartbeat: int
    _user_bytes: int
    _profiles: Mapping[str, str]
    _clients: Mapping[str, str]
    _backed: Collection[str] = ()
    _user: bytes | None = None
    """The `user` of each client's response: JSON in ASCII."""

    def __attrs_post_init__(self) -> None:
        self._terms: dict[str, Terms] = {}

    @property
    def definitions(self) -> Definitions:
        """Sent from now on; open connections keep what they were sent."""
        return self._definitions

    @definitions.setter
    def definitions(self, definitions: Definitions) -> None:
        self._definitions, self._terms = definitions, {}

    def answer(self, body: bytes) -> Handshake:
        """The answer to a handshake.  Raises `Refusal`, whose reply is the answer."""
        said = _said(body)
        sys, user = _parse(said)
        profile = _profile(sys, self._profiles)
        client, version = _client(sys)
        self._check(client, version)
        try:
            admitted = self._admit(user)
        except Denied as why:
            denied = refused(500, str(why), f"not admitted: {why}")
            denied.wrong_credentials = True
            raise denied from None
        terms = self._terms_of(profile)
        attributes = {"client": client, "client_version": version}
        attributes |= {"profile": profile.name}
        if admitted.uid is not None:
            attributes["uid"] = admitted.uid
            if admitted.principal is None:
                attributes["uid_unproven"] = "true"
        attributes |= _kept(user, self._user_bytes)
        return Handshake(terms.reply(sys), terms, attributes, admitted, said, sys)

    def judge(self, route: str, body: bytes) -> None:
        """Raises ValueError if a push with this JSON could not be sent to a client."""
        self._terms_of(PROFILES["pinus"]).push(route, body)

    def _terms_of(self, profile: Profile) -> Terms:
        terms = self._terms.get(profile.name)
        if terms is None:
            terms = Terms(
                profile, self._definitions, self.heartbeat, self._backed, self._user
            )
            self._terms[profile.name] = terms
        return terms

    def _check(self, client: str, version: str) -> None:
        if not self._clients:
            return
        least = self._clients.get(client, self._clients.get("*"))
        if least is None or _numbers(version) < _numbers(least):
            raise refused(
                501,
                "client version not supported",
                f"client {client!r} of version {version!r}",
                limit=least or "none",
                key="options.clients",
            )


def _said(body: bytes) -> bytes:
    try:
        return text(body).encode()
    except UnicodeDecodeError:
        raise refused(500, "handshake is not JSON") from None


def _parse(body: bytes) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise refused(500, "handshake is not JSON") from None
    sys = said.get("sys") if isinstance(said, dict) else None
    if not isinstance(sys, dict):
        raise refused(500, "handshake without sys")
    user = said.get("user")
    return sys, user if isinstance(user, dict) else {}


def refused(
    code: int,
    why: str,
    rule: str | None = None,
    *,
    limit: str | None = None,
    key: str | None = None,
) -> Refusal:
    """A `Refusal` whose reply is a handshake's answer: *code*, and *why*."""
    reply = wire.package(wire.HANDSHAKE, ascii_json({"code": code, "msg": why}))
    return Refusal(rule or why, limit=limit, key=key, reply=reply)


def _client(sys: Mapping[str, Any]) -> tuple[str, str]:
    """The name and the version that a client gives itself."""
    name = sys.get("type") or sys.get("platform") or ""
    version = sys.get("version") or sys.get("clientVersion") or sys.get("libVersion")
    return str(name)[:_MOST_NAME], str(version or "")[:_MOST_NAME]


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,9}", version)]


def _kept(user: Mapping[str, Any], most_bytes: int) -> dict[str, str]:
    """User data as attributes, `user.name.within`, up to *most_bytes*."""
    kept: dict[str, str] = {}
    left = most_bytes
    for name, value in _flat("user", user, _MOST_DEPTH):
        left -= len(name.encode()) + len(value.encode())
        if left < 0:
            kept["user_cut_off"] = "true"
            break
        kept[name] = value
    return kept


def _flat(name: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and depth:
        for key, inner in value.items():
            if (name, key) != ("user", "token"):
                yield from _flat(f"{name}.{key}", inner, depth - 1)
    elif isinstance(value, str):
        yield name, value
    elif value is not None:
        yield name, msgspec.json.encode(value).decode()
