"""A process that has imported all of the gateway, and forks whoever is to run it: `warm`.

    python nursery.py FD

Over that socket comes what to run, as JSON with the three standard files; what goes is the
number of the process.  The publisher process that a daemon starts with is a fork of the
daemon, for the same reason: it costs two hundredths of a second instead of half of one.
"""

import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from twisted.scripts.twistd import run

import gateway
import script
from gateway.sdk.arrow import leave_pandas_out
from gateway.store.spool import process, processes

__all__ = ["MOST_BYTES"]

MOST_BYTES = 1 << 17
"""Of what is said of one process."""
_LATE = ("gateway.spark",)
"""Whoever needs these imports them then."""


def _serve(channel: socket.socket) -> list[str]:
    """Fork as often as is asked for; returns in the forks, with the words to run."""
    while True:
        said, descriptors, *_ = socket.recv_fds(channel, MOST_BYTES, 3)
        if not said:
            os._exit(0)
        order = json.loads(said)
        reading, writing = os.pipe()
        if not (between := os.fork()):
            # Its parent ends at once, and so who asked becomes its parent; it sees no other.
            parent = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == parent:
                os.sched_yield()
            if order["session"]:
                os.setsid()
            os.write(writing, str(os.getpid()).encode())
            _become(order, descriptors)
            words: list[str] = order["words"]
            return words
        os.close(writing)
        number = os.read(reading, 64)
        os.waitpid(between, 0)
        for each in (reading, *descriptors):
            os.close(each)
        channel.send(number)


def _become(order: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Take over descriptors, folder and environment."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())  # type: ignore[union-attr]


class _Publisher(subprocess.Popen[bytes]):
    """A publisher process: a fork of its daemon, if that has no threads yet.

    Those may hold locks that nobody lets go of in the fork: then, and so where the first one
    is replaced, it starts as anybody's.
    """

    def _execute_child(  # type: ignore[override]
        self,
        args: Any,
        executable: Any,
        preexec_fn: Any,
        close_fds: Any,
        pass_fds: Sequence[int],
        *rest: Any,
    ) -> None:
        if len([*Path("/proc/self/task").iterdir()]) > 1:
            start = super()._execute_child
            start(args, executable, preexec_fn, close_fds, pass_fds, *rest)  # type: ignore[call-arg]
            return
        pipes = rest[5:11]
        if not (pid := os.fork()):
            try:
                _publish(pass_fds[0], pipes[0])
            finally:
                os._exit(1)
        self.pid = pid
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def _publish(channel: int, standard_input: int) -> None:
    """As a publisher process; ends with it."""
    gc.freeze()  # files of the daemon that nobody needs would close others of their numbers
    os.dup2(standard_input, 0)
    os.closerange(3, channel)
    os.closerange(channel + 1, os.sysconf("SC_OPEN_MAX"))
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.argv = [str(process.__file__), str(channel)]
    process.main()


def _run(words: list[str]) -> None:
    """As the interpreter would, that was started with these words."""
    if Path(words[0]).name == "twistd":
        starts = ModuleType("subprocess")
        starts.__dict__.update(vars(subprocess), Popen=_Publisher)
        processes.subprocess = starts  # type: ignore[attr-defined]
        sys.argv = words
        sys.path[0] = str(Path(words[0]).parent)
        run()
    elif words[1] == script.__file__:
        sys.argv = words[1:]
        runpy.run_path(words[1], run_name="__main__")
    else:
        sys.argv = words[2:]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)


def _import_all(package: ModuleType) -> None:
    """All that is in it."""
    for each in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if each.name in _LATE or each.name.endswith("__main__"):
            continue
        module = importlib.import_module(each.name)
        if each.ispkg:
            _import_all(module)


def _main() -> None:
    """Import, then fork."""
    leave_pandas_out()
    _import_all(gateway)
    assert "twisted.internet.reactor" not in sys.modules
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()
    channel = socket.socket(fileno=int(sys.argv[1]))
    words = _serve(channel)
    channel.detach()
    _run(words)


if __name__ == "__main__":
    _main()
