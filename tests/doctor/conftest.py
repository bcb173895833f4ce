"""Configurations for the doctor, and data directories as a gateway leaves them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.config import Config, load
from gateway.doctor.look import Look
from gateway.event import Batch, Origin, Rows
from gateway.store.directories import Directories
from gateway.store.journal import Segment
from gateway.store.opening import Opened, Start, open_node
from gateway.store.system.machine import Machine
from gateway_testkit.bucket import MemoryBucket

Make = Callable[..., Config]


@pytest.fixture
def make(tmp_path) -> Make:
    """A configuration: `make(tls="", **sections)`, each as YAML in one line."""

    def make(listener: str = "", **sections: str) -> Config:
        sections.setdefault("data_dir", str(tmp_path / "data"))
        lines = [f"{name}: {text}" for name, text in sections.items()]
        more = f", {listener}" if listener else ""
        if "listen:" not in listener:
            more += ", listen: 'tcp:127.0.0.1:0'"
        lines.append(f"listeners: [{{name: beats, protocol: lumberjack{more}}}]")
        lines += [] if "admin" in sections else ["admin: {listen: 'tcp:127.0.0.1:0'}"]
        lines += [] if "node" in sections else ["node: gw-1"]
        path = tmp_path / "gateway.yaml"
        path.write_text("\n".join(lines))
        return load(path)

    return make


@pytest.fixture
def start(tmp_path) -> Callable[..., Opened]:
    """Opens a node in the data directory."""

    def start(node: str = "gw-1", *, remembering: bool = False) -> Opened:
        return open_node(
            Start(
                node,
                Directories.under(tmp_path / "data"),
                Machine(),
                {"lumberjack": lambda body: Rows(body.split(b","))},
                remembering=remembering,
            )
        )

    return start


def store(opened: Opened, *bodies: bytes) -> Segment:
    """Some batches in a sealed segment."""
    origin = Origin("lumberjack", "l", "s-1", "[::1]:9")
    for one in bodies:
        opened.log.commit([Batch(origin, 1, one.count(b",") + 1, one, len(one))])
    sealed = opened.log.seal()
    assert sealed is not None
    return sealed


def publish(opened: Opened, *bodies: bytes) -> Path:
    """The same, in a spool file."""
    [published] = opened.publisher.publish(store(opened, *bodies))
    return published.path


def the(looks: Iterator[Look] | list[Look], what: str) -> Look:
    """The one look of that name."""
    [found] = [look for look in looks if look.what == what]
    return found


def states(looks: Iterator[Look]) -> set[str]:
    return {look.state for look in looks}


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()
