"""Calls of Python functions that one window takes on its way, by file.

    python bench/calls.py                    one Lumberjack window of 64 events
    python bench/calls.py --by-function      with each file and function

A daemon runs in this process on a real socket, journal and spool.  A window is sent, and
what Python functions the daemon's threads call is counted.

to the acknowledgement   from the return of `recv` to the call of `send`, of a window whose
                         segment has one before it
to the file              of a window alone, until the journal is told that its file is
                         published (`spool.publishers: 0`: it is made in this process)

Each figure is the fewest of some windows, as timers may run meanwhile.

Files are those of the package `gateway`.  Calls of Twisted and the standard library, and of
constructors that attrs and dataclasses make, are counted apart.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from _machine import machine
from _report import Report, arguments, main, workplace
from _windows import build

_WINDOWS = 9
_ROOT = f"{Path(__file__).parents[1] / 'gateway'}{os.sep}"


class Calls:
    """Counts the calls of all threads that are started while it is there."""

    def __init__(self) -> None:
        self._found: Counter[CodeType] = Counter()
        self._counting = self._armed = False
        self._acknowledged: Counter[CodeType] | None = None
        self.published = threading.Event()

    def arm(self) -> None:
        """Begin with the next `recv` that returns."""
        self._counting = False
        self._found, self._acknowledged = Counter(), None
        self.published.clear()
        self._armed = True

    @property
    def to_acknowledgement(self) -> Counter[CodeType]:
        """Those until the window was acknowledged."""
        assert self._acknowledged is not None
        return self._acknowledged

    @property
    def to_file(self) -> Counter[CodeType]:
        """Those until its file was published."""
        return self._found

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """See `sys.setprofile`."""
        if event == "call":
            if self._counting:
                self._found[frame.f_code] += 1
        elif event == "return":
            if self._counting and frame.f_code.co_qualname == "Journal.published":
                self._counting = False
                self.published.set()
        elif event == "c_return" and self._armed:
            if argument.__name__ == "recv":
                self._armed, self._counting = False, True
        elif (
            event == "c_call"
            and self._counting
            and self._acknowledged is None
            and argument.__name__ == "send"
        ):
            self._acknowledged = self._found.copy()

    @contextmanager
    def of_new_threads(self) -> Iterator[None]:
        """Those of this thread, too."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


Found = list[Counter[CodeType]]


def measure(home: Path, calls: Calls, events: int) -> tuple[Found, Found]:
    """What windows took to the acknowledgement, and to the file."""
    from gateway.daemon.start import Options, makeService

    file = home / "gateway.yaml"
    settings = {
        "node": "gw-1",
        "data_dir": str(home / "data"),
        "listeners": [
            {"name": "beats", "protocol": "lumberjack", "listen": "tcp:127.0.0.1:0"}
        ],
        "admin": {"listen": "tcp:127.0.0.1:0"},
        "spool": {"publishers": 0, "roll_interval": "400ms"},
    }
    file.write_text(json.dumps(settings))
    options = Options()
    options.parseOptions(["--config", str(file)])
    to_acknowledgement: Found = []
    to_file: Found = []

    def send(address: str) -> None:
        """In a thread beside the daemon's, which is not counted."""
        host, _, port = address.rpartition(":")
        windows = iter(build(3 * _WINDOWS + 3, events, seed=7).frames)
        with socket.create_connection((host.removeprefix("tcp:"), int(port))) as peer:

            def window() -> None:
                peer.sendall(next(windows))
                assert peer.recv(6)[:2] == b"2A"
                time.sleep(0.05)

            for _ in range(_WINDOWS + 1):
                calls.arm()
                window()
                assert calls.published.wait(30)
                to_file.append(calls.to_file)
                time.sleep(0.05)
                window()
                calls.arm()
                window()
                to_acknowledgement.append(calls.to_acknowledgement)
                assert calls.published.wait(30)
                time.sleep(0.05)

    with calls.of_new_threads():
        service: Any = makeService(options)
        from twisted.internet import reactor

        turns: Any = reactor

        def sent_all(thread: threading.Thread) -> None:
            if thread.is_alive():
                turns.callLater(0.05, sent_all, thread)
            else:
                service.stopService().addBoth(lambda _: turns.stop())

        def start() -> None:
            service.privilegedStartService()
            service.startService()
            [gateway] = [one for one in service if hasattr(one, "daemon")]
            [listener] = gateway.status().listeners
            threading.setprofile(None)
            thread = threading.Thread(target=send, args=(listener.address,))
            thread.start()
            threading.setprofile(calls)
            turns.callLater(0.05, sent_all, thread)

        turns.callWhenRunning(start)
        turns.run()
    return to_acknowledgement, to_file


def whose(code: CodeType) -> str:
    """The file of ours, or who else's it is."""
    name = code.co_filename
    if name.startswith("<"):
        return "made by attrs and dataclasses"
    if name.startswith(_ROOT):
        return name.removeprefix(_ROOT)
    return "Twisted" if "/twisted/" in name else "the standard library and others"


def describe(
    report: Report, what: str, found: Found, options: argparse.Namespace
) -> None:
    """The window with the fewest calls."""
    fewest = min(found, key=Counter.total)
    files: Counter[str] = Counter()
    for code, count in fewest.items():
        files[whose(code)] += count
    ours = {name: count for name, count in files.items() if name.endswith(".py")}
    report.add(f"{what}: calls of the gateway's functions", sum(ours.values()))
    report.add(f"{what}: in files", len(ours))
    report.add(f"{what}: other calls", files.total() - sum(ours.values()))
    report.add(f"{what}: all calls", files.total())
    if options.by_function:
        for name, count in files.most_common():
            report.add(f"  {what}: {name}", count)
        for code, count in fewest.most_common():
            report.add(f"    {what}: {whose(code)} {code.co_qualname}", count)


def bench() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--events", type=int, default=64, help="of a window")
    parser.add_argument("--by-function", action="store_true")
    options = parser.parse_args()
    with workplace(options) as home:
        report = Report("Calls of a window", machine(home))
        to_acknowledgement, to_file = measure(home, Calls(), options.events)
    describe(report, "to the acknowledgement", to_acknowledgement, options)
    describe(report, "to the file", to_file, options)
    return report.finish(as_json=options.json)


if __name__ == "__main__":
    main(bench)
