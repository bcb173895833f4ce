"""The types of the configuration: every key, its unit, its default, its one line.

Attribute names are the keys of the file (docs/design.md §5).  Sizes are ints of
bytes, times are floats of seconds.  Everything is frozen: a configuration is read
once, and reading it again makes another one.

A new key needs a description here and a line in conf/gateway.yaml; tests hold both.
`listener` has the keys of a listener; those of `listeners[].options` are the installed
protocol's (`gateway.sdk.protocol`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.fields import FieldInfo

from gateway import plugins
from gateway.config.bucket import BucketUrl
from gateway.config.fields import (
    HubUrl,
    NodeName,
    OneOrSeveral,
    SpoolPlace,
    WebServer,
    default_node,
)
from gateway.config.listener import Balancers, Encryption, Listener
from gateway.config.problems import spell
from gateway.config.spark import HOUR, MINUTE, GiB, MiB, Spark
from gateway.sdk.endpoint import Endpoint, Systemd, Tcp, conflict
from gateway.sdk.fields import (
    BELOW_DATA_DIR,
    SHARED_BY_LISTENERS,
    AdminPeer,
    ByteCount,
    Count,
    FilePath,
    FolderName,
    FolderPath,
    Listen,
    Name,
    Seconds,
    Secret,
    Switch,
    Text,
)
from gateway.sdk.section import (
    AT_ONCE,
    NEW_CONNECTIONS,
    Place,
    Section,
    restart,
)
from gateway.sdk.units import Number, Size, Time, format_size

_OBJECT_BYTES = 1 << 30


class Journal(Section):
    """Where batches become durable."""

    reload: ClassVar = AT_ONCE
    reloads: ClassVar = {"directory": restart("the journal is open there")}

    directory: FolderName = Field(
        default=Path("journal"), description="Below data_dir, on a local disk"
    )
    commit_interval: Annotated[float, Time("0s", "1s")] = Field(
        default=0.002,
        description="Gather a turn's batches this long at most before a sync (time)",
    )
    segment_bytes: Annotated[int, Size("64KiB", "4GiB")] = Field(
        default=64 * MiB, description="Seal a segment of this size (size)"
    )
    memory_bytes: Annotated[int, Size("1MiB", "1TiB")] = Field(
        default=256 * MiB,
        description="Stop reading sockets with this much waiting for the disk (size)",
    )
    stall_after: Seconds = Field(
        default=5.0,
        description="Not ready while a batch waits this long for the disk (time)",
    )


class S3(Section):
    """How to reach the bucket of `spool.directory: s3://bucket/prefix`."""

    reload: ClassVar = restart("uploads begin with it")

    endpoint: WebServer | None = Field(
        default=None, description="Server, as https://HOST:PORT (null: AWS)"
    )
    region: Text | None = Field(
        default=None, description="Of the bucket (null: AWS_REGION, or us-east-1)"
    )
    access_key_id: Secret | None = Field(
        default=None, description="null: environment, web identity, container, instance"
    )
    secret_access_key: Secret | None = Field(
        default=None, description="With access_key_id"
    )
    virtual_hosted: Switch = Field(
        default=False,
        description="The bucket is part of the host name, not of the path",
    )
    timeout: Annotated[float, Time("1s", "10m")] = Field(
        default=MINUTE, description="For one request: a whole file (time)"
    )
    uploads: Annotated[int, Number(1, 64)] = Field(
        default=4,
        description="Files on their way at once; with ack: spool one (number)",
    )

    def misfits(self) -> Iterator[tuple[Place, str]]:
        """The two parts of a key."""
        if (self.access_key_id is None) != (self.secret_access_key is None):
            lacking = (
                "access_key_id" if self.access_key_id is None else "secret_access_key"
            )
            yield (lacking,), "is needed too: both parts of a key, or none of them"


class Spool(Section):
    """Parquet files for the Spark job."""

    reload: ClassVar = AT_ONCE
    reloads: ClassVar = {
        "directory": restart(
            "files are being written there, and the Spark job reads it"
        ),
        "compression": restart("the processes that write files begin with it"),
        "publishers": restart("the processes that write files begin with the daemon"),
        "after": restart("daemon and Spark job must agree: start both again"),
    }

    directory: SpoolPlace = Field(
        default=Path("spool"),
        description="Below data_dir, or s3://bucket/prefix; Spark watches it",
    )
    s3: S3 = Field(default_factory=S3, description="For a directory s3://bucket/prefix")
    roll_interval: Annotated[float, Time("10ms", "24h")] = Field(
        default=1.0, description="Publish a file at least this often (time)"
    )
    roll_events: Count = Field(
        default=200_000, description="Events in one file, about (number)"
    )
    roll_bytes: Annotated[int, Size("64KiB", "64GiB")] = Field(
        default=128 * MiB, description="Payload in one file, about (size)"
    )
    compression: Literal["zstd", "lz4", "snappy", "none"] = Field(
        default="zstd", description="Of the Parquet pages: zstd, lz4, snappy or none"
    )
    publishers: Annotated[int, Number(0, 64)] | None = Field(
        default=None,
        description="Processes that write files (number, null: by cores, 0: the daemon)",
    )
    max_bytes: ByteCount = Field(
        default=20 * GiB,
        description="Take no more events while the job is this far behind (size)",
    )
    after: Literal["archive", "delete", "keep", "forward"] = Field(
        default="archive",
        description="Of committed files: archive, delete; no job: keep, forward (to a hub)",
    )
    retention: Seconds = Field(
        default=24 * HOUR, description="How long the archive keeps a file (time)"
    )
    archive_bytes: ByteCount | None = Field(
        default=None,
        description="Keep no more in the archive, oldest first to go (size, null: any)",
    )
    consumers: list[Name] = Field(
        default=[],
        description="Jobs of yours that read the archive: a file stays until each has it",
    )

    @property
    def has_job(self) -> bool:
        """Whether a Spark job takes the files."""
        return self.after in ("archive", "delete")

    @property
    def folder(self) -> Path:
        """Where files are on this machine; below `data_dir`."""
        return self.directory if isinstance(self.directory, Path) else Path("spool")

    @property
    def bucket(self) -> BucketUrl | None:
        """Where they go from there, if they do."""
        return None if isinstance(self.directory, Path) else self.directory

    def _why_unread(self) -> str | None:
        """Why consumers could not read what is published, if so."""
        if self.bucket is not None and self.after != "keep":
            return (
                f"they read {self.bucket}, from which the job of spool.after: "
                f"{self.after} takes its files: make that keep, or read its tables"
            )
        if self.after == "delete":
            return (
                "they read the archive, and spool.after is delete: make that archive, or "
                "keep where there is no job of ours"
            )
        return None

    def misfits(self) -> Iterator[tuple[Place, str]]:
        """A file goes to a bucket in one request, and from memory; what consumers read
        must be there.
        """
        if self.consumers and (why := self._why_unread()) is not None:
            yield ("consumers",), why
        if again := [one for one in self.consumers if self.consumers.count(one) > 1]:
            yield ("consumers",), f"{again[0]} is there twice"
        if self.bucket is not None and self.roll_bytes > _OBJECT_BYTES:
            asked, most = format_size(self.roll_bytes), format_size(_OBJECT_BYTES)
            yield (
                ("roll_bytes",),
                f"{asked} is more than {most}, the most for a file in {self.bucket}",
            )


class Forward(Section):
    """The gateway that gets the files (spool.after: forward)."""

    reload: ClassVar = AT_ONCE

    to: OneOrSeveral[HubUrl] = Field(
        description="https://HOST:PORT, http://HOST:PORT/PATH, unix:PATH; a list: in order"
    )
    next_after: Annotated[float, Time("10s", "30d")] = Field(
        default=300.0,
        description="Try the next of `to` once one was away so long (time)",
    )
    name: Name | None = Field(
        default=None, description="Who this one is there (null: its node's name)"
    )
    token: Secret | None = Field(
        default=None, description="That proves it, where the hub asks for one"
    )
    rate: Annotated[int, Size("1KiB", "1TiB")] | None = Field(
        default=None, description="Send no more than so much a second (size, null: any)"
    )
    ca: FilePath | None = Field(
        default=None,
        description="PEM of who signs the hub's certificate; absent: the platform's",
    )
    certificate: FilePath | None = Field(
        default=None, description="PEM of ours, where the hub wants one"
    )
    private_key: FilePath | None = Field(
        default=None, description="PEM of its key; absent: in the same file"
    )

    def misfits(self) -> Iterator[tuple[Place, str]]:
        """Certificates are of TLS; a hub has one place in the order."""
        if not self.hubs:
            yield ("to",), "is empty: where do files go?"
            return
        if again := [one for one in self.hubs if self.hubs.count(one) > 1]:
            yield ("to",), f"{again[0]} is there twice"
        encrypted = any(one.startswith("https:") for one in self.hubs)
        for name in ("ca", "certificate", "private_key"):
            if getattr(self, name) is not None and not encrypted:
                yield (name,), f"is for https:, and to is {', '.join(self.hubs)}"
        if self.private_key is not None and self.certificate is None:
            yield ("certificate",), "is needed too: private_key is its key"

    @property
    def hubs(self) -> list[str]:
        """Addresses, the one that is preferred first."""
        return [self.to] if isinstance(self.to, str) else self.to


class Admin(Section):
    """Health, metrics and the live page."""

    reload: ClassVar = AT_ONCE
    reloads: ClassVar = {
        "listen": restart("whoever watches the daemon is connected there"),
        "proxy_protocol": NEW_CONNECTIONS,
        "tls": NEW_CONNECTIONS,
    }

    listen: Listen = Field(
        default="tcp:127.0.0.1:8080",
        validate_default=True,
        description="As for listeners; the page is for people you trust",
    )
    token: Secret | None = Field(
        default=None, description="Ask for it (Bearer) on everything but health"
    )
    trust_loopback: Switch = Field(
        default=False,
        description="Without a token, let whoever is on this machine push, kick, tap",
    )
    proxy_protocol: Balancers = Field(
        default=None, description="false, or which load balancers to believe"
    )
    tls: Encryption = Field(default=None, description="Absent = not encrypted")
    peers: list[AdminPeer] = Field(
        default=[],
        description="Admin ports of other gateways, and of the job, to show beside this",
    )
    peers_ca: FilePath | None = Field(
        default=None,
        description="PEM of who signs their certificates; absent: the platform's",
    )
    peers_certificate: FilePath | None = Field(
        default=None,
        description="PEM of our certificate, where they want one (tls.client_auth)",
    )
    peers_private_key: FilePath | None = Field(
        default=None, description="PEM of its key; absent: in the same file"
    )

    def misfits(self) -> Iterator[tuple[Place, str]]:
        """A key is one of a certificate; who comes has no name."""
        if self.peers_private_key is not None and self.peers_certificate is None:
            yield ("peers_certificate",), "is needed too: peers_private_key is its key"
        if self.proxy_protocol is not None and self.proxy_protocol.names:
            yield (
                ("proxy_protocol", "names"),
                "has no effect here: the token says who may",
            )


class Logging(Section):
    """The daemon's log, on standard error."""

    reload: ClassVar = AT_ONCE

    level: Literal["debug", "info", "warn", "error", "critical"] = Field(
        default="info", description="The least that is worth a line"
    )
    format: Literal["text", "json"] = Field(
        default="text", description="text for people, json for programs"
    )
    connections: Annotated[int, Number(0, 1_000_000)] = Field(
        default=20,
        description="Lines a second about ended connections (number); the rest are counted",
    )


class Config(Section):
    """All of it."""

    reloads: ClassVar = {
        "node": restart("events, files and the journal have its name"),
        "data_dir": restart("journal and spool are open there"),
        "ack": restart("what waits to be acknowledged was taken under the old one"),
    }

    node: NodeName = Field(
        default_factory=default_node,
        description="Name of this gateway in every event; default: the host name",
    )
    data_dir: FolderPath = Field(
        default=Path("/var/lib/gateway"),
        description="Journal, spool, archive, tables: all that is kept lies here",
    )
    ack: Literal["journal", "spool"] = Field(
        default="journal",
        description="Acknowledge after the journal's fsync, or the spool's commit",
    )
    listeners: list[Listener] = Field(
        min_length=1, description="Where to listen, and for what"
    )
    journal: Journal = Field(
        default_factory=Journal, description="Where batches become durable"
    )
    spool: Spool = Field(
        default_factory=Spool, description="Parquet files for the Spark job"
    )
    forward: Forward | None = Field(
        default=None,
        description="With spool.after: forward, the gateway that gets them",
    )
    admin: Admin = Field(
        default_factory=Admin, description="Health, metrics and the live page"
    )
    logging: Logging = Field(
        default_factory=Logging, description="What goes to standard error"
    )
    spark: Spark = Field(default_factory=Spark, description="The Spark job")

    def misfits(self) -> Iterator[tuple[Place, str]]:
        """Places and reasons where sections do not agree."""
        yield from self._same_names()
        yield from self._same_endpoints()
        yield from self._too_small_a_spool()
        yield from self._forwarding()
        yield from self._same_directories()
        yield from self._admin_in_the_open()
        for name, protocol in plugins.installed().protocols.items():
            own = {
                i: one for i, one in enumerate(self.listeners) if one.protocol == name
            }
            if not own:
                continue
            try:
                found = [(tuple(at), str(why)) for at, why in protocol.misfits(own)]
            except plugins.RAISED as why:
                yield ("listeners",), plugins.failure(name, "misfits", why)
            else:
                yield from found

    def _same_names(self) -> Iterator[tuple[Place, str]]:
        first: dict[str, int] = {}
        for index, listener in enumerate(self.listeners):
            taken = first.setdefault(listener.name, index)
            if taken != index:
                yield (
                    ("listeners", index, "name"),
                    f"listeners[{taken}] is called {listener.name!r} too",
                )

    def _same_endpoints(self) -> Iterator[tuple[Place, str]]:
        near: defaultdict[object, list[tuple[Place, Endpoint]]] = defaultdict(list)
        for place, _, value in values(self):
            if isinstance(value, Endpoint) and not self._may_give_way(place):
                # Only those of one port can be in each other's way.
                near[value.port if isinstance(value, Tcp) else value] += [
                    (place, value)
                ]
        for listens in near.values():
            for (first, one), (second, other) in combinations(listens, 2):
                if conflict(one, other):
                    yield second, f"{other} is taken by {spell(first)}: {one}"

    def _may_give_way(self, place: Place) -> bool:
        """Whether this is the job's port as a default: the job then goes without."""
        chosen = self.spark.admin.model_fields_set
        return place == ("spark", "admin", "listen") and "listen" not in chosen

    @property
    def job_port(self) -> Tcp | None:
        """Where the job tells its health, if nothing of the gateway's is there."""
        listen = self.spark.admin.listen
        if not isinstance(listen, Tcp):
            return None
        others = [
            value
            for place, _, value in values(self)
            if isinstance(value, Endpoint) and place[0] != "spark"
        ]
        return None if any(conflict(listen, one) for one in others) else listen

    def _admin_in_the_open(self) -> Iterator[tuple[Place, str]]:
        listen = self.admin.listen
        if isinstance(listen, Systemd):
            yield ("admin", "listen"), f"must be tcp: or unix:, not {listen}"
        if self.admin.token is not None:
            return
        if self.admin.proxy_protocol is not None:
            others = "load balancers (admin.proxy_protocol) bring others"
        elif isinstance(listen, Tcp) and not listen.local:
            others = f"other machines can reach {listen}"
        elif isinstance(job := self.spark.admin.listen, Tcp) and not job.local:
            others = f"other machines can reach {job} (spark.admin.listen)"
        else:
            return
        yield ("admin", "token"), f"is required, because {others}"

    def _too_small_a_spool(self) -> Iterator[tuple[Place, str]]:
        allowed = self.spool.max_bytes
        for place, size in (
            (("journal", "segment_bytes"), self.journal.segment_bytes),
            (("spool", "roll_bytes"), self.spool.roll_bytes),
        ):
            if size > allowed:
                limit = format_size(allowed)
                yield (
                    place,
                    f"{format_size(size)} is more than spool.max_bytes: {limit}",
                )

    def _forwarding(self) -> Iterator[tuple[Place, str]]:
        forwards = self.spool.after == "forward"
        if forwards and self.forward is None:
            yield ("forward",), "is required, because spool.after is forward"
        if self.forward is not None and not forwards:
            yield (
                ("spool", "after"),
                (
                    f"must be forward, and not {self.spool.after}: files are the hub's "
                    "then; a job beside it reads the archive (spool.consumers)"
                ),
            )
        if forwards and self.spool.bucket is not None:
            yield (
                ("spool", "directory"),
                (
                    f"must be a directory, and not {self.spool.bucket}, for files to be "
                    "forwarded from"
                ),
            )

    def _same_directories(self) -> Iterator[tuple[Place, str]]:
        names = (
            *("archive", "arrivals", "checkpoint", "consumers", "lake", "poison"),
            *("retained", "run", "state"),
        )
        places: dict[Place, Path] = {(name,): self.data_dir / name for name in names}
        shared = set()
        for place, field, value in values(self):
            if BELOW_DATA_DIR in field.metadata and isinstance(value, Path):
                places[place] = self.data_dir / value
            if SHARED_BY_LISTENERS in field.metadata:
                shared.add(place)
        if self.spool.bucket is not None:
            places[("inbox",)] = self.data_dir / "inbox"
        places["spool", "directory"] = self.data_dir / self.spool.folder
        # what a listener adds is at fault, not the gateway's own directory
        ordered = sorted(places.items(), key=lambda item: item[0][0] == "listeners")
        for (first, one), (second, other) in combinations(ordered, 2):
            if (
                one == other
                and {first, second} <= shared
                and self._alike(first, second)
            ):
                continue
            if one == other or one in other.parents or other in one.parents:
                yield second, f"{other} overlaps with {spell(first)}: {one}"

    def _alike(self, first: Place, second: Place) -> bool:
        """Whether both are the same option, of two listeners of one protocol."""
        one, other = (self.listeners[int(place[1])] for place in (first, second))
        return one.protocol == other.protocol and first[2:] == second[2:]


def values(section: Section, at: Place = ()) -> Iterator[tuple[Place, FieldInfo, Any]]:
    """Every value of a section and of those in it: its place, its field, itself."""
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        yield (*at, key), field, value
        for step, inner in _sections(value):
            yield from values(inner, (*at, key, *step))


def misfits(config: Config) -> Iterator[tuple[Place, str]]:
    """Places and reasons where values of one section, or of several, do not fit together.

    Each section is asked, for those of one configuration may come from two files.
    """
    inner = [
        ((*at, *step), section)
        for at, _, value in values(config)
        for step, section in _sections(value)
    ]
    for at, section in [((), config), *inner]:
        for place, why in section.misfits():
            yield (*at, *place), why


def _sections(value: object) -> Iterator[tuple[Place, Section]]:
    if isinstance(value, Section):
        yield (), value
    elif isinstance(value, list):
        for index, one in enumerate(value):
            if isinstance(one, Section):
                yield (index,), one
