"""Programs that a test needs: found or skipped, built once, started and ended."""

import contextlib
import fcntl
import hashlib
import inspect
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

import script
import warm
from deadlines import run

__all__ = [
    "Script",
    "ask_registry",
    "built_once",
    "end",
    "go_program",
    "kept",
    "lacking",
    "program",
    "running",
]

_REGISTRY_SECONDS = 120.0
"""What a registry may take; it is not ours to wait for."""
_KEPT = Path(
    os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gateway-tests"
)
_LANGUAGES = ("java", "go", "node")


def lacking(why: str) -> NoReturn:
    """The test is skipped; in CI, where all that is needed is installed, it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def program(*names: str) -> str:
    """The path of the first of these that is there; else the test is `lacking`."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        lacking(f"needs {names[0]} on the PATH")
    return found


def ask_registry(
    *words: object, cwd: Path, env: Mapping[str, str] | None = None
) -> None:
    """Run what fetches packages; where none come, the test is `lacking`."""
    try:
        done = subprocess.run(
            [*map(str, words)], cwd=cwd, env=env, timeout=_REGISTRY_SECONDS, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        lacking(f"{words[0]} did not end in {_REGISTRY_SECONDS:g} s")
    if done.returncode:
        lacking(f"{' '.join(map(str, words))}: {done.stdout[-1000:]}")


def kept(name: str, parts: Iterable[bytes], make: Callable[[Path], None]) -> Path:
    """A folder that is made once on this machine of these *parts*, for all runs of tests.

    Where another Java, Go or Node is the first on the PATH, it is another folder.
    """
    digest = hashlib.sha256()
    for part in (
        *parts,
        *(
            os.path.realpath(found).encode()
            for found in map(shutil.which, _LANGUAGES)
            if found
        ),
    ):
        digest.update(len(part).to_bytes(8, "big") + part)
    home = _KEPT / f"{name}-{digest.hexdigest()[:16]}"
    _KEPT.mkdir(parents=True, exist_ok=True)
    with home.with_name(f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            home.mkdir(exist_ok=True)
            make(home)
            (home / "ready").touch()
    return home


def built_once(project: Path, build: Callable[[Path], None]) -> Path:
    """A copy of *project* that is built, once for all runs that have the same of it."""
    # Maven may be at work there, too: `make test-clients` of CI.
    made = shutil.ignore_patterns("target")

    def make(home: Path) -> None:
        shutil.copytree(project, home, dirs_exist_ok=True, ignore=made)
        build(home)

    files = sorted(
        path
        for path in project.rglob("*")
        if path.is_file() and "target" not in path.relative_to(project).parts
    )
    parts = [f"{path.relative_to(project)}".encode() for path in files]
    parts += [path.read_bytes() for path in files]
    return kept(project.name, [*parts, inspect.getsource(build).encode()], make)


def go_program(project: Path) -> Path:
    """The program that this folder of Go is.

    Where Go is not there, or gets no modules, the test is `lacking`.
    """
    command = program("go")
    own = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}

    def build(home: Path) -> None:
        ask_registry(command, "mod", "download", cwd=home, env=own)
        done = run(command, "build", "-o", "program", ".", cwd=home, env=own)
        assert done.returncode == 0, done.stderr

    return built_once(project, build) / "program"


@contextlib.contextmanager
def running() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start programs whose output a test reads; at the end they are killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: object, **options: Any) -> subprocess.Popen[str]:
        plain = {"stdout": subprocess.PIPE, "text": True}
        started.append(warm.start(words, **plain | options))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            with process:
                process.kill()


class Script:
    """A Python program of a test, which writes down what it did in a folder of its own.

    It is given *words*, and then that folder.
    """

    def __init__(self, text: str, home: Path, *words: object) -> None:
        home.mkdir()
        self._home = home
        self.process = warm.start(
            script.words(text, *words, home), stdin=subprocess.DEVNULL
        )

    def lines(self, name: str) -> list[list[str]]:
        """The words of each line in one of its files; a line that is unfinished is none."""
        path = self._home / name
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [line.split() for line in lines]

    def kill(self) -> None:
        """With SIGKILL."""
        self.process.kill()
        self.process.wait()


def end(process: subprocess.Popen[Any], seconds: float = 10) -> None:
    """Ask it to end; kill it if it does not."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
