"""Spark in tests starts in a third of the CPU time: its classes come from an archive.

A test's Spark lives for seconds, of which most go into loading and compiling classes that
are the same each time.  `make test` has one job write them down (class data sharing);
all others map that file, and compile once and quickly.  Without it they start as anyone's.

    python tests/plugins/quick_java.py      make the archive
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# Another Java than the archive's runs without it, and need not say so.
_SHARED = f"-Xlog:disable -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else ""
os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK)
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{QUICK} {_SHARED}")


def make() -> None:
    """Run a job over a small spool, and keep the classes that it needed."""
    from spools import SpoolFolder

    with tempfile.TemporaryDirectory() as home:
        spool = Path(home, "data", "spool")
        spool.mkdir(parents=True)
        for file in range(3):
            SpoolFolder(spool).events("gw", 1 + 100 * file, 100)
        config = Path(home, "gateway.yaml")
        config.write_text(
            f"node: gw\ndata_dir: {home}/data\n"
            "listeners: [{name: a, protocol: lumberjack, listen: 'tcp:127.0.0.1:0'}]\n"
        )
        command = ["gateway.cli", "spark", "--config", str(config), "--once"]
        options = f"{QUICK} -XX:ArchiveClassesAtExit={ARCHIVE}"
        done = subprocess.run(
            [sys.executable, "-m", *command],
            env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_SUBMIT_OPTS": options},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode or not ARCHIVE.exists():
        print(f"Spark's tests start without an archive of classes:\n{done.stderr}")


if __name__ == "__main__":
    make()
