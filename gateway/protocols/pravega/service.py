"""The Pravega service of a daemon: container, history, controller, ports, statistics."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING

from gateway.protocols.pravega.container import PROTOCOL, Container
from gateway.protocols.pravega.controller import Controller, ControllerAccept
from gateway.protocols.pravega.figures import SEGMENTS
from gateway.protocols.pravega.history import History
from gateway.protocols.pravega.lookups import Lookups
from gateway.protocols.pravega.options import Options
from gateway.protocols.pravega.server import PravegaListener
from gateway.sdk.protocol import Context, Port, Service, Statistics

if TYPE_CHECKING:
    from gateway.sdk.protocol import Listener

_MiB = 2**20
_SUFFIX = ".controller"
_STREAMS_SHOWN = 10
_MOST_THREADS = 4
"""The most reads that look into files at the same time."""


class PravegaService(Service):
    """One container and one controller for all listeners."""

    def __init__(self, context: Context) -> None:
        self._context = context
        cores = len(os.sched_getaffinity(0))
        threads = max(2, min(cores, _MOST_THREADS))
        self._lookups = Lookups(context.reactor, threads)
        self.history = History(context.files, protocol=PROTOCOL, lookups=self._lookups)
        # What concerns the container is the same in all of them: `options.misfits`.
        listeners = context.listeners
        options: Options = listeners[0].options if listeners else Options()
        self.memory = self.container = Container(
            context.journal,
            context.reactor,
            reader=self.history,
            recent_bytes=options.recent_bytes,
            writer_retention=options.writer_retention,
            synchronizers_are_rows=options.synchronizers == "rows",
        )
        self.controller = Controller(self.container, options, self._advertise)

    def reload(self) -> None:
        """Take new rules, for connections that are open, too; all listeners have the same."""
        for listener in self._context.listeners[:1]:
            self.controller.tokens.configure(listener.options.access)

    def ports(self, listener: Listener[Options]) -> Iterator[Port]:
        # The checks also keep clients out of the controller's own tables.
        checks = self.controller.tokens.checks
        yield Port(accept=PravegaListener(listener, self.container, checks))
        if listener.options.controller is not None:
            yield Port(
                accept=ControllerAccept(listener, self.controller),
                suffix=_SUFFIX,
                listen=listener.options.controller,
                alpn=[b"h2"],
                websocket=False,
                prefixes=[b"PRI "],
                unread_bytes=4 * _MiB,
            )

    def _advertise(self, host: str) -> tuple[str, int]:
        """The segment store's host and port, for a client of the controller at *host*."""
        for listener in self._context.listeners:
            options: Options = listener.options
            if options.controller is not None:
                port = self._context.address(listener.name).rpartition(":")[2]
                name, _, port = (options.advertise or f"{host}:{port}").rpartition(":")
                return name.strip("[]"), int(port)
        raise LookupError("no listener has a controller")

    @property
    def _retained_limit(self) -> int | None:
        """The limit in force now; the same in all listeners."""
        return next(
            (one.options.retained_bytes for one in self._context.listeners), None
        )

    def start(self) -> None:
        """Let the controller read its state from the container, which is restored."""
        self._lookups.start()
        self.controller.start()

    def close(self) -> None:
        """Cancel the controller's timers, and let the last reads end."""
        self.controller.stop()
        # Not here: one that hangs in the disk would hold up the end of the journal.
        threading.Thread(target=self._lookups.stop, name="history ends").start()

    def files_removed(self) -> None:
        """Look which files are left: heads of segments may have moved."""
        self.history.refresh()

    def statistics(self) -> Iterator[Statistics]:
        container = self.container
        state, controller = container.state, self.controller
        yield SEGMENTS.of(
            {
                "segments": len(state.segments),
                "transactions": controller.transactions.open,
                "staged_bytes": state.staged_bytes,
                "retained_bytes": state.retained_bytes,
                "retained_limit": self._retained_limit,
                "retained_most": _largest(state.retained, state.retained_bytes),
                "internal_bytes": state.kept_bytes,
                "recent_bytes": container.recent.bytes,
                "denied": dict(controller.access.denied),
                "waiting_reads": container.reads.waiting,
            }
        )


def _largest(sizes: Mapping[str, int], total: int) -> dict[str, float]:
    """The largest of them, and what is left for `others`."""
    found = dict(nlargest(_STREAMS_SHOWN, sizes.items(), key=itemgetter(1)))
    return {**found, "others": total - sum(found.values())}
