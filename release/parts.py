"""What a release is made of: its version and place, the packages, what is in an image."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

__all__ = [
    "BESIDE",
    "ROOT",
    "Failed",
    "Release",
    "bills",
    "made_here",
    "packages",
    "program",
]

ROOT = Path(__file__).resolve().parents[1]
BESIDE = ("gateway-demo", "gateway-testkit", "rsio-check", "gateway-native")
"""Distributions of their own in this repository; they have the gateway's version."""
_COMPILED = "gateway-native"
"""Takes a C compiler and Python's headers; without them there is no wheel of it."""
_COMPILER = os.environ.get("CC", "cc")
_NOBODY = (".example", ".invalid", ".test", "example.com", "localhost")
"""Hosts that are reserved (RFC 2606)."""
_BILLS = {"daemon.txt": "gateway", "spark.txt": "gateway-spark"}
"""What each image installs, and the image."""


class Failed(Exception):
    """The release can not be made; says what is wrong."""


def program(*words: object, cwd: Path = ROOT) -> str:
    """Run a program to its end; what it said on standard output."""
    line = [str(word) for word in words]
    done = subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(line)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


@dataclass(frozen=True)
class Release:
    """What is said of it everywhere."""

    version: str
    revision: str
    """The commit; empty in a tree that is no clone."""
    changed: bool
    """The tree has what no commit has."""
    tag: str
    """That of the commit, if it has one."""
    source: str
    """Where the repository is."""
    created: str

    @classmethod
    def of_tree(cls, root: Path = ROOT) -> Release:
        """The one that this tree would be."""
        text = (root / "gateway/__init__.py").read_text("utf-8")
        [version] = re.findall(r"^__version__ = \"(.+)\"$", text, re.MULTILINE)
        project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
        return cls(
            version,
            _git(root, "rev-parse", "HEAD"),
            bool(_git(root, "status", "--porcelain")),
            _git(root, "describe", "--exact-match", "--tags"),
            project["urls"]["Source"],
            dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        )

    def obstacles(self, root: Path = ROOT) -> Iterator[str]:
        """What keeps it from going out; nothing, if it may."""
        host = urlsplit(self.source).hostname or ""
        if not host or host.endswith(_NOBODY):
            yield (
                f"pyproject.toml: project.urls has {self.source!r}, which is nobody's; "
                "say where the repository is, in the packages beside the daemon too"
            )
        changes = (root / "CHANGELOG.md").read_text("utf-8")
        if not re.search(rf"^## {re.escape(self.version)} ", changes, re.MULTILINE):
            yield (
                f"CHANGELOG.md has no heading '## {self.version} (YEAR-MONTH-DAY)'; "
                "'Unreleased' becomes it"
            )
        if self.changed:
            yield "the tree has what no commit has (git status)"
        if len(made_here()) < len(BESIDE):
            yield f"there is no C compiler ({_COMPILER}), or no Python.h, for {_COMPILED}"
        if self.tag != f"v{self.version}":
            yield f"the commit has no tag: git tag --sign v{self.version}"

    def publish(self, folder: Path) -> list[str]:
        """The commands that would."""
        given = {
            "VERSION": self.version, "REVISION": self.revision,
            "CREATED": self.created, "SOURCE": self.source,
        }  # fmt: skip
        words = " ".join(f"{name}={value}" for name, value in given.items())
        return [
            f"python -m twine upload {folder}/*.tar.gz {folder}/*.whl",
            f"{words} docker buildx bake -f release/docker-bake.json --push    # to a registry: --set '*.tags=…'",
        ]


def _git(root: Path, *words: str) -> str:
    """What git says; nothing where it knows nothing."""
    line = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def made_here() -> list[str]:
    """Those of `BESIDE` of which a wheel can be made on this machine."""
    headers = Path(sysconfig.get_path("include"), "Python.h")
    able = shutil.which(_COMPILER.split()[0]) is not None and headers.exists()
    return [name for name in BESIDE if able or name != _COMPILED]


def packages(to: Path, scratch: Path) -> list[Path]:
    """The source distribution, and wheels that are built of nothing but it."""
    _build("sdist", ROOT, to)
    [source] = to.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(scratch / "source", filter="data")
    [tree] = (scratch / "source").iterdir()
    for folder in (tree, *(tree / "packages" / name for name in made_here())):
        _build("wheel", folder, to)
    return [source, *sorted(to.glob("*.whl"))]


def _build(kind: str, folder: Path, to: Path) -> None:
    program(
        sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", to.resolve(),
        cwd=folder,
    )  # fmt: skip


def bills(release: Release, to: Path) -> None:
    """A list of the packages of each image, by version and hash, as the lock names them."""
    command = Path(sys.executable).with_name("cyclonedx-py")
    of = ("--pyproject", ROOT / "pyproject.toml", "--mc-type", "application")
    for lock, image in _BILLS.items():
        file = to / f"{image}-{release.version}.cdx.json"
        program(
            command, "requirements", ROOT / "requirements" / lock, *of,
            "--output-reproducible", "--of", "JSON", "-o", file.resolve(),
        )  # fmt: skip
        bill = json.loads(file.read_text("utf-8"))
        bill["metadata"]["component"] |= {"name": image, "version": release.version}
        file.write_text(json.dumps(bill, indent=1) + "\n", "utf-8")


def clean(folder: Path) -> Path:
    """An empty virtual environment's Python."""
    shutil.rmtree(folder, ignore_errors=True)
    program(sys.executable, "-m", "venv", folder)
    return folder / "bin" / "python"
