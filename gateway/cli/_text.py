"""Tables, sizes and ages as commands print them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.sdk.command import printable

__all__ = ["age", "size", "table"]


def table(head: Sequence[str], rows: Iterable[Sequence[str | int]]) -> str:
    """Columns under their names; numbers to the right."""
    lines = [tuple(head), *(tuple(map(_cell, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = [all(line[n].isdecimal() for line in lines[1:]) for n in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _cell(value: str | int) -> str:
    return printable(str(value))


def size(count: float) -> str:
    """Bytes as `12.3 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def age(seconds: float) -> str:
    """A time span as `3.2 s`, `5 min`, `2.0 h`, `12.0 d`."""
    for limit, length, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return f"{max(seconds, 0) / length:.1f} {unit}"
    return f"{seconds / 86400:.1f} d"
