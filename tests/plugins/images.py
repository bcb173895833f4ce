"""The steps of a Dockerfile without an engine: each stage in a root of its own.

A root begins with this machine's system directories, read only, a copy of /etc, and a
Python of /usr/local in place of the base image's; everything else is empty.  A container
has namespaces of its own for mounts, processes, network and host name.
"""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from deadlines import run

__all__ = ["Container", "Image", "build", "tools"]

_SYSTEM = ("usr/bin", "usr/sbin", "usr/lib", "usr/lib32", "usr/lib64", "usr/share")
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64")
_EMPTY = ("dev", "opt", "proc", "root", "tmp", "usr/local", "var/lib", "run")
_STEP_SECONDS = 900.0
"""What an index of packages may take; it is not ours to wait for."""

# Mounts what a root needs and goes there: ROOT USER DIRECTORY NETWORK COMMAND…
_ENTER = """
import fcntl, os, socket, struct, subprocess, sys
root, user, directory, network, base, system, *command = sys.argv[1:]
def mount(*words):
    subprocess.run(["mount", *words], check=True)
for name in [*system.split(), *([base.lstrip("/")] if base[:5] != "/usr/" else [])]:
    if os.path.isdir("/" + name) and not os.path.islink("/" + name):
        os.makedirs(f"{root}/{name}", exist_ok=True)
        mount("--bind", "/" + name, f"{root}/{name}")
        mount("-o", "remount,bind,ro", f"{root}/{name}")
mount("--rbind", "/dev", f"{root}/dev")
mount("-t", "proc", "proc", f"{root}/proc")
if network == "own":
    socket.sethostname("gw-1")
    with socket.socket() as any_one:  # SIOCSIFFLAGS: lo is up
        fcntl.ioctl(any_one, 0x8914, struct.pack("16sh22x", b"lo", 1))
os.chroot(root)
os.chdir(directory)
if user != "0":
    number = int(user.partition(":")[0])
    os.setgroups([])
    os.setgid(number)
    os.setuid(number)
os.execvp(command[0], command)
"""


def tools() -> list[str]:
    """What is missing here to do any of this; for namespaces, the kernel's own word."""
    missing = [
        name for name in ("unshare", "nsenter", "mount") if not shutil.which(name)
    ]
    missing += ["root"] if os.geteuid() else []
    return missing or _namespaces() or _index()


def _namespaces() -> list[str]:
    """To root in a container they may be forbidden."""
    apart = ("unshare", "--mount", "--pid", "--net", "--uts", "--fork")
    done = run(*apart, "mount", "-t", "proc", "proc", "/proc")
    return [f"namespaces ({done.stderr.strip()})"] if done.returncode else []


def _index() -> list[str]:
    """Packages come from there, as pip finds it."""
    if importlib.util.find_spec("pip") is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        once = ("--retries", "1", "--no-deps", "--dest", folder)
        done = run(sys.executable, "-m", "pip", "download", *once, "idna")
    said = done.stderr.strip().splitlines()
    return [f"an index of packages ({'; '.join(said[:2])})"] if done.returncode else []


@dataclass
class Image:
    """A stage, made so far."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    directory: str = "/"
    user: str = "0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)
    """What stands before the first stage; a stage that says so knows it, too."""
    known: dict[str, str] = field(default_factory=dict)

    def enter(self, *command: str, own_network: bool) -> list[str]:
        """A command line that runs *command* in it."""
        apart = ["--mount", "--pid", "--fork", "--kill-child"]
        if own_network:
            apart += ["--net", "--uts"]
        network = "own" if own_network else "shared"
        where = [str(self.root), self.user, self.directory, network, sys.base_prefix]
        where.append(" ".join(_SYSTEM))
        return [
            "unshare", *apart, sys.executable, "-c", _ENTER, *where, *command
        ]  # fmt: skip

    def variables(self) -> dict[str, str]:
        """Those of the image, and how packages and certificates are reached here."""
        here = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("PIP_") or name.endswith(("_proxy", "_PROXY"))
            or name == "SSL_CERT_FILE"
        }  # fmt: skip
        path = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        return {"HOME": "/root", "PATH": path, **here, **self.environment}


#: The stage of that name.
Make = Callable[[str], Image]


def build(context: Path, home: Path, target: str) -> Image:
    """The stage *target* of the Dockerfile in *context*, and those it needs."""
    text = re.sub(
        r"^#.*\n", "", (context / "Dockerfile").read_text(), flags=re.MULTILINE
    )
    stages: dict[str, list[tuple[str, str]]] = {}
    based: dict[str, str] = {}
    given: dict[str, str] = {}
    for word, rest in _instructions(text):
        if word == "ARG" and not stages:
            name, _, value = rest.partition("=")
            given[name] = value
        elif word == "FROM":
            base, _, name = rest.split()
            based[name], stages[name] = base, []
        elif stages:
            stages[name].append((word, rest))
    made: dict[str, Image] = {}

    def make(name: str) -> Image:
        if name not in made:
            base = based[name]
            image = (
                _copy(make(base), home / name) if base in stages else _base(home / name)
            )
            image.given = given
            made[name] = image
            for word, rest in stages[name]:
                _do(image, word, rest, context, make)
        return made[name]

    return make(target)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


def _base(root: Path) -> Image:
    for name in _EMPTY:
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    for name in _LINKS:
        if Path("/", name).is_symlink():
            (root / name).symlink_to(Path("/", name).readlink())
    shutil.copytree("/etc", root / "etc", symlinks=True)
    resolver = root / "etc" / "resolv.conf"
    resolver.unlink(missing_ok=True)
    shutil.copyfile("/etc/resolv.conf", resolver)
    image = Image(root)
    if sys.base_prefix == "/usr/local":
        subprocess.run(["cp", "--archive", "/usr/local", root / "usr"], check=True)
    else:
        python = Path(sys.base_prefix, "bin", "python3")
        _run(image, f"{shlex.quote(str(python))} -m venv /usr/local")
    return image


def _copy(image: Image, root: Path) -> Image:
    subprocess.run(["cp", "--archive", image.root, root], check=True)
    return Image(
        root, dict(image.environment), image.directory, image.user,
        list(image.entrypoint), list(image.command), list(image.health),
        dict(image.labels),
    )  # fmt: skip


def _do(image: Image, word: str, rest: str, context: Path, make: Make) -> None:
    if word == "RUN":
        _run(image, rest)
    elif word == "ENV":
        for name, value in (pair.split("=", 1) for pair in shlex.split(rest)):
            known = image.variables()
            image.environment[name] = Template(value).substitute(known)
    elif word == "ARG":
        image.known[rest] = image.given[rest]
    elif word == "LABEL":
        for name, value in (pair.split("=", 1) for pair in shlex.split(rest)):
            image.labels[name] = Template(value).substitute(image.known)
    elif word == "COPY":
        _bring(image, rest.split(), context, make)
    elif word == "WORKDIR":
        image.directory = rest
        (image.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
    elif word == "USER":
        image.user = rest
    elif word == "HEALTHCHECK":
        image.health = json.loads(rest.partition("CMD")[2])
    elif word == "ENTRYPOINT":
        image.entrypoint = json.loads(rest)
    elif word == "CMD":
        image.command = json.loads(rest)
    else:
        assert word in ("EXPOSE", "STOPSIGNAL", "VOLUME"), word


def _bring(image: Image, words: list[str], context: Path, make: Make) -> None:
    source = context
    if words[0].startswith("--from="):
        source = make(words.pop(0).partition("=")[2]).root
    *froms, to = words
    into = image.root / str(Path(image.directory, to)).lstrip("/")
    for each in froms:
        path = source / each.lstrip("/")
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "dropin.cache")
            shutil.copytree(
                path, into, symlinks=True, dirs_exist_ok=True, ignore=ignored
            )
        else:
            whole = into / path.name if to.endswith("/") else into
            whole.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, whole)


def _run(image: Image, script: str) -> None:
    done = run(
        *image.enter("sh", "-ec", script, own_network=False),
        env=image.variables(),
        seconds=_STEP_SECONDS,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


class Container:
    """What the image starts."""

    def __init__(self, image: Image, log: Path) -> None:
        self._image = image
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                image.enter(*image.entrypoint, *image.command, own_network=True),
                env=image.variables(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def log(self) -> str:
        """All that it has written."""
        return self._log.read_text(errors="replace")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it, as its user."""
        user = self._image.user.partition(":")[0]
        who = [] if user == "0" else ["--setuid", user, "--setgid", user]
        inside = ["--mount", "--net", "--uts", "--pid", "--root", "--wd"]
        enter = ["nsenter", "--target", str(self.first), *inside, *who, "--"]
        return run(*enter, *command, env=self._image.variables())

    def looked_at(self) -> bool:
        """Its own check finds it healthy, or it has ended."""
        if self.process.poll() is not None:
            return True
        return bool(self._begun) and self.run(*self._image.health).returncode == 0

    @property
    def first(self) -> int:
        """Its process 1, as we see it."""
        return int(self._begun[0])

    @property
    def _begun(self) -> list[str]:
        tasks = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return tasks.read_text().split()

    def stop(self, number: int) -> int:
        """Send process 1 that signal; the exit status of the container."""
        os.kill(self.first, number)
        return self.process.wait()

    def close(self) -> None:
        """It is gone."""
        self.process.kill()
        self.process.wait()
