"""Publishes what other nodes left in the journal: no other daemon would.

`node` is the host's name unless the configuration gives it one, so a container may have a
new one at every start.  What it acknowledged under its old name stays that name's: lsns
are unique by node.  A journal that a running gateway has locked is not touched.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gateway.event import Decode
from gateway.sdk.disk import Disk
from gateway.store.checkpoint import saved_names
from gateway.store.directories import Directories
from gateway.store.journal import Loss
from gateway.store.journal.segment import parse_name
from gateway.store.journal.spares import is_spare
from gateway.store.names import is_node_name
from gateway.store.node.catalog import look
from gateway.store.node.incarnation import Incarnation
from gateway.store.node.mark import Marker
from gateway.store.objects.node_record import MOST_EARLIER, NodeRecord, hear
from gateway.store.opening import Start, open_node
from gateway.store.system.machine import Machine


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """A lock that no other daemon can have."""
    yield True


@dataclass(slots=True)
class Orphan:
    """A node that has a journal here, and no daemon."""

    node: str
    events: int = 0
    """Acknowledged events of it that were published now."""
    remembers: list[str] = field(default_factory=list)
    """Protocols whose state it left, which is not served."""
    losses: list[Loss] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    problem: str | None = None
    """Why its events could not be published."""

    @property
    def silent(self) -> bool:
        """There is nothing to tell."""
        return self == Orphan(self.node)


def publish_orphans(
    node: str,
    directories: Directories,
    disk: Disk,
    decoders: Mapping[str, Decode],
    *,
    compression: str = "zstd",
    by: str = "",
    clock: Callable[[], float] = time.time,
    alone_with: Callable[[Path], AbstractContextManager[bool]] = _alone,
    tell: Callable[[Sequence[Loss], Sequence[str]], None] = lambda *_: None,
) -> list[Orphan]:
    """Publish what all nodes but *node* left; returns those with something to tell.

    That is all of them, as *by* (that node, if it is not said) has their directory now.
    *alone_with* locks a journal's directory; false if another daemon has it.  *tell* is
    `opening.Start.tell`.
    """
    found: list[Orphan] = []
    for name in _others(node, directories, disk):
        orphan = Orphan(name)
        try:
            with alone_with(directories.journal_of(name)) as alone:
                if alone:
                    orphan.remembers = saved_names(directories.state_of(name), disk)
                    _publish(orphan, directories, disk, decoders, compression, tell)
                    say_that_it_is_all(name, by or node, directories, disk, clock())
        except Exception as why:  # it must not prevent this node's start
            orphan.problem = f"{type(why).__name__}: {why}"
        if not orphan.silent:
            found.append(orphan)
    return found


def say_that_it_is_all(
    name: str, by: str, directories: Directories, disk: Disk, now: float
) -> None:
    """Say of a node whose journal was published, as *by* has its directory, that this is all.

    The audit needs it, wherever it runs (`gateway.store.objects.node_record.Relay`).
    """
    this = look(directories.journal_of(name), disk).newest(Incarnation)
    if this is None:
        return
    mark, _ = Marker(directories.state_of(name), disk).read()
    last = max(this.since - 1, mark.durable)
    earlier = this.whole[-MOST_EARLIER:]
    record = NodeRecord(
        this.id,
        this.since,
        last,
        now,
        "journal",
        exact=True,
        earlier=earlier,
        begins=tuple(this.began[each] for each in earlier),
        published=last,
        decommissioned=f"node {by} has its directory now",
    )
    hear(directories.arrivals, name, record, now, disk)


def _others(node: str, directories: Directories, disk: Disk) -> list[str]:
    """Nodes with a journal in this data directory that has segments, or whose end was never said.

    Its `journal/` has no others; but one that is elsewhere may be shared with other gateways,
    and then a node that has a directory in `state/` ran here before.  A journal that only was
    set aside under another name, or copied, has incarnations of that one.
    """
    below = directories.journal.is_relative_to(directories.root)
    found, names = [], directories.journal if below else directories.state
    for name in disk.names(names) if disk.exists(names) else ():
        journal, state = directories.journal_of(name), directories.state_of(name)
        if name == node or not is_node_name(name) or not disk.exists(journal):
            continue
        there, this = disk.names(journal), look(journal, disk).newest(Incarnation)
        waits = any(parse_name(each) or is_spare(each) for each in there)
        if not waits and (this is None or _is_told(name, this, directories, disk)):
            continue
        ran_here = disk.exists(state)
        gave = {one.incarnation for each in there if (one := parse_name(each))}
        gave |= {this.id} if this is not None else set()
        if ran_here or (below and not _is_anothers(name, gave, directories, disk)):
            found.append(name)
    return found


def _is_told(
    name: str, this: Incarnation, directories: Directories, disk: Disk
) -> bool:
    """Whether it was said that a node's journal ends with *this*."""
    return disk.exists(directories.arrivals / f"{name}_{this.id}")


def _is_anothers(
    name: str, gave: Collection[str], directories: Directories, disk: Disk
) -> bool:
    """Whether incarnations of that journal are another node's."""
    for other in disk.names(directories.journal):
        if other != name and is_node_name(other):
            this = look(directories.journal_of(other), disk).newest(Incarnation)
            if this is not None and any(map(this.knows, gave)):
                return True
    for other in (
        disk.names(directories.state) if disk.exists(directories.state) else ()
    ):
        mark, _ = Marker(directories.state_of(other), disk).read()
        if other != name and not {mark.incarnation, *mark.earlier}.isdisjoint(gave):
            return True
    return False


def _publish(
    orphan: Orphan,
    directories: Directories,
    disk: Disk,
    decoders: Mapping[str, Decode],
    compression: str,
    tell: Callable[[Sequence[Loss], Sequence[str]], None],
) -> None:
    start = Start(
        orphan.node,
        directories,
        Machine(disk),
        decoders,
        remembering=False,
        compression=compression,
        tell=tell,
    )
    opened = open_node(start)
    orphan.losses, orphan.repairs = list(opened.losses), list(opened.repairs)
    with contextlib.closing(opened.publisher):
        for sealed in opened.unpublished:
            opened.publisher.publish(sealed)
            orphan.events += sealed.events
        # Without it, what is published now would be lost if the journal is removed.
        last = opened.mark(opened.first_lsn - 1, exact=True)
        opened.marker.write(last, now=True)
