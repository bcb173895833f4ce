"""Builds a release and looks at it, in dist/: `make release`.

    python release                  a rehearsal: everything, of the tree as it is
    python release --final          refuses first what must not go out
    python release --spark          installs the Spark job as well (600 MB), and runs it
    python release --no-index       without the installation in an empty environment

It writes the source distribution, wheels that are built from it, a list of what an image
has in it (CycloneDX), the notes of the release and SHA256SUMS.  It publishes nothing: at
its end it says the commands for that.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from checks import described, installed, whole
from notes import cut
from parts import ROOT, Failed, Release, bills, packages

DIST = ROOT / "dist"


def main() -> int:
    """Its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--final", action="store_true", help="refuse a rehearsal")
    parser.add_argument("--spark", action="store_true", help="install the job, too")
    parser.add_argument("--no-index", action="store_true", help="install nothing")
    parser.add_argument("--directory", type=Path, default=DIST, help="instead of dist/")
    options = parser.parse_args()
    release = Release.of_tree()
    missing = list(release.obstacles())
    if missing and options.final:
        print("This is not ready to go out:", *missing, sep="\n  ", file=sys.stderr)
        return 1
    try:
        make(release, options)
    except Failed as why:
        print(f"\n{why}", file=sys.stderr)
        return 1
    print(f"\n{options.directory}:", *listed(options.directory), sep="\n  ")
    if missing:
        print("\nBefore this can go out:", *missing, sep="\n  ")
    print("\nTo publish:", *release.publish(options.directory), sep="\n  ")
    return 0


def make(release: Release, options: argparse.Namespace) -> None:
    """All of it, or Failed."""
    to: Path = options.directory
    if to.resolve() == DIST:
        shutil.rmtree(to, ignore_errors=True)
    elif to.is_dir() and any(to.iterdir()):
        raise Failed(f"{to} has files in it; name a folder that is empty or new")
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        made = packages(to, Path(scratch))
        told("built from the source distribution", f"{len(made)} files")
        whole(made, release)
        told("every module is in its wheel", "one version everywhere")
        described(made)
        told("an index of packages can show it", "twine, and no link into nowhere")
        bills(release, to)
        told("what is in an image is listed", "CycloneDX")
        notes = cut((ROOT / "CHANGELOG.md").read_text("utf-8"), release)
        (to / f"notes-{release.version}.md").write_text(notes, "utf-8")
        if not options.no_index:
            installed(made, Path(scratch), spark=options.spark)
            told("it runs in an empty environment", "events sent, stored, audited")
    sums(to)


def told(what: str, how: str) -> None:
    """A line for each look."""
    print(f"ok  {what} ({how})", flush=True)


def sums(folder: Path) -> None:
    """As `sha256sum --check SHA256SUMS` reads them."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
    ]
    (folder / "SHA256SUMS").write_text("".join(lines), "utf-8")


def listed(folder: Path) -> list[str]:
    """Its files, with their sizes."""
    return [
        f"{path.name}  {path.stat().st_size / 1024:,.0f} KiB"
        for path in sorted(folder.iterdir())
    ]


if __name__ == "__main__":
    sys.exit(main())
