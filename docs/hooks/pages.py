"""mkdocs hook: pages of the site that are not in docs/.

- The repository's own pages (README.md is the home page) and the files they link to.
- The options of all commands, behind the table of docs/commands.md.
- The configuration reference, from the types that read the file.

Links between pages are written for readers of the repository; here they are turned
into those of the site.  A file outside of docs/ keeps its path.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commands import options
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from reference import configuration

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"\]\(([^)\s#]+)((?:#[^)\s]*)?)\)")
_START = "## Five minutes with Filebeat"
_FOR_DEVELOPERS = ("adr/", "bench/", "CHANGELOG.md", "CONTRIBUTING.md", "design.md")
"""What a search finds here comes behind what it finds on pages for users."""
_ALWAYS = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "GOVERNANCE.md",
    "bench/RESULTS.md",
    "conf/gateway.yaml",
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what docs/ does not have."""
    readme = (ROOT / "README.md").read_text()
    written = {
        "index.md": readme,
        "start.md": _start(readme),
        "adr/index.md": _decisions(),
        "reference/configuration.md": configuration(),
    }
    for path, text in written.items():
        files.append(File.generated(config, path, content=text))
    for path in sorted(_linked()):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links as the site has them, and what is made of the code behind a page."""
    if page.file.src_uri == "commands.md":
        markdown += options()
    if page.file.src_uri.startswith(_FOR_DEVELOPERS):
        page.meta["search"] = {"boost": 0.001}
    folder = posixpath.dirname(_in_repository(page.file.src_uri))
    here = posixpath.dirname(page.file.src_uri)

    def turn(found: re.Match[str]) -> str:
        target, anchor = found.groups()
        if ":" in target:
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        return f"]({posixpath.relpath(_on_site(path), here or '.')}{anchor})"

    return _outside_of_code(markdown, lambda text: _LINK.sub(turn, _numbered(text)))


def _outside_of_code(markdown: str, change: Any) -> str:
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def _numbered(text: str) -> str:
    """What belongs to a numbered item, four columns in, as this Markdown wants it."""
    lines, inside = [], False
    for line in text.split("\n"):
        if line and not line.startswith("   "):
            inside = bool(re.match(r"\d\. ", line))
        lines.append(f" {line}" if inside and line.startswith("   ") else line)
    return "\n".join(lines)


def _in_repository(page: str) -> str:
    """Where what is at *page* of the site lies in the repository."""
    if page in ("index.md", "start.md"):
        return "README.md"
    if (ROOT / "docs" / page).exists() or not (ROOT / page).exists():
        return f"docs/{page}"
    return page


def _on_site(path: str) -> str:
    """Where the site has what lies at *path* of the repository."""
    if path == "README.md":
        return "index.md"
    if path == "docs/adr":
        return "adr/index.md"
    return path.removeprefix("docs/")


def _start(readme: str) -> str:
    """The section of the README, as a page of its own."""
    if _START not in readme:
        raise SystemExit(f"README.md has no section {_START!r} any more")
    section = readme.split(_START, 1)[1].split("\n## ", 1)[0]
    return f"# First steps\n{section}"


def _decisions() -> str:
    """One line for each decision."""
    lines = [
        "# Decisions",
        "",
        "What could have gone another way, and why it did not.",
        "",
    ]
    for path in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md")):
        title = path.read_text().partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines)


def _linked() -> set[str]:
    """Files outside of docs/ that pages link to, and pages that those link to."""
    found: set[str] = set()
    waiting = [*_ALWAYS, "README.md", *map(_relative, (ROOT / "docs").rglob("*.md"))]
    while waiting:
        path = waiting.pop()
        if not path.startswith("docs/") and path != "README.md":
            found.add(path)
        if path.endswith(".md"):
            more = set(_targets(path)) - found - {"README.md"}
            waiting += [one for one in more if not one.startswith("docs/")]
    return found


def _targets(path: str) -> Iterator[str]:
    text = (ROOT / path).read_text()
    for target, _ in _LINK.findall(text):
        if ":" not in target:
            yield posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
