"""Blocks of code of the documentation's pages, as readers copy them."""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("clients/*/README.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
    *sorted(ROOT.glob("packages/*/README.md")),
    ROOT / "bench" / "README.md",
]
_FENCED = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A block that says what it is."""

    page: str
    """Path of the page in the repository."""
    line: int
    language: str
    text: str

    @property
    def first(self) -> str:
        """The first line, which names the block in tests/blocks.toml."""
        return self.text.strip().partition("\n")[0].strip()

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str | Path, language: str = "") -> list[Block]:
    """The blocks of a page, by its path in the repository; all, or of one language."""
    return [one for one in _all(page) if language in ("", one.language)]


def _all(page: str | Path) -> Iterator[Block]:
    text = (ROOT / page).read_text()
    name = (ROOT / page).relative_to(ROOT).as_posix()
    for found in _FENCED.finditer(text):
        if found[2] not in ("", "text", "mermaid"):
            line = text.count("\n", 0, found.start()) + 2
            yield Block(name, line, found[2], dedent(found[3]))
