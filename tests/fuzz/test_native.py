"""The kernel in C says what the reference says: of any bytes, and with no byte to spare."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from deadlines import PATIENCE, run
from gateway.sdk import native
from programs import lacking, program
from samples import some_of

_HERE = Path(__file__).parent
_SOURCE = (
    _HERE.parents[1] / "packages" / "gateway-native" / "gateway_native" / "kernel.c"
)
_SECONDS = os.environ.get("NATIVE_SECONDS", str(some_of(5, 1)))
_END_AFTER = 4 * PATIENCE + float(_SECONDS)
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def test_it_says_what_the_reference_says():
    """Of frames and JSON that are sound, and of what is left of them after some changes."""
    if native.kernel is None:
        lacking("gateway-native is not installed: make native")
    done = run(sys.executable, _HERE / "native.py", _SECONDS, seconds=_END_AFTER)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["quick", "portable"])
def test_it_reads_nothing_that_is_not_there(kind, tmp_path):
    """Built with ASan and UBSan, for this machine and for one without its instructions."""
    compiler = program("gcc")
    headers = sysconfig.get_path("include")
    if not Path(headers, "Python.h").exists():
        lacking(f"needs Python's headers in {headers}")
    library = tmp_path / "kernel.so"
    built = subprocess.run(
        [
            *(compiler, "-std=c11", "-O1", "-g", "-shared", "-fPIC", *_SANITIZERS),
            *(["-DPORTABLE"] if kind == "portable" else []),
            *("-Wall", "-Wextra", "-Werror", f"-I{headers}", _SOURCE, "-o", library),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    sanitizers = [
        subprocess.check_output(
            [compiler, f"-print-file-name=lib{name}.so"], text=True
        ).strip()
        for name in ("asan", "ubsan")
    ]
    surroundings = {
        "LD_PRELOAD": " ".join(sanitizers),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps much until its end
        "PYTHONMALLOC": "malloc",  # each block is one of the allocator that looks
    }
    done = run(
        *(sys.executable, _HERE / "native.py", _SECONDS, library),
        env={**os.environ, **surroundings},
        seconds=_END_AFTER,
    )
    assert done.returncode == 0, done.stderr[-4000:]
