"""Many gateways, one table: `gateway demo --cluster`, whole, as a user runs it.

It needs a Spark that fits Iceberg's jars, which are on Maven Central: `make long ONLY=lowest` has
one.
"""

import re

import pyspark
import pytest

from gateway.sinks.iceberg import kind as iceberg
from gateway_demo.cluster import needs
from quick_java import OF_A_CLUSTER
from whole_demo import DIRECTORY, what_a_demo_says

_SECONDS = 1200.0
_FITS = iceberg.fits(pyspark.__version__)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.needs_maven,
    pytest.mark.timeout(_SECONDS),
    pytest.mark.skipif(
        not _FITS,
        reason=f"no jars fit Spark {pyspark.__version__}; `make long ONLY=lowest` has one they fit",
    ),
]


def test_a_gateway_and_a_worker_are_lost_and_no_event(tmp_path, monkeypatch):
    """Killed with its disk, killed with a batch: the table has every event once."""
    needs.check()
    for name, value in OF_A_CLUSTER.items():
        monkeypatch.setenv(name, value)
    said = what_a_demo_says("--cluster", tmp_path, _SECONDS)
    assert re.search(r"kill -9 gw-2, .* its disk is", said)
    assert "kill -9 worker-2" in said
    [events] = re.findall(r"complete: ([\d,]+) events of 3 nodes", said)
    # What a sender was not answered it has sent again.
    assert int(events.replace(",", "")) >= 5 * 4000
    assert "this directory" in (tmp_path / DIRECTORY / "gw-2.log").read_text()
