"""One log of several processes: each line says whose it is.

    gateway | 2026-11-27T17:02:11.408Z info  gateway.daemon: Node gw-1 takes events: …
    spark   | spark: running
    run     | the daemon ended (killed by SIGKILL); it is started again in 1 s

With `logging.format: json` each line is an object with the key `of`.  On a terminal a line
below the last one says how all of them are, and changes.
"""

from __future__ import annotations

import errno
import json
import shutil
from datetime import UTC, datetime
from typing import TextIO

from gateway.sdk.command import printable

OURS = "run"
_WIDTH = len("gateway")
_CLEAR = "\r\x1b[K"


class Log:
    """Written to *out*.  Raises BrokenPipeError, from each method, if nobody reads it, or
    the terminal is gone.  What a full disk does not take is left out.
    """

    def __init__(self, out: TextIO, *, as_json: bool) -> None:
        self._out = out
        self._as_json = as_json
        self.has_state = out.isatty() and not as_json
        """Whether anybody sees what `state` is told."""
        self._state = ""

    def line(self, text: str, whose: str = OURS) -> None:
        """One line of somebody's."""
        if self._as_json:
            self._write(f"{json.dumps(_object(text, whose))}\n")
            return
        clear = _CLEAR if self._state else ""
        self._write(f"{clear}{whose:<{_WIDTH}} | {printable(text)}\n{self._fitting()}")

    def state(self, text: str) -> None:
        """How all of them are, in place of what was said of that before."""
        if self.has_state and text != self._state:
            self._state = text
            self._write(f"{_CLEAR}{self._fitting()}")

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._state:
            self._state = ""
            self._write(_CLEAR)

    def _fitting(self) -> str:
        """A line that is wrapped could not be taken back."""
        width = shutil.get_terminal_size().columns - 1
        text = printable(self._state)
        return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError:
            raise
        except OSError as why:
            if why.errno == errno.EIO:  # a terminal that was closed
                raise BrokenPipeError from why


def _object(text: str, whose: str) -> dict[str, object]:
    """What a line says: an object as it is, or else the text and the time."""
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if isinstance(said, dict):
        return {"of": whose, **said}
    return {"of": whose, "ts": datetime.now(UTC).isoformat(), "msg": text}
