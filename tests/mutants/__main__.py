"""Applies each of `mutants.toml` to a copy of the tree, and says which test notices.

    python tests/mutants            all of them
    python tests/mutants log.py     those whose file, name or tests have this in them

Exit status 1 if one is not noticed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
_COPIED = (
    "gateway", "gateway-demo", "gateway-testkit", "rsio-check", "tests", "examples",
    "twisted", "conf", "docs", "pyproject.toml",
)  # fmt: skip
_SECONDS = 300

#: What is broken is the reference: the kernel in C would do its work, and hide it.
_SURROUNDINGS = {"PYTHONDONTWRITEBYTECODE": "1", "GATEWAY_NATIVE": "no"}


def copy_of_the_tree(folder: Path) -> None:
    """Without what is made by running it."""
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=ignore)
        else:
            shutil.copy(source, folder / name)


def who_notices(mutant: dict[str, str], tree: Path) -> str | None:
    """The first of its tests that fails; None if they pass."""
    path = tree / mutant["file"]
    original = path.read_text()
    path.write_text(original.replace(mutant["old"], mutant["new"]))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider",
             *mutant["noticed_by"].split()],
            check=False,
            cwd=tree,
            env={**os.environ, **_SURROUNDINGS, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"nothing ended within {_SECONDS} s"
    finally:
        path.write_text(original)
    if done.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return found[1] if found else f"exit status {done.returncode}: {done.stdout[-500:]}"


def main(words: list[str]) -> int:
    """Those with one of *words*, or all."""
    mutants = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text())[
        "mutant"
    ]
    alive = 0
    with tempfile.TemporaryDirectory() as folder:
        copy_of_the_tree(Path(folder))
        for mutant in mutants:
            where = f"{mutant['file']}: {mutant['name']}"
            told = f"{where} {mutant['noticed_by']}"
            if words and not any(word in told for word in words):
                continue
            noticed = who_notices(mutant, Path(folder))
            alive += noticed is None
            print(f"{where}\n    {noticed or 'NOBODY NOTICES'}", flush=True)
    print(f"{alive} mutants live")
    return min(alive, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
