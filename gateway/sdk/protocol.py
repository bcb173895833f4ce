"""The plug-in interface: what a wire format tells the gateway about itself.

A package adds a wire format by installing one object under an entry point:

    [project.entry-points."gateway.protocols"]
    syslog = "gateway_syslog:protocol"

    Protocol    the format: its name, its options, how its batches become rows
    Service     the format in one running daemon: what all its listeners share
    SinglePort  a ready Service: one port for each listener, and nothing shared
    Port        an address to listen on, and who serves its connections
    Context     what the daemon lends a service
    Statistics  what a service shows on /api/status, /metrics and the live page
    Sender      its part of `gateway send`

The daemon, the configuration, the admin port and the commands know wire formats only
through these types; the formats that come with the gateway use them too.  Importing a
plug-in's object must be cheap, because every command does it: methods import what they
need.  docs/plugin.md builds one step by step.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from gateway.sdk.figures import Statistics

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from pathlib import Path

    from twisted.internet.defer import Deferred

    from gateway.event import Decode
    from gateway.sdk.arrivals import Arrivals
    from gateway.sdk.disk import Disk
    from gateway.sdk.endpoint import Endpoint
    from gateway.sdk.files import Files
    from gateway.sdk.interfaces import Accept, Journal, Memory
    from gateway.sdk.limits import Limits
    from gateway.sdk.publisher import Publisher
    from gateway.sdk.section import Place, Section

__all__ = [
    "Answer",
    "Command",
    "Configuration",
    "Context",
    "Get",
    "Listener",
    "Port",
    "Post",
    "Protocol",
    "Sender",
    "Service",
    "Settings",
    "SinglePort",
    "Statistics",
    "Unusable",
    "tcp",
]

_Options_co = TypeVar("_Options_co", covariant=True)


class Unusable(Exception):
    """A listener's options can not be used; the text says which, and why."""


class Settings(typing.Protocol[_Options_co]):
    """The settings of one of `listeners` that connections need."""

    @property
    def limits(self) -> Limits:
        """The limits of one peer."""

    @property
    def options(self) -> _Options_co:
        """`listeners[].options`, in the protocol's own type."""


class Listener(Settings[_Options_co], typing.Protocol[_Options_co]):
    """One of `listeners`."""

    @property
    def name(self) -> str:
        """The name in the file."""

    @property
    def protocol(self) -> str:
        """The name of the protocol spoken there."""

    @property
    def listen(self) -> Endpoint:
        """Where it listens."""

    @property
    def reuse_port(self) -> bool:
        """Other gateways share its port."""

    @property
    def client_certificates(self) -> bool:
        """Each client has shown a certificate (`tls.client_auth: required`)."""


class Configuration(typing.Protocol):
    """The whole file, for `Protocol.cautions`."""

    @property
    def listeners(self) -> Sequence[Listener[Any]]:
        """The listeners of all protocols."""

    @property
    def journal(self) -> Any:
        """The section `journal`."""

    @property
    def spool(self) -> Any:
        """The section `spool`."""

    @property
    def spark(self) -> Any:
        """The section `spark`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The daemon's loans to a service; it lives as long as the daemon."""

    node: str
    """The gateway's name in every event."""
    listeners: Sequence[Listener[Any]]
    """The listeners of this protocol; none if only its memory is needed.  A reload may
    change them while the service lives."""
    journal: Journal
    """Where batches become durable."""
    reactor: Any
    """Twisted's; services take time from it, and nothing from the system's clock."""
    decode: Decode
    """The protocol's own decoder, as configured."""
    feeds: Mapping[str, Publisher]
    """The gateway's events for subscribers: `tap` (live), `events` (replay)."""
    data_dir: Path
    """Directories that options name lie below it."""
    disk: Disk
    """Writes whatever a protocol keeps there beside its memory."""
    files: Files
    """Reads back events that were stored."""
    address: Callable[[str], str]
    """The address of a port by its name, as bound: port 0 has become a number."""
    arrivals: Arrivals
    """Where files of other gateways become durable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An address to listen on, and how the network treats its connections."""

    accept: Accept
    """Makes the server of each connection."""
    suffix: str = ""
    """Told apart from the listener's own port: `streams` + `.controller`."""
    listen: Endpoint | None = None
    """Where, if not at the listener's `listen`."""
    alpn: Sequence[bytes] = ()
    """Names in TLS."""
    subprotocols: Sequence[str] = ()
    """Names in WebSocket."""
    http2: str = ""
    """The content type in HTTP/2; empty: it is not served so.

    A connection that begins as HTTP/2 does (`h2` in TLS) carries the protocol's bytes in one
    stream.  A POST of this type opens it, or an extended CONNECT of what follows its slash.
    For protocols whose client speaks first, and whose server is `Publishing`: windows are
    opened in what it goes on to read."""
    websocket: bool = True
    """Served over WebSocket too, where the listener has `websocket`."""
    acknowledges: bool = True
    """A peer that closes before its acknowledgement came sends again, so that what was
    not read of it may be dropped.  False: all that it ever sent is to be stored."""
    mixed: bool = False
    """Whether plain connections are taken at the same port, with `websocket`."""
    text: bool = False
    """WebSocket text messages count like binary ones."""
    prefixes: Sequence[bytes] = ()
    """Beginnings of the protocol's own connections that would otherwise be taken for
    HTTP, TLS or a PROXY header, and refused: `[b"PRI "]` where HTTP/2 is spoken."""
    unread_bytes: int = 0
    """Output that may wait for a peer that does not read (bytes), if that is more than
    one read can lead to: protocols that send more than acknowledgements set it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole response of the admin port."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


#: Answers GET and HEAD on one path, from the fields of the query, the last of each name.
Get = Callable[[Mapping[str, str]], "Answer | Deferred[Answer]"]
#: Answers POST on one path, from the JSON that was posted.
Post = Callable[[bytes], "Answer | Deferred[Answer]"]


class Service:
    """A protocol in one running daemon: what all its listeners share.

    Called in the reactor's thread, except `files_removed`.  Whatever a method raises
    while the daemon runs is logged and counted with the protocol's name; the daemon and
    the other protocols go on.
    """

    memory: Memory | None = None
    """The state kept between restarts, if `Protocol.remembers`."""

    def ports(self, listener: Listener[Any]) -> Iterable[Port]:
        """The ports that one of `listeners` opens, its own port first.

        Asked again when a reload has changed the listener: connections that come get the
        new ports, those that are open keep what they have.  Raises `Unusable`.
        """
        raise NotImplementedError

    def start(self) -> None:
        """Memory is restored, the journal takes batches, ports open after this."""

    async def stop(self) -> None:
        """Send nothing more of your own accord; connections are drained after this."""

    def close(self) -> None:
        """All connections are gone; the journal stops after this."""

    def retired(self, port: Port) -> None:
        """One of `ports` is closed for good, and its last connection gone: a reload has
        replaced or removed it, or it could not be opened.
        """

    def reload(self) -> Iterable[str] | None:
        """SIGHUP: read files again; what is broken leaves the old in place.

        Returns what is, a sentence each, for the one who asked for the reload.
        """
        return None

    def files_removed(self) -> None:
        """The archive has dropped old files.  Called in another thread."""

    def statistics(self) -> Iterable[Statistics]:
        """Figures for the admin port; called at every scrape, so nothing may count long."""
        return ()

    def gets(self) -> Mapping[str, Get]:
        """GET pages of the admin port, by path."""
        return {}

    def posts(self) -> Mapping[str, Post]:
        """POST pages of the admin port, by path."""
        return {}


class SinglePort(Service):
    """The service of a protocol whose listeners have one port each and share nothing."""

    def __init__(
        self,
        context: Context,
        accept: Callable[[Any, Journal, Any], Accept],
        **port: Any,
    ) -> None:
        """*accept* is called with the listener's `Settings`, the journal and the reactor;
        *port* are other fields of `Port`.
        """
        self._context = context
        self._accept = accept
        self._port = port

    def ports(self, listener: Listener[Any]) -> Iterator[Port]:
        context = self._context
        accept = self._accept(listener, context.journal, context.reactor)
        yield Port(accept=accept, **self._port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """A protocol's part of `gateway send`."""

    help: str
    """One line for `gateway send --help`."""
    description: str
    examples: str
    add_options: Callable[[ArgumentParser], None]
    sending: str
    """`MODULE:CLASS` of its `gateway.sdk.sending.Sending`, imported when it is run."""
    websocket: bool = True
    """Whether it sends over WebSocket, too."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command `gateway NAME` that a protocol brings."""

    module: str
    """Has `HELP`, `add_arguments` and `run`, as `gateway.sdk.command` says."""
    help: str
    """One line for `gateway --help`."""
    package: str = ""
    """The package that pip installs for it, where the plug-in alone lacks something."""


def tcp(host: str, port: int) -> str:
    """An address for `listen`: `tcp:5044` where *host* is empty, `tcp:127.0.0.1:5044`."""
    return f"tcp:{host}:{port}" if host else f"tcp:{port}"


class Protocol:
    """A wire format.  A plug-in makes one object of a subclass; it holds no state."""

    name: ClassVar[str]
    """The name in `listeners[].protocol` and in each event's `protocol`; the entry point has it,
    too.  Lower case letters, digits, dashes."""
    spoken_by: ClassVar[Sequence[str]] = ()
    """Programs that people may take for its name: `filebeat`."""
    websocket: ClassVar[bool] = False
    """Listeners take WebSocket at `/` unless the configuration says otherwise."""
    limits: ClassVar[Mapping[str, str | int]] = {}
    """Defaults of `listeners[].limits` that its clients need, as in the file: `{"idle": "30d"}`."""
    ages: ClassVar[bool] = False
    """Whether its servers are `Aging`, so that `limits.connection_age` is for its listeners."""
    remembers: ClassVar[bool] = False
    """Whether its services have a `memory`."""

    def options(self) -> type[Section] | None:
        """The type of `listeners[].options`; None: it takes none.

        Fields have a default or are required, a description with the unit, and types of
        `gateway.sdk.fields`; configuration errors and the JSON Schema follow.  Those
        that only `Service.ports` reads may change while the daemon runs:
        `reload: ClassVar = NEW_CONNECTIONS` says so (`gateway.sdk.section`).
        """
        return None

    def starter(self, host: str) -> Mapping[str, Any]:
        """A listener to begin with, as in the file, for `gateway init`.

        *host* is where it is to listen: `127.0.0.1`, or empty for all addresses; it may
        trust all users of this machine.  `{"name": "beats", "listen": "tcp:5044"}`;
        `tcp` makes such addresses.
        """
        return {"name": self.name, "listen": tcp(host, 7000)}

    def misfits(
        self, listeners: Mapping[int, Listener[Any]]
    ) -> Iterator[tuple[Place, str]]:
        """Places and reasons where its listeners, by their place in the file, do not agree.

        `("listeners", 2, "options", "routes"), "must be as in listeners[0]"`.
        """
        yield from ()

    def decoder(self, options: Sequence[Any]) -> Decode:
        """The function that turns a stored batch's body into rows.

        *options* are those of its listeners, of none at all where only files are read.
        Total on every body that its servers ever submitted; what it raises costs the
        batch, whose rows then say `undecodable`.  Where batches often have few events, one
        that is a `DecodeTogether` spares half of what it costs to publish them.
        """
        raise NotImplementedError

    def describe(self, options: Any) -> Iterator[str]:
        """Short sentences of `gateway check` about a listener with these options."""
        yield from ()

    def cautions(self, config: Configuration) -> Iterator[str]:
        """Warnings of `gateway check`: something is allowed, and loses something."""
        yield from ()

    def service(self, context: Context) -> Service:
        """Itself in a daemon.  Raises `Unusable`.

        `gateway check` makes one, too, asks for its ports and pages, and closes it without
        a `start`: open and send nothing before that.
        """
        raise NotImplementedError

    def sender(self) -> Sender | None:
        """The sender of `gateway send NAME`; None: there is none."""
        return None

    def commands(self) -> Mapping[str, Command]:
        """Commands of its own, by name."""
        return {}
