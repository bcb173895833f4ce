"""Audits that run by themselves, beside the job: once in `spark.audit.every`.

Each is a process of its own (`gateway audit --note`), which gives way to everything else
and ends itself at its limits.  The job is where the tables are, in every topology, so no
timer, second volume or second configuration is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.store.readers.audited import Audited

_log = logging.getLogger("gateway.spark")

_FIRST_SECONDS = 600.0
"""Seconds after a job first ran: it has other things to do at its start."""
_AGAIN_SECONDS = 3600.0
"""Seconds after an attempt that did not come to its end, if the next one is later."""
_LOOK_SECONDS = 30.0
_PATIENCE_SECONDS = 10.0


class Auditor:
    """The audits of one configuration *file*, whose tables are in *lake*."""

    def __init__(
        self,
        file: Path,
        lake: Path,
        every: float | None,
        *,
        clock: Callable[[], float] = time.time,
        command: Sequence[str] = (sys.executable, "-m", "gateway", "audit", "--note"),
    ) -> None:
        self._patience = _PATIENCE_SECONDS
        self._file = file
        self._lake = lake
        self._every = every
        self._clock = clock
        self._command = [*command, "--config", str(file)]
        self._tried: float | None = None
        """The time of our last attempt, whatever stands beside the tables."""

    def begin(self) -> None:
        """Note that one is to come, or that none is.  Raises OSError."""
        known = Audited.read(self._lake)
        if self._every is None and known == Audited():
            return
        since = self._clock() if known.since is None else known.since
        wanted = replace(known, every=self._every, since=since)
        if wanted != known:
            wanted.write(self._lake)

    def due_in(self) -> float | None:
        """Seconds until the next; None: none is to come."""
        if self._every is None:
            return None
        known, now = Audited.read(self._lake), self._clock()
        since = now if known.since is None else min(known.since, now)
        trials = [one for one in (known.tried, self._tried) if one is not None]
        if not trials:
            return since + _FIRST_SECONDS - now
        # A clock that was set back does not keep it waiting for longer.
        tried = min(max(trials), now)
        pause = self._every
        if known.unfinished is not None:
            pause = min(pause, _AGAIN_SECONDS)
        return tried + pause - now

    def run(self, stop: threading.Event) -> None:
        """One audit; it is ended where the job is to *stop*."""
        begun = self._tried = self._clock()
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        said: deque[str] = deque(maxlen=1)  # it may name a million files
        reading = threading.Thread(
            target=lambda: said.extend(process.stdout or ()), daemon=True
        )
        reading.start()
        while process.poll() is None and not stop.wait(0.5):
            pass
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(self._patience)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        reading.join(self._patience)
        if stop.is_set():
            return
        self._tell(process.returncode, said[-1].strip() if said else "", begun)

    def _tell(self, status: int, last: str, begun: float) -> None:
        if status == 0:
            _log.info("The audit says: %s", last)
            return
        known = Audited.read(self._lake)
        if known.tried is None or known.tried < begun - 1:  # it left no word
            known = replace(known, tried=begun, unfinished=last or f"status {status}")
            known.write(self._lake)
        _log.warning(
            "The audit says: %s; gateway audit --config %s says more", last, self._file
        )


@contextlib.contextmanager
def running(config: Any, options: argparse.Namespace) -> Iterator[None]:
    """Meanwhile this job's tables are audited when it is time; not by one that runs once."""
    if options.once:
        yield
        return
    lake, every = config.data_dir / "lake", config.spark.audit.every
    auditor = Auditor(options.config, lake, every)
    stop = threading.Event()
    with contextlib.suppress(OSError):  # the job says that of its own files
        auditor.begin()

    def turns() -> None:
        while (due := auditor.due_in()) is not None:
            if stop.wait(min(max(due, 0.0), _LOOK_SECONDS)):
                return
            if due <= 0:
                try:
                    auditor.run(stop)
                except OSError as why:
                    _log.warning("The audit can not be run: %s", why)
                    stop.wait(_AGAIN_SECONDS)

    # A signal may end the job at any line here.
    thread = threading.Thread(target=turns, name="gateway-audit", daemon=True)
    try:
        thread.start()
        yield
    finally:
        stop.set()
        if thread.is_alive():
            thread.join()
