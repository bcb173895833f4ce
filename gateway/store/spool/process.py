"""A process that writes the Parquet files of segments, for a daemon (`processes`).

    python -m gateway.store.spool.process FD

What comes over that descriptor (of a `multiprocessing` pipe) is the options of each
protocol's listeners, and then, again and again, a `Task` and the link of the file before
it.  What goes is None for each row group, and then the `WrittenFile`, or what went wrong.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.plugins import installed
from gateway.store.disk import RealDisk
from gateway.store.spool.writing import Task, WrittenFile, write

if TYPE_CHECKING:
    from gateway.event import Decode

__all__ = ["decoders", "main", "work"]


class _Alone(BaseException):
    """The daemon has ended."""


def decoders(protocols: Mapping[str, Sequence[Any]]) -> dict[str, Decode]:
    """What reads the batches of each protocol, whose listeners have these options.

    Raises whatever a plug-in does: rows are not to be flawed because it can not be
    imported just now.
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
    """Until the daemon ends."""
    protocols = connection.recv_bytes()
    known = cache(lambda: decoders(pickle.loads(protocols)))  # noqa: S301 - ours
    with contextlib.suppress(Exception):  # it is said with the task
        known()
    with ThreadPoolExecutor(1, "encoding") as executor:
        executor.submit(bool).result()  # its thread begins while there is memory
        while True:
            task = connection.recv()
            connection.send(_attempt(task, known, connection, executor))


def _attempt(
    task: Task,
    known: Callable[[], Mapping[str, Decode]],
    connection: Any,
    executor: Executor,
) -> WrittenFile | Exception:
    asked: list[str] = []

    def previous() -> str:
        if not asked:
            asked.append(_received(connection))
        return asked[0]

    def progress() -> None:
        try:
            connection.send(None)
        except OSError as why:
            raise _Alone from why

    try:
        return write(task, RealDisk(), known(), previous, progress, executor)
    except _Alone:
        raise
    except OSError as why:
        previous()
        return type(why)(why.errno, why.strerror, why.filename)
    except MemoryError:
        previous()
        return MemoryError(f"publisher process {os.getpid()} is out of memory")
    except Exception as why:
        previous()
        return RuntimeError(f"{type(why).__name__}: {why}")


def _received(connection: Any) -> Any:
    try:
        return connection.recv()
    except (OSError, EOFError) as why:
        raise _Alone from why


def main() -> None:
    """See the module."""
    # Where memory is short this one goes first: the daemon starts another.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    # systemd and terminals signal all processes of a service; the daemon decides.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(_Alone, EOFError, BrokenPipeError, ConnectionError):
        work(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
