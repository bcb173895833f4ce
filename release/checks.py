"""Looks at what was built, as a stranger who has nothing else would."""

from __future__ import annotations

import email
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from email.message import Message
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename
from parts import BESIDE, ROOT, Failed, Release, clean, made_here, program

__all__ = ["described", "installed", "whole"]

_PATIENCE_SECONDS = 300.0
_EVENTS = 1000
_MODULES = {
    "gateway": ("gateway", "twisted"),
    "gateway_demo": ("gateway_demo",),
    "gateway_native": ("gateway_native",),
    "gateway_testkit": ("gateway_testkit",),
    "rsio_check": ("rsio_check",),
}
"""What each wheel has, by the name of its file."""
_MACHINES = {62: "x86_64", 183: "aarch64"}
"""What a wheel's name calls a machine, by its number in a library (ELF, `e_machine`)."""


def whole(made: Sequence[Path], release: Release, root: Path = ROOT) -> None:
    """Each wheel has all modules of its packages and nothing else's, in one version."""
    wheels = [(path.name.split("-")[0], path) for path in made if path.suffix == ".whl"]
    names = {name for name, _ in wheels}
    if names != {"gateway", *(one.replace("-", "_") for one in made_here())}:
        raise Failed(f"wheels of {', '.join(sorted(names))}")
    for name, path in wheels:
        beside = name.replace("_", "-")
        folder = root / "packages" / beside if beside in BESIDE else root
        names = {
            one for one in zipfile.ZipFile(path).namelist() if ".dist-info/" not in one
        }
        wanted = {
            one.relative_to(folder).as_posix()
            for package in _MODULES[name]
            for one in (folder / package).rglob("*.py")
        }
        for library in compiled(folder, name):
            wanted.add(library)
            machine = zipfile.ZipFile(path).read(library)[18] if library in names else 0
            if library in names and not path.stem.endswith(_MACHINES[machine]):
                raise Failed(f"{path.name} has a kernel for {_MACHINES[machine]}")
        if lacking := wanted - names:
            raise Failed(f"{path.name} has no {', '.join(sorted(lacking))}")
        if strange := {one.split("/")[0] for one in names} - {*_MODULES[name]}:
            raise Failed(f"{path.name} has {', '.join(sorted(strange))}, too")
        said = _metadata(path)
        if said["Version"] != release.version:
            raise Failed(f"{path.name} says version {said['Version']}")
        source = f"Source, {release.source}"
        if source not in said.get_all("Project-URL", []):
            raise Failed(f"{path.name}: project.urls.Source is not {release.source}")
        if not said["License-Expression"]:
            raise Failed(f"{path.name} names no license")


def compiled(folder: Path, name: str) -> Iterator[str]:
    """The library of each source in C, as the wheel of that name calls it."""
    for package in _MODULES[name]:
        for source in (folder / package).rglob("*.c"):
            yield source.with_suffix(".abi3.so").relative_to(folder).as_posix()


def described(made: Sequence[Path]) -> None:
    """An index can show each page, and its links lead to files of this release."""
    program(sys.executable, "-m", "twine", "check", "--strict", *made)
    for path in made:
        if path.suffix == ".whl":
            for link in astray(_metadata(path), made):
                raise Failed(f"{path.name}: its page links to {link}")


def astray(said: Message, made: Sequence[Path]) -> Iterator[str]:
    """Links of a package's page that lead into nothing."""
    source = made[0]
    with tarfile.open(source) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    folders = {parent.as_posix() for file in files for parent in Path(file).parents}
    [place] = [
        url.partition(", ")[2]
        for url in said.get_all("Project-URL", [])
        if url.startswith("Source, ")
    ]
    for link in re.findall(r"\]\(([^)\s]+)\)", str(said.get_payload())):
        target = re.sub(rf"^{re.escape(place)}/(?:blob|raw)/v[^/]+/", "", link)
        here = target != link
        if not re.match(r"https?://", link) or (
            here and target.partition("#")[0] not in files | folders
        ):
            yield link


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [
            one for one in archive.namelist() if one.endswith(".dist-info/METADATA")
        ]
        return email.message_from_string(archive.read(name).decode())


def installed(made: Sequence[Path], scratch: Path, *, spark: bool) -> None:
    """In an environment that has nothing: the commands answer, and events go all the way
    from a sender to the spool and through the audit; with *spark* into a table.
    """
    python = clean(scratch / "empty")
    here = {str(tag) for tag in sys_tags()}
    wheels = [
        path
        for path in made
        if path.suffix == ".whl"
        and not here.isdisjoint(map(str, parse_wheel_filename(path.name)[3]))
    ]
    if not spark:  # what gateway-demo needs brings Spark
        wheels = [path for path in wheels if not path.name.startswith("gateway_demo")]
    names = [
        f"{path}[spark]" if spark and path.name.startswith("gateway-") else str(path)
        for path in wheels
    ]
    program(python, "-m", "pip", "install", "--quiet", *names)
    program(python, "-m", "pip", "check")
    walk = _Walk(python, scratch)
    walk.gateway("--version")
    if "gateway-native" in made_here():
        taken = "from gateway.sdk.native import kernel; assert kernel"
        program(python, "-c", taken, cwd=scratch)
    walk.gateway("rsio-check", "--help")
    walk.events_go_their_way(spark=spark)


class _Walk:
    """Somebody who has these wheels, in an empty folder."""

    def __init__(self, python: Path, scratch: Path) -> None:
        self._python = python
        self._home = scratch / "home"
        self._home.mkdir()

    def gateway(self, *words: object) -> str:
        return program(self._python.with_name("gateway"), *words, cwd=self._home)

    def events_go_their_way(self, *, spark: bool) -> None:
        """What the README's first steps do."""
        self.gateway("init", "lumberjack", "--directory", "first")
        file = self._home / "first" / "gateway.yaml"
        beats, page = _free_ports()
        text = file.read_text("utf-8").replace(":5044", f":{beats}")
        file.write_text(text.replace(":8080", f":{page}"), "utf-8")
        config = ("--config", "first/gateway.yaml")
        self.gateway("check", "first/gateway.yaml")
        start = ("gateway", "run") if spark else ("twistd", "-n", "gateway")
        with self._running(*start, *config) as gone:
            _until(lambda: gone() or _listens(beats), "the daemon takes connections")
            made = ("--generate", _EVENTS, "--json")
            sent = self.gateway("send", "lumberjack", f"127.0.0.1:{beats}", *made)
            if not json.loads(sent)["complete"]:
                raise Failed(f"not all was acknowledged: {sent}")
            if spark:
                self.gateway("table", *config)  # waits for the first rows
            proof = self.gateway("audit", *config)
            if f"complete: {_EVENTS:,}".replace(",", "") not in proof.replace(",", ""):
                raise Failed(f"the audit says: {proof}")

    @contextmanager
    def _running(self, command: str, *words: str) -> Iterator[Callable[[], bool]]:
        """A program of the environment, which must end well when it is asked to."""
        log = self._home / f"{command}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self._python.with_name(command), *words],
                cwd=self._home, stdout=output, stderr=output,
                env={name: value for name, value in os.environ.items()
                     if name != "PYTHONPATH"},
            )  # fmt: skip
        try:
            yield lambda: process.poll() is not None
            _ended(process)
        except Failed as why:
            said = log.read_text("utf-8", "replace")[-3000:]
            raise Failed(f"{why}\n{said}") from None
        finally:
            process.kill()
            process.wait()


def _ended(process: subprocess.Popen[bytes]) -> None:
    """Ask it to; twistd ends by the signal itself."""
    process.send_signal(signal.SIGTERM)
    try:
        status = process.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"it has not stopped in {_PATIENCE_SECONDS:.0f} s") from None
    if status not in (0, -signal.SIGTERM):
        raise Failed(f"it ended with status {status}")


def _free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in (one, two)]


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"waited for {_PATIENCE_SECONDS:.0f} s until {what}")
        time.sleep(0.1)
