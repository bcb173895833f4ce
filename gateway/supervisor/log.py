"""One log of several processes: each line says whose it is.

    gateway | 2026-11-27T17:02:11.408Z info  gateway.daemon: Node gw-1 takes events: …
    spark   | 2026-11-27T17:02:13.214Z info  spark: running
    run     | 2026-11-27T17:02:14.001Z info  run: the daemon ended (killed by SIGKILL); …

With `logging.format: json` each line is an object with the key `of`.  On a terminal a line
below the last one says how all of them are, and changes.

It is written on a thread of its own: `gateway run | less`, or a terminal that ^S holds, keeps
neither the processes nor who looks after them.  What is not read is left out, and counted.
"""

from __future__ import annotations

import errno
import json
import re
import select
import shutil
import threading
import time
from collections import deque
from typing import BinaryIO

from gateway.sdk.command import printable
from gateway.spoken import log_line, stamp

OURS = "run"
_GOES_ON = re.compile(r"\d{4}-\d\d-\d\dT|\s")
"""Beginnings of lines that have a time, or belong to the line above."""
_WIDTH = len("gateway")
_CLEAR = "\r\x1b[K"
_UNREAD_BYTES = 1 << 20
"""Bytes that may wait for a reader."""
_LAST_SECONDS = 2.0
"""Seconds that the last lines wait for one."""


class Log:
    """The log, written to *out*, which has no buffer.

    `line` and `state` raise BrokenPipeError once it is known that the reader or the terminal
    is gone.  Lines that do not fit on a full disk are left out.
    """

    def __init__(self, out: BinaryIO, *, as_json: bool) -> None:
        self._pen = _Pen(out)
        self._left_out = 0
        """Lines since the last one that there was room for."""
        self._as_json = as_json
        self.has_state = out.isatty() and not as_json
        """Whether `state` is shown: to a terminal alone."""
        self._state = ""

    def line(self, text: str, whose: str = OURS) -> None:
        """Write a line of a process; one without a time gets the time."""
        clear = _CLEAR if self._state else ""
        left_out = ""
        if self._left_out:
            left_out = self._as(
                f"{self._left_out} lines, which nobody read, are left out", OURS
            )
        if self._pen.write(
            f"{clear}{left_out}{self._as(text, whose)}{self._fitting()}"
        ):
            self._left_out = 0
        else:
            self._left_out += 1

    def state(self, text: str) -> None:
        """How all of them are, in place of what was said of that before."""
        if self.has_state and text != self._state and self._pen.idle:
            self._state = text
            self._pen.write(f"{_CLEAR}{self._fitting()}")

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._state:
            self._state = ""
            self._pen.write(_CLEAR)
        self._pen.close()

    def _as(self, text: str, whose: str) -> str:
        if self._as_json:
            return f"{json.dumps(_object(text, whose))}\n"
        if not _GOES_ON.match(text):
            text = log_line(time.time(), "info", whose, text)
        return f"{whose:<{_WIDTH}} | {printable(text)}\n"

    def _fitting(self) -> str:
        """A line that is wrapped could not be taken back."""
        width = shutil.get_terminal_size().columns - 1
        text = printable(self._state)
        return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


class _Pen:
    """Writes what it is given, in that order, on its thread."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        """Bytes in the queue and in the write that goes on."""
        self._gone = False
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        return not self._waiting_bytes

    def write(self, text: str) -> bool:
        """Whether there was room for it.  Raises BrokenPipeError."""
        data = text.encode("utf-8", "backslashreplace")
        with self._changed:
            if self._gone:
                raise BrokenPipeError
            if self._waiting_bytes + len(data) > _UNREAD_BYTES:
                return False
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            self._changed.notify()
        return True

    def close(self) -> None:
        """Write the rest, unless its reader does not read."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                data = self._waiting.popleft()
            gone = not self._put(data)
            with self._changed:
                self._waiting_bytes -= len(data)
                self._gone = gone
            if gone:
                return

    def _put(self, data: bytes) -> bool:
        """Write *data*; False if its reader is gone."""
        try:
            while data:
                written: int | None = self._out.write(data)
                if written is None:  # another program has made it non-blocking
                    select.select((), (self._out,), ())
                else:
                    data = data[written:]
        except OSError as why:
            return why.errno not in (errno.EPIPE, errno.EIO)  # EIO: a closed terminal
        return True


def _object(text: str, whose: str) -> dict[str, object]:
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if isinstance(said, dict):
        return {"of": whose, **said}
    return {"of": whose, "ts": stamp(time.time()), "msg": text}
