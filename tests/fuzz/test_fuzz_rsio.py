"""The RS.io session under atheris, for a bounded time."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_SECONDS = os.environ.get("FUZZ_SECONDS", "20")


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not installed (CI installs it: pip install atheris)",
)
def test_fuzz(tmp_path: Path) -> None:
    """Nothing but events and refusals comes out of bytes that look for trouble."""
    run = subprocess.run(
        [
            sys.executable,
            str(_ROOT / "tests/fuzz/fuzz_rsio.py"),
            f"-max_total_time={_SECONDS}",
            "-max_len=4096",
            "-rss_limit_mb=1024",
            f"-artifact_prefix={tmp_path}/",
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
