"""The notes of a release: its section of the changelog, for readers elsewhere."""

from __future__ import annotations

import re
import sys
import tomllib

from parts import ROOT, Failed, Release

sys.path.insert(0, str(ROOT))
from hatch_build import absolute, address

sys.path.remove(str(ROOT))

__all__ = ["cut", "patterns"]


def patterns() -> dict[str, str]:
    """How the repository names a file of a version; hatch_build.py goes by them, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found: dict[str, str] = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    return found


def cut(changelog: str, release: Release) -> str:
    """What stands under the version; before it is released, under "Unreleased"."""
    parts = re.split(r"^## (.+)\n", changelog, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    titles = [one for one in sections if one.split()[0] == release.version]
    for title in [*titles, "Unreleased"]:
        if text := sections.get(title, "").strip():
            of = address(patterns(), {"Source": release.source}, release.version)
            plain = re.sub(r"<!-- .*? -->", "", text)
            return f"# gateway {release.version}\n\n{absolute(plain, of)}\n"
    raise Failed(f"CHANGELOG.md says nothing of {release.version}")
