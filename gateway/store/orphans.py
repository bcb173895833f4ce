"""Publishes what other nodes left in the journal: nobody else would, once a node has
another name.

`node` is the host's name unless the configuration gives it one, so a container may have a
new one at every start.  What it acknowledged under its old name stays that name's: lsns
are unique by node.  A journal that a running gateway has locked is not touched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.event import Decode
from gateway.store.checkpoint import Unreadable, saved_names
from gateway.store.directories import Directories
from gateway.store.disk import Disk
from gateway.store.journal.segment import OtherFormat, parse_name
from gateway.store.opening import open_node

__all__ = ["Orphan", "publish_orphans"]


@dataclass(slots=True)
class Orphan:
    """A node that has a journal here, and no daemon."""

    node: str
    events: int = 0
    """So many of its acknowledged events were published now."""
    remembers: list[str] = field(default_factory=list)
    """Protocols whose state it left; nobody serves that."""
    problem: str | None = None
    """Why its events could not be published."""


def publish_orphans(
    node: str,
    directories: Directories,
    disk: Disk,
    decoders: Mapping[str, Decode],
    *,
    compression: str = "zstd",
    is_free: Callable[[str], bool] = lambda node: True,
) -> list[Orphan]:
    """Publish what all nodes but *node* left; those with something to tell.

    *is_free* locks another node's journal; false if somebody has it.
    """
    found: list[Orphan] = []
    for name in _others(node, directories, disk):
        if not is_free(name):
            continue
        orphan = Orphan(name)
        try:
            orphan.remembers = saved_names(directories.state_of(name), disk)
            _publish(orphan, directories, disk, decoders, compression)
        except (Unreadable, OtherFormat, OSError) as why:
            orphan.problem = str(why)
        if orphan.events or orphan.remembers or orphan.problem:
            found.append(orphan)
    return found


def _others(node: str, directories: Directories, disk: Disk) -> list[str]:
    """Nodes with segments in the journal."""
    found = []
    if disk.exists(directories.journal):
        for name in disk.names(directories.journal):
            with contextlib.suppress(NotADirectoryError):
                names = disk.names(directories.journal_of(name))
                if name != node and any(map(parse_name, names)):
                    found.append(name)
    return found


def _publish(
    orphan: Orphan,
    directories: Directories,
    disk: Disk,
    decoders: Mapping[str, Decode],
    compression: str,
) -> None:
    opened = open_node(
        orphan.node,
        directories,
        disk,
        decoders,
        remembering=False,
        compression=compression,
    )
    with contextlib.closing(opened.publisher):
        for sealed in opened.unpublished:
            opened.publisher.publish(sealed)
            orphan.events += sealed.events
