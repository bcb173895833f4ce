"""What a release is made of: its version and place, the packages, what is in an image."""

from __future__ import annotations

import datetime as dt
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
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
"""Takes the compiler of zig and Python's headers; without them there is no wheel of it."""
KERNELS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
}
"""The platforms that have a wheel of the kernel, and what the compiler calls each."""
_NOBODY = (".example", ".invalid", ".test", "example.com", "localhost")
"""Hosts that are reserved (RFC 2606)."""
_PLACEHOLDERS = ("@gateway.example", "`FINGERPRINT`")
_BILLS = {"daemon.txt": "gateway", "spark.txt": "gateway-spark"}
"""What each image installs, and the image."""


class Failed(Exception):
    """The release can not be made; says what is wrong."""


def program(
    *words: object, cwd: Path = ROOT, environment: Mapping[str, str] | None = None
) -> str:
    """Run a program to its end; what it said on standard output."""
    line = [str(word) for word in words]
    done = subprocess.run(
        line, cwd=cwd, capture_output=True, text=True, check=False,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
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
        way = (root / "SECURITY.md").read_text("utf-8")
        if any(placeholder in way for placeholder in _PLACEHOLDERS):
            yield (
                "SECURITY.md has no mailbox or no fingerprint of a key that are somebody's: "
                "put yours there, and take the sentence about placeholders out"
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
            yield f"there is no ziglang (pip), or no Python.h, for {_COMPILED}"
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
    able = importlib.util.find_spec("ziglang") is not None and headers.exists()
    return [name for name in BESIDE if able or name != _COMPILED]


def packages(
    to: Path, scratch: Path, platforms: Sequence[str] = tuple(KERNELS)
) -> list[Path]:
    """The source distributions, and wheels that are built of nothing but them.

    The kernel has one for each of *platforms*, by the tag of a wheel.
    """
    _build("sdist", ROOT, to)
    [source] = to.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(scratch / "source", filter="data")
    [tree] = (scratch / "source").iterdir()
    kernel = tree / "packages" / _COMPILED
    _build("sdist", kernel, to)
    for folder in (tree, *(tree / "packages" / name for name in made_here())):
        if folder != kernel:
            _build("wheel", folder, to)
            continue
        for platform in platforms:
            compiler = f"{sys.executable} -m ziglang cc -s -target {KERNELS[platform]}"
            _build("wheel", kernel, to, CC=compiler, GATEWAY_NATIVE_PLATFORM=platform)
    return [source, *sorted(path for path in to.iterdir() if path != source)]


def _build(kind: str, folder: Path, to: Path, **environment: str) -> None:
    program(
        sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", to.resolve(),
        cwd=folder, environment=environment,
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
