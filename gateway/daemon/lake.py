"""The daemon's knowledge of the Spark job and of how far behind the tables are.

The job reports in a file beside the tables (`gateway.figures.reported`); the times of
our own events are noted here as they become durable.  Both together say how old the
oldest event is that is in no table yet, whether the job runs or not.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from attrs import define, field

from gateway.admin.freshness import Job
from gateway.daemon.marks import Marks
from gateway.event import Stored
from gateway.figures import section
from gateway.figures.reported import SILENT, Reported
from gateway.sdk.arrow import bounds_of, damage_named, footer_of
from gateway.sdk.protocol import Statistics
from gateway.store.finder import spool_files
from gateway.store.readers.audited import Audited
from gateway.store.readers.lake import health_path

_MARKS = 4096
_MARKS_OF_A_LISTENER = 512
_FILES_AT_START = 100
"""Files that are asked how old they are, about; each speaks for those after it, too."""


@define(eq=False, slots=False)
class LakeWatch:
    """The watch of one node; all calls come from the reactor's thread.

    *has_job*: one is to come; without it nothing is said of a job's silence, and if it may
    run *elsewhere* not before it has reported here.
    *is_ours* says of an incarnation that had the node's name whether it gave lsns of ours.
    """

    _node: str
    _lake: Path
    _spool: Path
    _clock: Callable[[], float] = time.time
    _monotonic: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    _has_job: bool = field(default=True, kw_only=True)
    _elsewhere: bool = field(default=False, kw_only=True)
    _is_ours: Callable[[str], bool] = field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        self._path = health_path(self._lake)
        self._read_at = self._monotonic()
        """When what it says changed last."""
        self.told = Reported()
        """The job's last report."""
        self._stamp: tuple[int, int] | None = None
        self._marks = Marks(_MARKS)
        self._of_listeners: dict[str, Marks] = {}
        self._begun_at = 0
        """The newest lsn at the start: whose events those up to there are is not known."""

    def begin(self, durable_lsn: int) -> None:
        """Note how old the events are that were there before us.  Raises OSError."""
        self._read()
        self._begun_at = durable_lsn
        if durable_lsn <= self.committed_lsn:
            return
        waiting = [
            file
            for file in spool_files(self._spool).get(self._node, [])
            if file.last > self.committed_lsn
        ]
        at: float | None = None
        each = 1 + len(waiting) // _FILES_AT_START
        for begin in range(0, len(waiting), each):
            some = waiting[begin : begin + each]
            with contextlib.suppress(OSError, pa.ArrowException):
                at = _oldest(some[0].path)
            if at is not None:
                self._marks.add(some[-1].last, at, at)
        at = self._clock() if at is None else at
        self._marks.add(durable_lsn, at, at)

    def durable(self, group: list[Stored]) -> None:
        """Note when these events came; they are in order of lsn."""
        of_listeners: dict[str, list[Stored]] = {}
        for stored in group:
            if stored.batch.count:  # else metadata
                of_listeners.setdefault(stored.batch.origin.listener, []).append(stored)
        if not of_listeners:
            return
        spans: dict[str, tuple[int, int, int]] = {}
        for name, some in of_listeners.items():
            times = [stored.batch.received_at for stored in some]
            last = some[-1].lsn + some[-1].batch.count - 1
            spans[name] = last, min(times), max(times)
        for name, (last, oldest, newest) in spans.items():
            marks = self._of_listeners.get(name)
            if marks is None:
                marks = self._of_listeners[name] = Marks(_MARKS_OF_A_LISTENER)
            marks.add(last, oldest / 1e6, newest / 1e6)
        self._marks.add(
            max(last for last, _, _ in spans.values()),
            min(oldest for _, oldest, _ in spans.values()) / 1e6,
            max(newest for _, _, newest in spans.values()) / 1e6,
        )

    @property
    def committed_lsn(self) -> int:
        """The newest of our events that is in a table, as the job last said."""
        by = self.told.committed(self._node)
        ours = [int(last) for name, last in by.items() if self._is_ours(name)]
        return max(ours, default=0)

    @property
    def up(self) -> bool:
        """Whether the job has reported lately that it runs."""
        return self.told.up(self._silent_seconds)

    @property
    def _silent_seconds(self) -> float:
        now = self._clock()
        if (self.told.number("at") or 0.0) - now < SILENT:
            return self.told.silent_seconds(now)
        # The clock was set back since: what was said then was said before we read it.
        return SILENT + self._monotonic() - self._read_at

    @property
    def has_job(self) -> bool:
        """Whether one is to report here."""
        return self._has_job and not (self._elsewhere and not self.told.words)

    @property
    def job(self) -> Job:
        """The job, as it last reported."""
        told, words = self.told, self.told.words
        error = words.get("last_error")
        return Job(
            up=self.up,
            state=told.state,
            doing=str(words.get("doing") or ""),
            silent_seconds=self._silent_seconds,
            batch_seconds=told.number("last_batch_seconds"),
            busy=words.get("busy") is True,
            waiting_seconds=told.waiting_seconds(self._clock()),
            holes=told.count("holes"),
            ended=told.count("ended") or told.count("anew"),
            last_error=None if error is None else str(error),
            failures=int(told.number("failures") or 0),
            last_failure=str(words.get("last_failure") or ""),
            complete=self._age(told.number("complete_through")),
            unknown=self._age(told.number("complete_unknown_since")),
            held_by=told.held_by,
        )

    @property
    def audited(self) -> Audited:
        """The result of the last audit, by the file beside the tables."""
        return Audited.read(self._lake)

    def lag_seconds(self) -> float:
        """Age of our oldest event that is in no table; 0 if there is none."""
        self._marks.forget(self.committed_lsn)
        return self.age_behind(self.committed_lsn) or 0.0

    def age_behind(self, lsn: int) -> float | None:
        """Age of our oldest event behind *lsn*; None: there is none."""
        return self._age(self._marks.oldest_behind(lsn))

    def newest_age(self, lsn: int) -> float | None:
        """Age of our newest event up to *lsn*; None: none of this run's is known."""
        return self._age(self._marks.newest_until(lsn))

    def listener_ages(self, lsn: int, names: Iterable[str]) -> dict[str, float | None]:
        """Age of each listener's oldest event behind *lsn*: 0 if there is none, None
        while events of the last run are behind it, which may be of any listener.
        """
        ages: dict[str, float | None] = {}
        for name in names:
            marks = self._of_listeners.get(name)
            if lsn < self._begun_at:
                ages[name] = None
            elif marks is None:
                ages[name] = 0.0
            else:
                marks.forget(lsn)
                ages[name] = self._age(marks.oldest_behind(lsn)) or 0.0
        return ages

    def _age(self, at: float | None) -> float | None:
        return None if at is None else max(0.0, self._clock() - at)

    def statistics(self) -> Iterator[Statistics]:
        """Sections `audit`, `lake` and `spark`."""
        self._read()
        now, told = self._clock(), self.told
        if found := self.audited.figures(now):
            yield section("audit").of(found)
        if not self.has_job:
            return
        lag = round(self.lag_seconds(), 3)
        yield section("lake").of(
            {
                "lag_seconds": lag,
                "lag_by_node": {self._node: lag},
                "committed_lsn": self.committed_lsn,
                **told.of_tables(),
            }
        )
        yield section("spark").of(told.of_job(now, self._silent_seconds))

    def _read(self) -> None:
        """Read what the job has said last; the file is small and replaced as a whole."""
        with contextlib.suppress(OSError):
            found = self._path.stat()
            stamp = found.st_ino, found.st_mtime_ns
            if stamp != self._stamp:
                self.told = Reported.read(self._path)
                self._stamp, self._read_at = stamp, self._monotonic()


def _oldest(path: Path) -> float:
    """When the first event of a spool file came.  Raises what pyarrow raises."""
    footer = footer_of(path)
    with damage_named():  # it may have no such column, or no group of rows
        column = footer.schema.names.index("received_at")
        bounds = bounds_of(footer, 0, column)
        return path.stat().st_mtime if bounds is None else float(bounds[0].timestamp())
