"""Lives of a gateway in a directory, for the audit: files of the spool, one for each body."""

from pathlib import Path

from gateway.event import Batch, Origin, Rows
from gateway.store.directories import Directories
from gateway.store.node import catalog
from gateway.store.node.incarnation import Incarnation
from gateway.store.opening import Start, open_node
from gateway.store.system.machine import Machine

__all__ = ["current", "publish"]


def publish(data: Path, *bodies: bytes) -> list[Path]:
    """One life of a gateway: a file for each body, oldest first."""
    opened = open_node(
        Start(
            "gw",
            Directories.under(data),
            Machine(),
            {"plain": lambda body: Rows(body.split(b","))},
            remembering=False,
        )
    )
    for body in bodies:
        origin = Origin("plain", "l", "s-1", "127.0.0.1:9")
        count = body.count(b",") + 1
        opened.log.commit([Batch(origin, 5, count, body, len(body))])
        sealed = opened.log.seal()
        assert sealed is not None
        opened.publisher.publish(sealed)
    return sorted((data / "spool").glob("events-*"))


def current(data: Path) -> str:
    """The id of the incarnation that its journal has now."""
    found = catalog.look(data / "journal" / "gw").newest(Incarnation)
    assert found is not None
    return found.id
