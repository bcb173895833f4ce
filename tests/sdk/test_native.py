"""Whether the kernel in C is taken."""

import os
import sys

import pytest

from deadlines import run

_SAYS = "from gateway.sdk.native import *; print(kernel and kernel.__file__, said)"


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ("INTERFACE = 6", "taken"),
        ("INTERFACE = 0", "not taken: gateway-native is of another version"),
        ("from gateway_native.kernel import run", "not compiled, and nothing needs it"),
        (
            "raise ImportError(name='gateway_native')",
            "not installed, and nothing needs it",
        ),
    ],
)
@pytest.mark.parametrize("word", ["yes", "no"])
def test_it_is_taken_where_it_fits(package, said, word, tmp_path):
    """Not one for another gateway, none that does not load, and none where nobody wants it;
    which of these it is is said."""
    (tmp_path / "gateway_native.py").write_text(package + "\n")
    done = run(
        *(sys.executable, "-c", _SAYS),
        env={**os.environ, "PYTHONPATH": str(tmp_path), "GATEWAY_NATIVE": word},
    )
    if word == "no":
        said = "left out by GATEWAY_NATIVE=no"
    taken = str(tmp_path / "gateway_native.py") if said == "taken" else "None"
    assert done.stdout.startswith(f"{taken} {said}"), done.stdout + done.stderr
