"""Writes figures of record into the pages that show them.

The README has a few lines, docs/performance.md the whole table, each between a marker and
`<!-- end -->`.  Any page may say a figure in a sentence, and says behind it which one it
is: `558,000<!-- beats.rate --> events/s`; times a factor: `0.34<!-- beats.cpu * 0.1 -->`
cores.  `beats` is the key of a line in `_lines.py`, `rate` one of its fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from _lines import LINES, said, short, table

__all__ = ["PAGES", "Unknown", "figures", "pages", "written"]

ROOT = Path(__file__).resolve().parents[1]
_END = "<!-- end -->\n"
_BLOCKS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "<!-- bench/table.py: a few lines -->\n": short,
    "<!-- bench/table.py: all lines -->\n": table,
}
_FIGURE = re.compile(
    r"(?P<number>\d[\d,]*(?:\.\d+)?)"
    r"<!-- (?P<line>[a-z0-9-]+)\.(?P<field>[a-z0-9]+)(?: \* (?P<factor>[\d.]+))? -->"
)
PAGES = ("README.md", "CHANGELOG.md", "docs/**/*.md")


class Unknown(Exception):
    """A page names a figure that there is none of."""


def pages(root: Path = ROOT) -> Iterator[Path]:
    """All that may show figures."""
    for pattern in PAGES:
        yield from sorted(root.glob(pattern))


def figures(text: str) -> Iterator[re.Match[str]]:
    """Those that a page says in its sentences."""
    yield from _FIGURE.finditer(text)


def written(text: str, record: Mapping[str, Mapping[str, Any]]) -> str:
    """The page, with the figures of this record."""
    for begin, made in _BLOCKS.items():
        if begin in text:
            before, _, rest = text.partition(begin)
            text = f"{before}{begin}{made(record)}{_END}{rest.partition(_END)[2]}"
    cases = {line.key: line.case for line in LINES}

    def turn(found: re.Match[str]) -> str:
        try:
            values = record[cases[found["line"]]]["values"]
            number = said(values[found["field"]] * float(found["factor"] or 1))
        except KeyError:
            raise Unknown(f"no figure of record for {found[0]}") from None
        return number + found[0].removeprefix(found["number"])

    return _FIGURE.sub(turn, text)
