"""The needs of a cluster on this machine; all that is not installed is told at once."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

from gateway.sinks.iceberg import kind as iceberg
from gateway.spark.jvm import java
from gateway_testkit import seaweed

__all__ = ["Missing", "check"]

_PACKAGES = {
    "obstore": "reaches the bucket",
    "pyiceberg": "reads the table without Spark",
}


class Missing(Exception):
    """Something is not installed; says what, and how to get it."""


def check() -> None:
    """Raise `Missing` unless everything is there; jars are fetched later."""
    lacking = list(_lacking())
    if lacking:
        lines = "".join(f"\n  {one}" for one in lacking)
        raise Missing(
            f"gateway demo --cluster needs more than there is:{lines}\n"
            "pip install 'gateway-demo[cluster]' brings all of it, best in an environment of"
            " its own; in a clone: make demo ARGS=--cluster"
        )


def _lacking() -> Iterator[str]:
    if importlib.util.find_spec("pyspark") is None:
        yield "no Python package pyspark"
    else:
        import pyspark

        if not iceberg.fits(pyspark.__version__):
            fits = " or ".join(sorted(iceberg.jars))
            yield f"Spark {fits}, for which Iceberg has jars; this is {pyspark.__version__}"
        try:
            java.find(os.environ)
        except java.NoJava as why:
            yield str(why)
    for name, what in _PACKAGES.items():
        if importlib.util.find_spec(name) is None:
            yield f"no Python package {name}, which {what}"
    try:
        seaweed.program()
    except seaweed.NoSeaweed as why:
        yield str(why)
