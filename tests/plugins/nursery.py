"""A process that has imported all of the gateway, and forks whoever is to run it: `warm`.

    python nursery.py FD

Over that socket comes what to run, as JSON with the three standard files; what goes is the
number of the process.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import runpy
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from twisted.scripts.twistd import run

import gateway
from gateway.store.spool.columns import leave_pandas_out

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
            # Its parent ends at once, and so who asked becomes its parent.
            if os.fork():
                os._exit(0)
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


def _run(words: list[str]) -> None:
    """As the interpreter would, that was started with these words."""
    if Path(words[0]).name == "twistd":
        sys.argv = words
        sys.path[0] = str(Path(words[0]).parent)
        run()
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
