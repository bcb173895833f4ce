"""The first steps of a process that `gateway run` keeps running.

    python -m gateway.supervisor.child PARENT daemon|job|recording WORD …

It leads a session of its own, so that ^C on the terminal reaches its parent alone, which
stops it once.  When the parent is killed it stops as by SIGTERM: no other process reads
its output or starts it again, or kills it where it hangs as it stops.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

from gateway.standard import when_the_parent_ends

STOP_SECONDS = 120.0
"""Seconds for publishing, and for the end of a batch; as the units for systemd have it."""
_LOOK_SECONDS = 1.0


def words(what: str, *more: str) -> list[str]:
    """The command line of a child of this process."""
    parent = str(os.getpid())
    return [sys.executable, "-m", "gateway.supervisor.child", parent, what, *more]


@contextlib.contextmanager
def keep_interrupts_away() -> Iterator[None]:
    """Block ^C, so that a child started meanwhile hears of none before it has a session."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def outlive(parent: int, pause: Callable[[float], object] = time.sleep) -> None:
    """Wait until the parent has ended, and then as long as it would have waited for the end of
    this process: kill that, and its Java.
    """
    while os.getppid() == parent:
        pause(_LOOK_SECONDS)
    pause(STOP_SECONDS)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Become what the command line names."""
    parent, what, *more = sys.argv[1:]
    when_the_parent_ends(signal.SIGTERM)
    if os.getppid() != int(parent):  # it has ended before we said that
        return
    os.setsid()
    # What reached it before that is not for it: `keep_interrupts_away`.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=outlive, args=(int(parent),), daemon=True).start()
    if what == "daemon":
        from twisted.scripts.twistd import run

        sys.argv = ["twistd", *more]
        run()
    elif what == "job":
        from gateway.spark.job import main as job

        sys.exit(job(more))
    else:
        from gateway.spark.jvm.recording import main as record

        os.nice(19)  # nobody waits for it
        sys.exit(record())


if __name__ == "__main__":
    main()
