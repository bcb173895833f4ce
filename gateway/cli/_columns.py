"""Tables of text, as commands print them."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence

from gateway.sdk.command import printable

_NUMBER = re.compile(r"(?:-|[0-9][0-9.,]*(?: [a-zA-Z]+)?)$")
_GAP = "  "
_LEAST_WIDTH = 8
"""A column that is cut keeps so much."""


def terminal_width() -> int | None:
    """The width of the terminal; None if standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str | int]],
    width: int | None = None,
    expendable: Collection[str] = (),
) -> str:
    """Columns under their names; numbers to the right, with their units.

    What is to fit into *width* is without the first of the *expendable* columns, if that
    helps, and then the widest columns are cut.
    """
    cells = [[printable(str(value)) for value in row] for row in rows]
    lines = [list(head), *cells]
    columns = list(zip(*lines, strict=True))
    if width is None:
        return _laid_out(columns, [_width_of(column) for column in columns])
    for name in expendable:
        if _whole(columns) > width:
            columns = [column for column in columns if column[0] != name]
    return _laid_out(columns, _cut(columns, width))


def _whole(columns: Sequence[Sequence[str]]) -> int:
    return sum(_width_of(column) + len(_GAP) for column in columns) - len(_GAP)


def _width_of(column: Sequence[str]) -> int:
    return max(map(_cells, column))


def _cut(columns: Sequence[Sequence[str]], width: int) -> list[int]:
    """Widths of the columns; the widest gives way, the last one of several."""
    widths = [min(_width_of(column), width) for column in columns]
    room = width - len(_GAP) * (len(columns) - 1)
    while sum(widths) > room and max(widths) > _LEAST_WIDTH:
        widest = max(range(len(widths)), key=lambda n: (widths[n], n))
        widths[widest] -= 1
    return widths


def _laid_out(columns: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    made = [
        [_fitted(cell, width, right=numeric) for cell in column]
        for column, width in zip(columns, widths, strict=True)
        for numeric in [all(map(_NUMBER.match, column[1:]))]
    ]
    return "\n".join(_GAP.join(line).rstrip() for line in zip(*made, strict=True))


def _fitted(cell: str, width: int, *, right: bool) -> str:
    lacks = width - _cells(cell)
    if lacks < 0:
        from rich.cells import set_cell_size

        return f"{set_cell_size(cell, width - 1)}…"
    return " " * lacks + cell if right else cell + " " * lacks


def _cells(text: str) -> int:
    """How many cells of a terminal it takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
