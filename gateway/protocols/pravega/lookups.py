"""The threads that look into files for Pravega's readers, and whom they serve first.

Many segments share a row group, and decoding it is most of the work for any of them.
Readers that catch up need the same groups, each at its own time.  If they were served as
they ask, or took turns, those ahead would have the next groups decoded.  These would take the
place of groups that those behind need, and have decoded once more.  So the
lowest lsn is served first, and they go through the files together.

Invariant: from when a read came, no more are served before it than three times as many as
waited then, and eight.  Of these, twice as many, and eight, may look anywhere.  The others
are those whose turn came by this same rule sooner: no more than waited.

A thread that has no read to serve makes ready what comes next for one who reads on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

_EACH, _ANYHOW = 2, 8
"""The reads that may be served before one that came earlier: for each that waited then,
and anyhow."""
_STALE = 64


class _Read(Deferred[Any]):
    def __init__(
        self, call: Callable[[], Any], cancel: Callable[[Deferred[Any]], None]
    ) -> None:
        super().__init__(cancel)
        self.call = call
        self.waits = True


_Heap: TypeAlias = list[tuple[int, int, _Read]]
"""Reads by a number, then by age; some of them may not wait any more."""


class Lookups:
    """All methods but `ahead` are called in the reactor's thread."""

    def __init__(self, reactor: IReactorFromThreads, threads: int) -> None:
        self._reactor = reactor
        self._pool = ThreadPool(0, threads, "history")
        self._lock = threading.Lock()
        self._by_lsn: _Heap = []
        self._by_due: _Heap = []
        """Each is next once so many were served."""
        self._asked, self._served, self._waiting = 0, 0, 0
        self._next: Callable[[], object] | None = None
        """The call that makes ready what is read next."""
        self._looks_ahead = False

    def start(self) -> None:
        self._pool.start()

    def stop(self) -> None:
        """Serve what waits, and no more; returns when that is done."""
        self._pool.stop()

    def read(self, lsn: int, call: Callable[[], Any]) -> Deferred[Any]:
        """Call *call* in a thread, for *lsn*; fires with its result.  May be cancelled."""
        read = _Read(call, self._forget)
        with self._lock:
            due = self._served + _EACH * self._waiting + _ANYHOW
            heappush(self._by_lsn, (lsn, self._asked, read))
            heappush(self._by_due, (due, self._asked, read))
            self._asked += 1
            self._waiting += 1
        self._pool.callInThread(self._serve)
        return read

    def ahead(self, call: Callable[[], object]) -> None:
        """Call *call* when no read waits, unless another is given before; its errors are dropped.

        Only called by what `read` calls.
        """
        with self._lock:
            self._next = call

    def _forget(self, read: Deferred[Any]) -> None:
        assert isinstance(read, _Read)
        with self._lock:
            if read.waits:
                self._take(read)

    def _serve(self) -> None:
        self._serve_first()
        self._look_ahead()  # nothing that was found stays here meanwhile

    def _serve_first(self) -> None:
        with self._lock:
            read = self._first()
        if read is None:
            return
        try:
            found = read.call()
        except BaseException:
            found = Failure()
        self._reactor.callFromThread(_tell, read, found)

    def _first(self) -> _Read | None:
        if not self._waiting:
            return None
        due, _, read = _top(self._by_due)
        if due > self._served:
            *_, read = _top(self._by_lsn)
        self._served += 1
        self._take(read)
        return read

    def _take(self, read: _Read) -> None:
        read.waits = False
        self._waiting -= 1
        for heap in (self._by_lsn, self._by_due):
            if len(heap) > 2 * self._waiting + _STALE:
                heap[:] = [each for each in heap if each[2].waits]
                heapify(heap)

    def _look_ahead(self) -> None:
        while True:
            with self._lock:
                call = self._next
                if call is None or self._waiting or self._looks_ahead:
                    return
                self._next, self._looks_ahead = None, True
            try:
                with suppress(Exception):  # the reader is told, once it asks
                    call()
            finally:
                self._looks_ahead = False


def _top(heap: _Heap) -> tuple[int, int, _Read]:
    while not heap[0][2].waits:
        heappop(heap)
    return heap[0]


def _tell(read: _Read, found: Any) -> None:
    if not read.called:  # not cancelled meanwhile
        read.callback(found)
