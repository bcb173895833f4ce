"""Errors that nobody handles: what is logged as a failure, and what a Deferred keeps.

Such a Deferred is logged when it is collected, which may be after the last step, or never
while somebody holds it.  So all that have failed are looked at when a seed ends.
"""

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from twisted.internet import defer
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from simulation.scheduler import Killed

__all__ = ["Errors"]


class Errors:
    """Of one world."""

    def __init__(self) -> None:
        self.logged: list[str] = []
        """Failures that nobody expected; those of a dead life are none."""
        self.said: Counter[str] = Counter()
        """How often the log has had which text of an event."""
        self._kept: list[weakref.ref[Any]] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at everything that happens meanwhile."""
        kept = self._kept

        class DebugInfo(defer.DebugInfo):
            """Twisted makes one for each Deferred that fails."""

            def __init__(self) -> None:
                kept.append(weakref.ref(self))

        # Twisted's own observers keep events, and what is in them, until logging begins.
        observers = patch.object(globalLogPublisher, "_observers", [self._log])
        with patch.object(defer, "DebugInfo", DebugInfo), observers:
            yield

    def collect(self) -> None:
        """Look at what is garbage, and at what is kept."""
        gc.collect()
        for reference in self._kept:
            if (info := reference()) is not None and info.failResult is not None:
                self._add(info.failResult)

    def _log(self, event: dict[str, Any]) -> None:
        self.said[event.get("log_format") or ""] += 1
        if (failure := event.get("log_failure")) is not None:
            self._add(failure)

    def _add(self, failure: Failure) -> None:
        if not failure.check(Killed):
            self.logged.append(str(failure))
