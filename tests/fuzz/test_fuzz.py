"""Each protocol's reader under atheris, for a bounded time."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from deadlines import run
from samples import some_of

_HERE = Path(__file__).parent
_SECONDS = os.environ.get("FUZZ_SECONDS", str(some_of(5, 1)))


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris has no wheel for this platform",
)
@pytest.mark.parametrize("target", sorted(p.stem for p in _HERE.glob("fuzz_*.py")))
def test_fuzz(target, tmp_path):
    """Nothing but batches, replies and refusals comes of bytes that look for trouble."""
    done = run(
        # A process begins with the peak memory of the one that made it, which may be
        # beyond the limit; a shell's is small.
        *("sh", "-c", '"$@"; exit $?', "sh"),
        sys.executable,
        _HERE / f"{target}.py",
        f"-max_total_time={_SECONDS}",
        "-max_len=4096",
        "-rss_limit_mb=1024",
        f"-artifact_prefix={tmp_path}/",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-4000:]
