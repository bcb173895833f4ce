"""Programs in Java, where a JDK, Maven and what it fetches are at hand.

`_java/` has them; the client for the JVM is compiled beside them, as it is in the tree.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from _report import Lacking

__all__ = ["built", "versions"]

_PROGRAMS = Path(__file__).with_name("_java")
_CLIENT = Path(__file__).parents[1] / "clients/java/src/main/java/gateway/rsio"
_LIST = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
_SECONDS = 300.0


def built() -> list[str]:
    """A command that takes the name of a program, and its words.  Raises Lacking."""
    for need in ("mvn", "javac"):
        if shutil.which(need) is None:
            raise Lacking(f"{need} is not on the PATH")
    sources = sorted([*_PROGRAMS.glob("*.java"), *_CLIENT.glob("*.java")])
    pom = _PROGRAMS / "pom.xml"
    found = hashlib.sha256(b"".join(each.read_bytes() for each in [pom, *sources]))
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    home = cache / "gateway-bench" / f"java-{found.hexdigest()[:16]}"
    jars, classes = home / "jars", home / "classes"
    if not (classes / "Ours.class").exists():
        home.mkdir(parents=True, exist_ok=True)
        _run("mvn", "-B", "-q", "-f", str(pom), _LIST, f"-Dmdep.outputFile={jars}")
        where = ["-d", str(classes), "-cp", jars.read_text().strip()]
        _run("javac", "-proc:none", *where, *map(str, sources))
    return ["java", "-cp", f"{classes}:{jars.read_text().strip()}"]


def versions() -> dict[str, str]:
    """Of Java and of what ours is compared with."""
    said = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=True
    )
    pinned = re.findall(
        r"<artifactId>([\w-]+)</artifactId>\s*<version>([\d.]+)<",
        (_PROGRAMS / "pom.xml").read_text(),
    )
    return {"java": said.stderr.splitlines()[1], **dict(pinned[1:])}


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Lacking(f"{command[0]} did not end in {_SECONDS:g} s") from None
    if done.returncode:
        raise Lacking(f"{command[0]}: {(done.stdout + done.stderr)[-500:].strip()}")
