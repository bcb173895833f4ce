"""`gateway demo`, whole, as a user runs it."""

import sys
from pathlib import Path

from deadlines import excerpt, run

DIRECTORY = "demo"


def what_a_demo_says(kind: str, below: Path, seconds: float) -> str:
    """Of this *kind*, an option of the command, with a few events; it must end well."""
    done = run(
        sys.executable, "-m", "gateway", "demo", kind,
        "--directory", below / DIRECTORY, "--events", "4000", "--rate", "400",
        seconds=seconds,
    )  # fmt: skip
    logs = "\n".join(
        f"== {log.name}\n{excerpt(log)}"
        for log in sorted((below / DIRECTORY).glob("*.log"))
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    return done.stdout
