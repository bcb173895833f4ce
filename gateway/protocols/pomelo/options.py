"""Options of Pomelo listeners: `listeners[].options` in the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from gateway.protocols.pomelo.text import ascii_json
from gateway.sdk.fields import (
    SHARED_BY_LISTENERS,
    WEB,
    AdminPort,
    ByteCount,
    Definition,
    FilePath,
    FolderName,
    Secret,
    Switch,
    Text,
)
from gateway.sdk.section import AT_ONCE, NEW_CONNECTIONS, Place, Section, restart
from gateway.sdk.units import Size, Time

if TYPE_CHECKING:
    from gateway.sdk.protocol import Listener

KiB = 2**10
MiB = 2**20

_SERVICE = re.compile(rf"{WEB}(/[!-~]*)?|unix:/[!-9;-~]+(:/[!-~]*)?")
_NEAR = re.compile(r"http://(localhost|127\.[0-9.]+|\[::1\])(:|/|$)")
#: The families of clients: `handshake.PROFILES`.
_PROFILES = ("js", "pinus", "c", "c2", "py", "plain", "pitaya")


def _profile(value: object) -> str:
    if value in _PROFILES:
        return str(value)
    raise ValueError(f"must be one of {', '.join(_PROFILES)}, not {value!r}")


def _service(value: object) -> str:
    if isinstance(value, str) and _SERVICE.fullmatch(value):
        return str(value)
    raise ValueError(
        "must be like https://login.example.org/game, or unix:/run/login.sock:/game, "
        f"not {value!r}"
    )


Service = Annotated[
    str,
    PlainValidator(_service),
    WithJsonSchema({"type": "string", "pattern": r"^(https?://|unix:/|\$\{)"}),
]


Profile = Annotated[
    str, PlainValidator(_profile), WithJsonSchema({"enum": list(_PROFILES)})
]


class Jwt(Section):
    """How to verify the JSON Web Token of a client (needs gateway[jwt])."""

    key: Secret = Field(description="The shared secret, or a public key in PEM")
    algorithms: list[Text] = Field(
        default=["HS256"], min_length=1, description="Signatures that count"
    )
    audience: Text | None = Field(default=None, description="What aud must be")
    issuer: Text | None = Field(default=None, description="What iss must be")
    leeway: Annotated[float, Time("0s", "24h")] = Field(
        default=0.0, description="How much clocks may differ (time)"
    )
    claim: Text = Field(default="sub", description="Who the client is: its uid")


class Outbox(Section):
    """Files of pushes, as a Spark job writes them."""

    directory: Annotated[FolderName, SHARED_BY_LISTENERS] = Field(
        description="Below data_dir; pushes are read from its files"
    )
    retention: Annotated[float, Time("0s", "365d")] = Field(
        default=0.0,
        description="Keep files that were pushed in .done this long (time)",
    )
    file_bytes: ByteCount = Field(
        default=64 * MiB, description="One file; larger ones are set aside (size)"
    )
    remember: Annotated[float, Time("0s", "365d")] = Field(
        default=7 * 86_400.0,
        description="Push no file of the same name again for so long (time)",
    )
    remember_files: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        default=100_000, description="Names to remember; the oldest is forgotten first"
    )

    def agrees(self, other: Outbox) -> bool:
        return self.model_copy(update={"directory": other.directory}) == other


class Backend(Section):
    """A service of the game's that answers the requests of some routes."""

    routes: list[Text] = Field(min_length=1, description="Whose requests it answers")
    url: Service | None = Field(
        default=None,
        description="Where they are posted to; absent: rows of the outbox answer them",
    )
    timeout: Annotated[float, Time("10ms", "5m")] = Field(
        default=5.0, description="For an answer, from when the request is stored (time)"
    )
    requests: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=16, description="Posts that run at once"
    )
    batch: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=64, description="Requests in one post"
    )
    waiting: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1000, description="Requests that may wait, half of them of one client"
    )
    repeat: Switch = Field(
        default=False, description="Post again if a connection ends without an answer"
    )
    late: dict[str, Any] = Field(
        default={"code": 504, "msg": "no answer"},
        description="The answer when there is none in time",
    )

    def misfits(self) -> Iterator[tuple[Place, str]]:
        try:
            ascii_json(self.late)
        except ValueError as why:
            yield ("late",), f"can not be said in JSON: {why}"


class Lobby(Section):
    """Gateways whose clients are reached together, whichever they are connected to."""

    reload: ClassVar = AT_ONCE

    gateways: list[AdminPort] = Field(
        min_length=1,
        description="Admin ports of all gateways; this one's may be among them",
    )
    token: Secret | None = Field(
        default=None, description="Their admin.token; absent: they ask for none"
    )
    ca: FilePath | None = Field(
        default=None,
        description="PEM of who signs their certificates; absent: the platform's",
    )
    timeout: Annotated[float, Time("10ms", "30s")] = Field(
        default=5.0, description="For one's answer, waiting included (time)"
    )
    requests: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=16, description="Calls to one of them that run at once"
    )

    @property
    def in_the_open(self) -> list[str]:
        """The URLs to which the token goes over the network as it is."""
        if self.token is None:
            return []
        plain = (url for url in self.gateways if url.startswith("http://"))
        return [url for url in plain if not _NEAR.match(url)]


class Rate(Section):
    """Limits for one second."""

    messages: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        default=None, description="Messages a second; absent = any number"
    )
    bytes: ByteCount | None = Field(
        default=None, description="Bytes a second; absent = any number (size)"
    )


class Rates(Section):
    """How much clients may send; what is more is answered 429."""

    connection: Rate = Field(default=Rate(), description="One connection")
    uid: Rate = Field(
        default=Rate(),
        description="All connections of a user that pushes to his uid reach",
    )
    sessions: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        default=None,
        description="Sessions that one address may begin in a second; absent = any number",
    )
    burst: Annotated[float, Time("100ms", "1h")] = Field(
        default=5.0, description="So much of it may come at once (time)"
    )


class Options(Section):
    """Options of listeners for Pomelo (pinus, pitaya): game and mobile clients."""

    reload: ClassVar = NEW_CONNECTIONS
    reloads: ClassVar = {
        "outbox": restart("its directory is read from the daemon's start to its stop")
    }

    heartbeat: Annotated[float, Time("0s", "1h")] = Field(
        default=3.0,
        description="Between heartbeats, in whole seconds; 0s = none (time)",
    )
    handshake_timeout: Annotated[float, Time("100ms", "1h")] = Field(
        default=10.0, description="To connect and acknowledge the handshake (time)"
    )
    handshake_bytes: Annotated[int, Size("256B", "16MiB")] = Field(
        default=64 * KiB, description="One handshake, and user of its response (size)"
    )
    handshake_user: dict[str, Any] | None = Field(
        default=None,
        description="What the handshake's response tells each client as user",
    )
    user_bytes: Annotated[int, Size("0B", "1MiB")] = Field(
        default=KiB, description="User data kept with every event (size)"
    )
    routes: Definition = Field(
        default=None,
        description="Dictionary: list of routes, routes with codes, or a JSON file",
    )
    client_protos: Definition = Field(
        default=None, description="Of requests and notifies: definitions or JSON file"
    )
    server_protos: Definition = Field(
        default=None, description="Of answers and pushes: definitions or a JSON file"
    )
    reload_interval: Annotated[float, Time("0s", "24h")] = Field(
        default=5.0, description="Look at those files this often; 0s = never (time)"
    )
    profiles: dict[str, Profile] = Field(
        default={}, description="Client's sys.type to profile; '*' = all others"
    )
    clients: dict[str, Text] = Field(
        default={}, description="Client's sys.type to its least version; {} = any"
    )
    token: Secret | None = Field(
        default=None, description="What clients must say in user.token"
    )
    jwt: Jwt | None = Field(default=None, description="Or who must have signed it")
    authenticate: Service | None = Field(
        default=None, description="URL of the service that admits clients; absent: none"
    )
    authenticate_timeout: Annotated[float, Time("10ms", "5m")] = Field(
        default=5.0, description="For its answer, waiting included (time)"
    )
    authenticate_requests: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=32, description="Requests to it that run at once"
    )
    trust_uid: Switch = Field(
        default=False,
        description="Without authentication: push to the uid that a client claims to be",
    )
    session_events: Switch = Field(
        default=True,
        description="Store when sessions open, are bound and close (kind: session)",
    )
    control_packages: Annotated[int, Field(ge=16, le=2**20)] = Field(
        default=1000,
        description="Packages of one client that are no messages, in one heartbeat",
    )
    backends: list[Backend] = Field(
        default=[], description="Services that answer requests; others are answered 200"
    )
    rates: Rates = Field(
        default=Rates(),
        description="How much clients may send; what is over is refused",
    )
    push_bytes: ByteCount = Field(
        default=MiB, description="Push no more to clients with this unsent (size)"
    )
    push_policy: Literal["drop", "kick"] = Field(
        default="drop", description="Then drop pushes, or kick the client"
    )
    groups: Definition = Field(
        default=None,
        description="Whoever comes is in: lists of uids, by group, or a JSON file",
    )
    outbox: Outbox | None = Field(
        default=None, description="Where a Spark job puts pushes; absent = nowhere"
    )
    lobby: Lobby | None = Field(
        default=None,
        description="Other gateways whose clients pushes and kicks reach, too",
    )

    @property
    def told_user(self) -> bytes | None:
        """`handshake_user` as JSON in ASCII.  Raises ValueError if JSON has no such number."""
        user = self.handshake_user
        return None if user is None else ascii_json(user)

    def misfits(self) -> Iterator[tuple[Place, str]]:
        """Clients read heartbeat as a whole number of seconds."""
        if self.heartbeat != int(self.heartbeat):
            yield ("heartbeat",), f"must be whole seconds, not {self.heartbeat:g}s"
        try:
            size = len(self.told_user or b"")
        except ValueError as why:
            yield ("handshake_user",), f"can not be said in JSON: {why}"
        else:
            most = self.handshake_bytes
            if size > most:
                key = "handshake_bytes"
                yield (
                    ("handshake_user",),
                    f"has {size} bytes as JSON in ASCII, limit {most} ({key})",
                )
        seen: set[str] = set()
        for number, backend in enumerate(self.backends):
            for at, route in enumerate(backend.routes):
                if route in seen:
                    place: Place = ("backends", number, "routes", at)
                    yield place, f"{route!r} has a backend already"
                seen.add(route)


def mute_routes(listener: Listener[Options]) -> list[str]:
    """Routes whose responses can not say whether a request is stored, and that no
    backend answers; none where the definitions can not be used.
    """
    from gateway.protocols.pomelo.protobuf import Unusable
    from gateway.protocols.pomelo.routes import load

    options = listener.options
    try:
        protos = load(None, options.client_protos, options.server_protos).protos
    except Unusable:
        return []
    backed = {route for backend in options.backends for route in backend.routes}
    found = () if protos is None else protos.mute_requests
    return [route for route in found if route not in backed]


def misfits(listeners: Mapping[int, Listener[Options]]) -> Iterator[tuple[Place, str]]:
    """Listeners that disagree about what they share.

    Those that name the same directory share one outbox and its settings, and all clients of
    the gateway are in one lobby.
    """
    first: dict[Path, tuple[int, Outbox]] = {}
    lobby: tuple[int, Lobby] | None = None
    for index, listener in listeners.items():
        if (wanted := listener.options.lobby) is not None:
            at, known = lobby = lobby or (index, wanted)
            if wanted != known:
                yield (
                    ("listeners", index, "options", "lobby"),
                    f"must be as in listeners[{at}], or absent: a gateway is in one lobby",
                )
        if (outbox := listener.options.outbox) is None:
            continue
        at, other = first.setdefault(outbox.directory, (index, outbox))
        if not outbox.agrees(other):
            yield (
                ("listeners", index, "options", "outbox"),
                f"must be as in listeners[{at}]: {outbox.directory} is one outbox",
            )
