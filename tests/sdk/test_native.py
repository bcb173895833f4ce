"""Whether the kernel in C is taken."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from deadlines import run

_SAYS = "from gateway.sdk.native import kernel; print(kernel and kernel.__file__)"


@pytest.mark.parametrize(
    ("package", "wanted"),
    [
        ("INTERFACE = 1", True),
        ("INTERFACE = 2", False),
        ("raise ImportError", False),
    ],
)
@pytest.mark.parametrize("word", ["yes", "no"])
def test_it_is_taken_where_it_fits(
    package: str, word: str, tmp_path: Path, *, wanted: bool
) -> None:
    """Not one for another gateway, none that does not load, and none where nobody wants it."""
    (tmp_path / "gateway_native.py").write_text(package + "\n")
    done = run(
        *(sys.executable, "-c", _SAYS),
        env={**os.environ, "PYTHONPATH": str(tmp_path), "GATEWAY_NATIVE": word},
    )
    taken = str(tmp_path / "gateway_native.py") if wanted and word != "no" else "None"
    assert done.stdout.strip() == taken, done.stderr
