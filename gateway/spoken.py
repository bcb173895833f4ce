"""Sizes, durations and counts as people read them: `1.2 GiB`, `4 min`, `2,340 files`.

Whatever a person reads is written by these: sentences, tables, reasons in logs.  Programs
get bytes and seconds; a value of the configuration is written as its file has it
(`gateway.sdk.units`).
"""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def duration(seconds: float) -> str:
    """Seconds as people read them: `0.4 s`, `45 s`, `4 min`, `3 h`.

    Rounded down: to a tenth of a second below ten, else to whole numbers of the unit.
    """
    seconds = max(0.0, seconds)
    for unit, name in _UNITS:
        if seconds >= 2 * unit or (name == "min" and seconds >= 60):
            return f"{int(seconds // unit)} {name}"
    if seconds < 10:
        return f"{int(seconds * 10) / 10:.1f} s"
    return f"{int(seconds)} s"


def milliseconds(seconds: float) -> str:
    """Seconds of something short, in milliseconds: `1.8 ms`, `125 ms`."""
    digits = 1 if seconds < 0.1 else 0
    return f"{1000 * seconds:.{digits}f} ms"


def moment(seconds: float) -> str:
    """A time of the epoch: `2026-03-01 12:00:00 UTC`."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{seconds:.0f} s after 1970"


def stamp(seconds: float) -> str:
    """A time of the epoch, as each line of a log begins: `2026-03-01T12:00:00.524Z`."""
    when = datetime.fromtimestamp(seconds, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log_line(seconds: float, level: str, logger: str, text: str) -> str:
    """A line of a log, as daemon, job and `gateway run` write them."""
    return f"{stamp(seconds)} {level:<5} {logger}: {text}"


def many(count: int, noun: str) -> str:
    """`1 file`, `2,340 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: float) -> str:
    """*count* bytes: `512 B`, `1.2 GiB`, `340 MiB`."""
    step = 0
    while count >= 1024 and step < len(_SIZES) - 1:
        count /= 1024
        step += 1
    digits = 1 if step and count < 10 else 0
    return f"{count:.{digits}f} {_SIZES[step]}"
