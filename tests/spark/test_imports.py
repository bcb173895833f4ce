"""The Spark side stands on its own."""

import subprocess
import sys


def test_the_job_needs_no_twisted():
    """On a Spark cluster there is no daemon, and no reason to install one's parts."""
    code = (
        "import sys, gateway.config, gateway.cli.spark, gateway.spark.run.query;"
        "print([name for name in sys.modules if name.split('.')[0] == 'twisted'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
