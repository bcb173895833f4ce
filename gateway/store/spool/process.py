"""A process that writes the Parquet files of segments, for a daemon (`processes`).

    python -m gateway.store.spool.process FD

Over that descriptor (of a `multiprocessing` pipe) come the options of each protocol's
listeners.  Then come a `Task` for each file, and its path with the link of the file before it.
Back go a file's path with `Progress` for each row group, and then with the `WrittenFile`,
or what went wrong.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Barrier, Lock
from typing import TYPE_CHECKING, Any

from gateway.plugins import installed
from gateway.sdk.arrow import leave_pandas_out
from gateway.store.spool.writing import AT_ONCE, Progress, Task, WrittenFile, write
from gateway.store.system.bursts import give_back
from gateway.store.system.disk import RealDisk

if TYPE_CHECKING:
    from gateway.event import Decode

_NICE = 10
_IDLE_SECONDS = 1.0
"""Idle seconds after which it gives back the memory that files took."""


def decoders(protocols: Mapping[str, Sequence[Any]]) -> dict[str, Decode]:
    """The decoders of the protocols, whose listeners have these options.

    Raises what a plug-in does: rows are not to be flawed because it can not be imported just
    now.
    """
    found = installed()
    missing = protocols.keys() - found.protocols.keys()
    if missing:
        raise ImportError("; ".join(map(found.why_not, sorted(missing))))
    return {
        name: found.protocols[name].decoder(options)
        for name, options in protocols.items()
    }


def work(connection: Any) -> None:
    """Work until the daemon ends, which raises EOFError or OSError."""
    protocols = connection.recv_bytes()
    known = cache(lambda: decoders(pickle.loads(protocols)))  # noqa: S301 - ours
    with contextlib.suppress(Exception):  # it is said with the task
        known()
    files = _Files(connection, known)
    idle = False
    while True:
        if not connection.poll(None if idle else _IDLE_SECONDS):
            if idle := not files.in_hand:
                give_back()
            continue
        idle = False
        said = connection.recv()
        if isinstance(said, Task):
            files.begin(said)
        else:
            files.follow(*said)


class _Threads:
    """The threads that write files, and one that encodes the rows of all in turn."""

    def __init__(self, nice: int) -> None:
        begin = partial(_let_others_go_first, nice)
        self.encoder = ThreadPoolExecutor(1, "encoding", begin)
        self.writers = ThreadPoolExecutor(AT_ONCE, "writing", begin)
        # They begin while there is memory.
        all_there = Barrier(AT_ONCE + 2)
        self.encoder.submit(all_there.wait)
        for _ in range(AT_ONCE):
            self.writers.submit(all_there.wait)
        all_there.wait()


def _let_others_go_first(nice: int) -> None:
    """Have this thread wait for theirs; where only processes have a priority, nothing."""
    if nice and sys.platform == "linux":
        with contextlib.suppress(OSError):
            mine = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, 0, max(mine, nice))


class _Files:
    """The files in hand, `AT_ONCE` at most; the daemon sees to that.

    The rows of one are decoded at a time: two that decode at once would only wait for each
    other.  As long as each is done before the next begins, the event loop goes before them,
    whose senders wait.  Else they have as much of the processor as that has, or it would
    take more than they write.  No thread may ask for a higher priority than it has: so
    there are some of each.
    """

    def __init__(
        self, connection: Any, known: Callable[[], Mapping[str, Decode]]
    ) -> None:
        self._connection = connection
        self._known = known
        self._links: dict[Path, SimpleQueue[str]] = {}
        self._saying, self._decoding = Lock(), Lock()
        self._patient, self._hurried = _Threads(_NICE), _Threads(0)

    @property
    def in_hand(self) -> int:
        """How many are begun and not told yet."""
        return len(self._links)

    def begin(self, task: Task) -> None:
        """Write this one: in a hurry if the one before is not done yet."""
        threads = self._hurried if self._links else self._patient
        self._links[task.path] = SimpleQueue()
        threads.writers.submit(self._write, task, threads.encoder)

    def follow(self, path: Path, link: str) -> None:
        self._links[path].put(link)

    def _write(self, task: Task, encoder: Executor) -> None:
        done = self._attempt(task, encoder)
        del self._links[task.path]
        self._say(task, done)

    def _say(self, task: Task, what: WrittenFile | Exception | Progress) -> None:
        with self._saying, contextlib.suppress(OSError):  # the daemon ended: so do we
            self._connection.send((task.path, what))

    def _attempt(self, task: Task, encoder: Executor) -> WrittenFile | Exception:
        """The result of a task; that it failed is told when it is asked for."""
        links = self._links[task.path]
        asked = cache(links.get)
        failed: Exception
        try:
            return write(
                task,
                RealDisk(),
                self._known(),
                asked,
                lambda size: self._say(task, Progress(size)),
                self._decoding,
                encoder,
            )
        except OSError as why:
            failed = type(why)(why.errno, why.strerror, why.filename)
        except MemoryError:
            failed = MemoryError(f"publisher process {os.getpid()} is out of memory")
        except Exception as why:
            failed = RuntimeError(f"{type(why).__name__}: {why}")
        asked()
        return failed


def main() -> None:
    """See the module."""
    # Where memory is short this one goes first: the daemon starts another.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    # systemd and terminals signal all processes of a service; the daemon decides.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    leave_pandas_out()
    status = 0
    try:
        work(Connection(int(sys.argv[1])))
    except (EOFError, OSError):  # what is in hand is the next start's to remove
        pass
    except BaseException:
        traceback.print_exc()
        status = 1
    os._exit(status)  # threads may wait for a daemon that is not there


if __name__ == "__main__":
    main()
