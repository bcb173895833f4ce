"""The README as the page of an index of packages: its links are whole addresses there.

In the repository they are relative, so that they work in a clone.  Where files of a
release lie is made of `project.urls.Source` and of the two patterns in pyproject.toml.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

__all__ = ["AbsoluteReadme", "absolute"]

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")
_VERSION = re.compile(r"^__version__ = \"(.+)\"$", re.MULTILINE)


class AbsoluteReadme(MetadataHookInterface):
    """hatchling finds it by `[tool.hatch.metadata.hooks.custom]`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Gives the project its long description."""
        root = Path(self.root)
        readme = (root / "README.md").read_text("utf-8")
        [version] = _VERSION.findall((root / "gateway/__init__.py").read_text("utf-8"))
        text = absolute(readme, address(self.config, metadata["urls"], version))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def address(
    patterns: Mapping[str, str], urls: Mapping[str, str], version: str
) -> Callable[[str, bool], str]:
    """Where a file of that version is; an image, as its own bytes."""

    def of(path: str, image: bool) -> str:  # noqa: FBT001 - it is one word of Markdown
        pattern = patterns["images" if image else "files"]
        return pattern.format(source=urls["Source"], version=version, path=path)

    return of


def absolute(markdown: str, of: Callable[[str, bool], str]) -> str:
    """The text, with an address in place of each relative link."""

    def turn(found: re.Match[str]) -> str:
        image, text, path = found.groups()
        return f"{image}[{text}]({of(path, bool(image))})"

    return _LINK.sub(turn, markdown)
