"""Clients from the npm registry."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

_SECONDS = 120.0


@pytest.fixture(scope="session")
def npm(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Callable[..., str]]:
    """Install `NAME@VERSION`; returns a way to run a program that requires it.

    Where npm is not there or cannot reach its registry, the test is skipped; in CI it
    fails.
    """

    def lacking(why: str) -> None:
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)

    def install(package: str) -> Callable[..., str]:
        node, command = shutil.which("node"), shutil.which("npm")
        if node is None or command is None:
            lacking("neither node nor npm may be missing")
        home = tmp_path_factory.mktemp("npm")
        words = "install --no-save --no-audit --no-fund --ignore-scripts --prefix"
        try:
            done = subprocess.run(
                [str(command), *words.split(), str(home), package],
                capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=home,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            lacking(f"npm install {package} did not end in {_SECONDS:g} s")
        if done.returncode:
            lacking(f"npm install {package}: {done.stderr[-500:]}")
        return lambda program, *words: _run(str(node), home, program, words)

    return install


def _run(node: str, home: Path, program: str, words: tuple[object, ...]) -> str:
    """What the program prints; it must end well, and in time."""
    path = home / "program.js"
    path.write_text(program)
    done = subprocess.run(
        [node, str(path), *map(str, words)],
        capture_output=True, text=True, timeout=60, check=False, cwd=home,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
