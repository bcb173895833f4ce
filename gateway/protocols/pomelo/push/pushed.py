"""The names of the outbox files that were pushed, on disk: none is pushed a second time.

A job that crashes between writing a file and noting that it did so writes it again, and
the gateway may have pushed and removed the first one by then.

    file = lines; line = crc32c (8 hex digits) | space | {"name", "at"} | newline

A line is appended and synced before the first push of its file is sent.  A power cut may
tear the last line only, and that of a file of which nothing was pushed.  The file is
written anew at each start, and when most of its lines say what is forgotten by then.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import msgspec
from attrs import define

from gateway.sdk.disk import Disk, File, replace_file
from gateway.sdk.summed import decode, encode

_SPARE_LINES = 1000
_LEAP_SECONDS = 3 * 86400.0
"""A start at which the last push is so long ago may have a clock that is ahead."""


class _Line(msgspec.Struct):
    name: str
    at: float
    """When it was pushed: seconds since the epoch."""


@define(eq=False, slots=False)
class PushedNames:
    """Remembers names for *seconds*, and *most* of them; its methods block.

    *clock* begins at the time of the start, in seconds since the epoch, and does not leap.
    """

    _path: Path
    _seconds: float
    _most: int
    _disk: Disk
    _clock: Callable[[], float]

    def __attrs_post_init__(self) -> None:
        self._names: dict[str, float] = {}
        """When each was pushed; the oldest first."""
        self._file: File | None = None
        self._size = self._lines = 0
        self.damaged = 0
        """Lines that could not be read: whatever they named may be pushed again."""

    def __len__(self) -> int:
        return len(self._names)

    def ago(self, name: str) -> float | None:
        """Seconds since a file of this name was pushed; None if that is not known."""
        at = self._names.get(name)
        return None if at is None or self._is_over(at) else self._clock() - at

    def open(self) -> None:
        """Read what is there.  Raises OSError; then nothing may be pushed."""
        if self._disk.exists(self._path):
            data, readable = self._read()
            lines = data.split(b"\n")[:-1]
            found = [line for text in lines if (line := _line(text)) is not None]
            self._names = self._times(found)
            # Of what can not be read nobody knows how many lines there were.
            self.damaged = max(len(lines) - len(found), 0 if readable else 1)
        self._write_anew()

    def _times(self, lines: list[_Line]) -> dict[str, float]:
        """When each counts as pushed; the clock of this start, or an earlier one, may have
        been wrong: rather a name is remembered for too long.
        """
        now = self._clock()
        pause = now - max((line.at for line in lines), default=now)
        later = pause if pause > _LEAP_SECONDS else 0.0
        return {line.name: min(line.at + later, now) for line in lines}

    def _read(self) -> tuple[bytes, bool]:
        """The file's bytes, and whether the disk gave back all of it."""
        try:
            return self._disk.read(self._path), True
        except OSError as why:
            if why.errno != errno.EIO:
                raise
        return self._disk.read_around(self._path), False

    def add(self, name: str) -> None:
        """Note durably that a file of this name will be pushed.  Raises OSError, noting nothing."""
        if self._file is None or self._lines > 2 * len(self._names) + _SPARE_LINES:
            self._write_anew()
        assert self._file is not None
        at = self._clock()
        line = encode(_Line(name, at))
        try:
            self._file.write([line])
            self._file.sync()
        except OSError:
            # The line may be on disk, and a start would believe it: write a file without.
            # If that fails too, the next `add` begins with it.
            self.close()
            with contextlib.suppress(OSError):
                self._write_anew()
            raise
        self._lines += 1
        self._names.pop(name, None)
        self._names[name] = at
        self.forget()

    def forget(self) -> None:
        """Forget what was pushed too long ago, and the oldest if there are too many."""
        over = len(self._names) - self._most
        for name in list(islice(self._names, max(over, 0))):
            del self._names[name]
        while self._names and self._is_over(next(iter(self._names.values()))):
            del self._names[next(iter(self._names))]

    def close(self) -> None:
        """Let go of the file; `add` opens it again."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()

    def _is_over(self, at: float) -> bool:
        return self._clock() - at >= self._seconds

    def _write_anew(self) -> None:
        self.close()
        self.forget()
        lines = [encode(_Line(name, at)) for name, at in self._names.items()]
        self._file = replace_file(self._disk, self._path, [b"".join(lines)])
        self._lines = len(lines)


def _line(text: bytes) -> _Line | None:
    try:
        return decode(text, _Line)
    except msgspec.MsgspecError:
        return None
