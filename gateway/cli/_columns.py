"""Tables of text, as commands print them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gateway.sdk.command import printable

__all__ = ["table"]

_NUMBER = re.compile(r"[0-9][0-9.,]*(?: [a-zA-Z]+)?$")


def table(head: Sequence[str], rows: Iterable[Sequence[str | int]]) -> str:
    """Columns under their names; numbers to the right, with their units."""
    lines = [tuple(head), *(tuple(map(_cell, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = [
        all(_NUMBER.match(line[n]) for line in lines[1:]) for n in range(len(head))
    ]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _cell(value: str | int) -> str:
    return printable(str(value))
