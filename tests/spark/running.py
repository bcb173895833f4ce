"""The job in a thread of a test's, on the test's Spark session."""

import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Self

from deadlines import PATIENCE, eventually
from gateway.spark import job

__all__ = ["Running"]


class Running:
    """The job in a thread; left with `with`, it is stopped and must have ended well."""

    def __init__(self, config: SimpleNamespace, spark: Any) -> None:
        self.said: list[Mapping[str, Any]] = []
        self.failed: list[BaseException] = []
        self._arguments = config, spark
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            job.run(*self._arguments, self._stop, report=self.said.append)
        except BaseException as why:
            self.failed.append(why)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self.failed == []
        assert self.said[-1]["state"] == "stopped"

    def until(self, look: Callable[[], object], what: str) -> None:
        """Wait, unless it fails before."""
        eventually(lambda: self.failed or look(), what, 2 * PATIENCE)
