"""An archive of the classes that Spark's start needs, which Java maps in place of loading them.

A start up to the first batch of a hundred rows took 27 s of CPU without it, and takes 16 s
with it (Java 17).  `recording` makes it.  It lies in the user's cache, under a name that Java
and Spark's jars give it: another Java or Spark has another one.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from gateway.spark.jvm import cache, java
from gateway.spark.jvm.java import Java

#: The names that archives have.
NAME = "spark-classes-{}.jsa"
_OWN = ("SharedArchiveFile", "ArchiveClassesAtExit", "AOTCache", "-Xshare")
"""Java's options of which one means that the user has seen to it."""


class Archive:
    """Where the archive for this Java and this Spark is, or would be."""

    def __init__(self, found: Java, ours: Path) -> None:
        files = [found.program, *spark_jars()]
        key = hashlib.sha256(cache.told_by(files).encode()).hexdigest()[:12]
        self.path = ours / NAME.format(key)
        self.java = found
        self.base = ours / NAME.format(f"{key}-base")
        """The archive below it: of Java's own classes, where Java has none of them."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Archive | None:
        """The archive for the job's Java; None without a cache.  Raises `java.NoJava`."""
        ours = cache.folder(environ)
        return None if ours is None else cls(java.find(environ), ours)

    def options(self, others: str) -> str:
        """Java's options for using it; *others* are its other options."""
        if _sees_to_it(others) or not self.made:
            return ""
        files = [one for one in (self.base, self.path) if one.exists()]
        for one in files:
            cache.used(one)
        return f'"-XX:SharedArchiveFile={":".join(map(str, files))}"'

    def wanted(self, environ: Mapping[str, str]) -> bool:
        """Whether it was never tried to make it, and Java is told of no other one."""
        return not self.path.exists() and not _sees_to_it(
            environ.get("SPARK_SUBMIT_OPTS", "")
        )

    @property
    def made(self) -> bool:
        """Whether it is there; one that could not be made is an empty file."""
        return self.path.exists() and self.path.stat().st_size > 0


def _sees_to_it(options: str) -> bool:
    return any(own in options for own in _OWN)


def spark_jars() -> list[Path]:
    """Spark's own jars, without importing it."""
    return sorted((_spark_home() / "jars").glob("*.jar"))


def _spark_home() -> Path:
    """Where Spark is, without importing it."""
    spec = importlib.util.find_spec("pyspark")
    beside = Path(spec.origin).parent if spec and spec.origin else Path()
    return Path(os.environ.get("SPARK_HOME") or beside)
