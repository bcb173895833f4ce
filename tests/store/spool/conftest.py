"""A journal directory with sealed segments in it, and a publisher beside it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.event import Batch, Origin, Rows
from gateway.store.journal import Log, Segment
from gateway.store.node.catalog import Catalog
from gateway.store.spool import PublishedFiles, Publisher
from gateway.store.spool.writing import Here
from gateway.store.system.disk import RealDisk
from incarnations import A

from .archive import World


def split(body: bytes) -> Rows:
    """The decoder of protocol `plain`: events are separated by commas."""
    return Rows(body.split(b","), content_type="text/plain")


@dataclass
class Place:
    """Directories of one node and the parts that work on them."""

    root: Path

    def __post_init__(self) -> None:
        self.disk = RealDisk()
        self.journal = self.root / "journal"
        self.spool = self.root / "spool"
        self.archive = self.root / "archive"
        for path in (self.journal, self.spool, self.archive):
            path.mkdir()
        self.reread()
        self.log = Log(self.journal, self.disk, 1, A)
        self.decoders: dict[str, Any] = {"plain": split}
        self.now = 1000.0
        self.origins: dict[str, Origin] = {}

    def reread(self) -> PublishedFiles:
        """The catalog's files, as a start reads them."""
        self.catalog = Catalog(self.journal, self.disk)
        self.files = PublishedFiles(self.catalog, self.disk)
        return self.files

    def publisher(self, *, keep: bool = False, compression: str = "zstd") -> Publisher:
        return Publisher(
            "gw",
            self.spool,
            self.files,
            self.disk,
            Here(self.disk, self.decoders),
            compression,
            keep=keep,
            clock=lambda: self.now,
        )

    def sealed(self, *bodies: bytes, protocol: str = "plain") -> Segment:
        """A segment with one batch per body."""
        self.log.commit([self.batch(body, protocol) for body in bodies])
        segment = self.log.seal()
        assert segment is not None
        return segment

    def batch(self, body: bytes, protocol: str = "plain") -> Batch:
        """One whose events are separated by commas."""
        origin = self.origins.setdefault(
            protocol, Origin(protocol, "beats", "s-1", "127.0.0.1:9")
        )
        return Batch(origin, 5_000_000, body.count(b",") + 1, body, len(body))

    def metadata(self) -> Batch:
        """A batch without events."""
        return Batch(self.batch(b"").origin, 5_000_000, 0, b"metadata", 0)

    def public(self) -> list[str]:
        return sorted(p.name for p in self.spool.iterdir())


@pytest.fixture
def place(tmp_path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)
