"""A process of ours does not import pandas only because it is installed."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.lowest

_SCRIPT = """
import sys
from gateway.store.spool.columns import leave_pandas_out
leave_pandas_out()
import pyarrow as pa
made = pa.array(["a"]), pa.table({"a": [1]})
assert "pandas" not in sys.modules
assert made[1].to_pandas()["a"].sum() == 1
"""


def test_arrays_are_made_without_pandas_and_frames_with_it():
    subprocess.run([sys.executable, "-c", _SCRIPT], check=True)
