"""Which Python Spark starts for functions in Python."""

import sys

import pytest
from pyspark.sql import functions as f

from gateway.spark.jvm.session import pythons

_WORKERS, _DRIVER = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"
_OURS = sys.executable


@pytest.mark.parametrize(
    ("master", "conf", "environ", "workers", "driver"),
    [
        ("local[2]", {}, {}, _OURS, _OURS),
        ("local", {}, {_WORKERS: ""}, _OURS, _OURS),
        ("local[2]", {}, {_WORKERS: "/w"}, "/w", "/w"),
        ("local[2]", {}, {_DRIVER: "/d"}, _OURS, "/d"),
        ("local[2]", {"spark.pyspark.python": "/c"}, {_WORKERS: "/w"}, "/c", "/c"),
        ("local[2]", {"spark.pyspark.driver.python": "/c"}, {}, _OURS, "/c"),
        ("spark://master:7077", {}, {}, None, _OURS),
        ("k8s://https://api", {}, {_WORKERS: "/w"}, "/w", "/w"),
        ("yarn", {"spark.pyspark.python": "/c"}, {}, "/c", "/c"),
    ],
)
def test_who_says_which(master, conf, environ, workers, driver):
    """The configuration, then the environment, then the job: but not for other machines."""
    found = pythons(master, conf, environ)
    assert (found.get(_WORKERS), found[_DRIVER]) == (workers, driver)


@pytest.mark.spark
def test_a_function_in_python(spark):
    """Ours runs it, whatever the `python3` of the PATH is."""
    version = f.udf(lambda _: sys.version)
    [row] = spark.range(1).select(version("id")).collect()
    assert row[0] == sys.version
