"""One Java for several jobs, one after the other, as `spark-submit` gives one to a program.

What Java and Spark cost until a job has its first table is ten seconds of CPU and more, and
what follows a tenth of that.  Not for jobs that are killed, nor for how they start.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from gateway.sink import kind_of
from gateway.spark.jvm import java, session
from programs import end

_OF_ITS_START = ("spark.master", "spark.driver.", "spark.jars")
"""The rest of its settings each job gives to its own session."""


@contextlib.contextmanager
def one_java(spark: Any, data: Path) -> Iterator[Mapping[str, str]]:
    """The environment in which jobs find it that have *spark* in their configuration."""
    more = kind_of(spark.sink).settings(spark, data, pyspark.__version__)
    chosen = session.settings(spark, more=more)
    conf = SparkConf(loadDefaults=False).setAll(
        [one for one in chosen.items() if one[0].startswith(_OF_ITS_START)]
    )
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(java.find(os.environ).home))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        started = launch_gateway(conf, quiet)
    try:
        given = started.gateway_parameters
        yield {
            "PYSPARK_GATEWAY_PORT": str(given.port),
            "PYSPARK_GATEWAY_SECRET": given.auth_token,
        }
    finally:
        started.shutdown()
        end(started.proc)
