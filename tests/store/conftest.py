"""A node that is opened and not started, and what tests do with it."""

from itertools import cycle

import pytest

from gateway.event import Batch, Origin, Rows
from gateway.store.directories import Directories
from gateway.store.node import incarnation
from gateway.store.node.mark import Mark
from gateway.store.opening import Opened, Start, open_node
from gateway.store.spool import failures
from gateway.store.system.machine import Machine
from gateway_testkit.bucket import MemoryBucket
from making import Make


def split(body: bytes) -> Rows:
    return Rows(body.split(b","))


@pytest.fixture
def directories(tmp_path) -> Directories:
    return Directories.under(tmp_path)


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture
def short_pauses(monkeypatch) -> None:
    """An upload that failed is tried again at once."""
    monkeypatch.setattr(failures, "_FIRST_PAUSE_SECONDS", 0.0001)
    monkeypatch.setattr(failures, "_LONGEST_PAUSE_SECONDS", 0.001)


@pytest.fixture(autouse=True)
def _ids(monkeypatch) -> None:
    """A test's first incarnation is `incarnations.A`, its second one `B`, and so on."""
    ids = (letter * 10 for letter in cycle("abcdefghijklmnopqrstuvwxyz"))
    monkeypatch.setattr(incarnation, "new_id", lambda: next(ids))


@pytest.fixture
def start(directories) -> Make[Opened]:
    """Opens the node with decoders for some protocols."""

    def start(*protocols: str, remembering: bool = False) -> Opened:
        decoders = dict.fromkeys(protocols, split)
        return open_node(
            Start("gw", directories, Machine(), decoders, remembering=remembering)
        )

    return start


@pytest.fixture
def opened(start) -> Opened:
    """The node, of one protocol."""
    return start("plain")


def store(opened: Opened, protocol: str, *bodies: bytes, count: int = 1) -> None:
    """Make batches durable, in a segment of their own."""
    origin = Origin(protocol, "l", "s-1", "[::1]:9")
    opened.log.commit([Batch(origin, 1, count, each, len(each)) for each in bodies])
    opened.log.seal()


def public(directories: Directories) -> list[str]:
    return sorted(path.name for path in directories.spool.iterdir())


def publish_all(opened: Opened) -> None:
    """As the spool's thread does; and the mark."""
    for sealed in opened.unpublished:
        opened.publisher.publish(sealed)
    opened.publisher.close()
    opened.marker.write(opened.mark(opened.first_lsn - 1), now=True)


def two_of_three_unpublished(start: Make[Opened]) -> None:
    """lsn 1 is in a file; 2 and 3 are acknowledged, in a segment of their own."""
    opened = start("plain")
    store(opened, "plain", b"a")
    opened = start("plain")
    publish_all(opened)
    store(opened, "plain", b"b", b"c")
    opened.marker.write(Mark(3, 3, 1), now=True)
