"""Work for the tables beside the batches, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundTask:
    """Does one piece of work at a time, which ends early once it is to stop."""

    def __init__(self, name: str) -> None:
        """*name* is that of its thread."""
        self._name = name
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def busy(self) -> bool:
        """Whether it is at it now."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, work: Callable[[], None]) -> None:
        """Do that."""
        self._thread = threading.Thread(target=work, name=self._name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until it is done."""
        if self._thread is not None:
            self._thread.join()

    def stop(self) -> None:
        """Give up what is under way, at its next step; nothing is left half done."""
        self._stop.set()
        self.join()
