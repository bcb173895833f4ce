"""An environment that has the gateway from its wheel, with its source out of reach."""

import os
import subprocess
import sys
import venv
from pathlib import Path

from deadlines import ROOT, run

__all__ = ["Environment", "borrow", "clean", "pip", "wheel"]


class Environment:
    """A virtual environment that has what is installed, and borrows all others."""

    def __init__(self, home: Path) -> None:
        self.python = home / "bin" / "python"
        venv.create(home, symlinks=True)
        borrow(home)

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a program of this environment, away from the source."""
        return run(*words, cwd=self.python.parent, env=clean())

    def gateway(self, *words: object) -> subprocess.CompletedProcess[str]:
        return self.run(self.python.with_name("gateway"), *words)

    def install(self, *packages: object) -> None:
        pip(
            "--python", self.python, "install", "--no-deps", "--no-build-isolation",
            *packages,
        )  # fmt: skip


def borrow(home: Path) -> None:
    """Lets a virtual environment have the packages of this one behind its own."""
    [site] = home.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text("\n".join(filter(_is_site, sys.path)))


def _is_site(path: str) -> bool:
    return path.endswith(("site-packages", "dist-packages"))


def clean() -> dict[str, str]:
    """Our environment without the source tree."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def pip(*words: object) -> None:
    done = run(sys.executable, "-m", "pip", "--disable-pip-version-check", *words)
    assert done.returncode == 0, done.stdout + done.stderr


def wheel(home: Path) -> Path:
    """Build the gateway's."""
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", home, ROOT)
    [found] = home.glob("gateway-*.whl")
    return found
