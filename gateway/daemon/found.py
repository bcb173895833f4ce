"""Tells in the log what the start found in the data directory: losses, strangers' files."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.logger import Logger

from gateway.store.directories import Directories
from gateway.store.journal import Loss
from gateway.store.node.orphans import Orphan
from gateway.store.storage import OpenedStorage


class Found:
    """The findings of one start of *node*; *corrupt* counts records of the journal."""

    _log = Logger()

    def __init__(self, node: str, corrupt: Callable[[int], None]) -> None:
        self._node = node
        self._corrupt = corrupt
        self.lost_events = 0
        """Acknowledged, and not on the disk any more; at most."""

    def noticed(self, notice: str) -> None:
        """Log a notice for operators about the directory's past."""
        self._log.warn("{notice}", notice=notice)

    def tell(self, storage: OpenedStorage) -> None:
        """Log what is there of others."""
        for orphan in storage.orphans:
            self._orphan(orphan, storage.settings.directories)
        for path in storage.found.foreign:
            self._log.warn("{path} is not the gateway's; it is left alone", path=path)

    def damaged(self, losses: Iterable[Loss], repairs: Iterable[str]) -> None:
        """Log, before a file is changed, what is lost and what is repaired."""
        for loss in losses:
            self._corrupt(1)
            self.lost_events += loss.events
            self._log.error(
                "{path}: {why} (lsn {lsn}, {events} acknowledged events)",
                path=loss.path,
                why=loss.why,
                lsn=loss.first_lsn,
                events=loss.events,
            )
        for repair in repairs:
            self._corrupt(1)
            self._log.error("{repair}", repair=repair)

    def _orphan(self, orphan: Orphan, directories: Directories) -> None:
        """Log the journal of another node: the node was renamed, perhaps."""
        here = self._node
        if orphan.problem is not None:
            self._log.error(
                "What node {node} left in its journal can not be published: {why}",
                node=orphan.node,
                why=orphan.problem,
            )
        if orphan.events:
            self._log.warn(
                "Node {node} left {count} acknowledged events in its journal; they are "
                "published now, as its own.  This node is {here}: set node in the "
                "configuration, so that it keeps its name",
                node=orphan.node,
                count=orphan.events,
                here=here,
            )
        if orphan.remembers:
            self._log.warn(
                "What {protocols} remembered for node {node} is not served: this node is "
                "{here}.  Set node to {node} in the configuration, or remove {directory}",
                protocols=" and ".join(orphan.remembers),
                node=orphan.node,
                here=here,
                directory=directories.state_of(orphan.node),
            )
