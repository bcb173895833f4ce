"""A virtual environment with the lowest versions of some packages that we allow.

    python tests/plugins/lowest.py DIRECTORY PACKAGE …

All other packages are those of the environment that runs this.  Not so `gateway` and the
packages beside it: the new environment's .pth file names their folders.  It names the other
environment's packages too, but no .pth file among those is run, and an editable install is
one.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

_PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def lowest(packages: Sequence[str]) -> list[str]:
    """`name==version` of each, as pyproject.toml has it behind `>=`."""
    project = tomllib.loads(_PROJECT.read_text())["project"]
    extras = project["optional-dependencies"].values()
    given = [*project["dependencies"], *chain.from_iterable(extras)]
    found = {}
    for requirement in reversed(given):
        if match := re.match(r"([\w-]+)(?:\[.*?\])?>=([\w.]+)", requirement):
            found[match[1]] = f"{match[1]}=={match[2]}"
    return [found[name] for name in packages]


def _ours() -> list[str]:
    """Folders of this repository from which a test, or a process that it starts, imports."""
    settings = tomllib.loads(_PROJECT.read_text())["tool"]["pytest"]["ini_options"]
    return [str(_PROJECT.parent / each) for each in (".", *settings["pythonpath"])]


def make(directory: Path, packages: Sequence[str]) -> None:
    """Make the environment anew; exits with a sentence where pip fails."""
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    python = directory / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.run(
        [python, "-c", where], check=True, capture_output=True, text=True
    ).stdout.strip()
    # The lines of a .pth file go behind the environment's own packages.
    folders = [*_ours(), sysconfig.get_path("purelib")]
    Path(own, "others.pth").write_text("\n".join(folders) + "\n")
    quiet = ["--quiet", "--disable-pip-version-check", "--progress-bar", "on"]
    wanted = lowest(packages)
    install = [python, "-m", "pip", "install", *quiet, *wanted]
    if subprocess.run(install, check=False).returncode:
        sys.exit(
            f"pip could not install {' '.join(wanted)} from PyPI or the mirror that it is "
            "set to (`pip config list`); mend what it says above and run this again."
        )


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2:])
