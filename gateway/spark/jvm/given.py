"""Settings that Spark's application was begun with, read once.

PySpark's own copy of them is two hundred calls of Java, each time that it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_known: dict[str, Mapping[str, str]] = {}
"""The settings by the application of Spark."""


def settings_of(spark: SparkSession) -> Mapping[str, str]:
    """The settings that the application of *spark* has; those of a session may be others.

    Spark has put a mark in place of values that are secrets.
    """
    application = spark.sparkContext.applicationId
    if application not in _known:
        java: Any = spark._jsc  # noqa: SLF001
        lines = java.sc().conf().toDebugString().splitlines()
        known = (line.partition("=") for line in lines)
        _known[application] = {name: value for name, _, value in known}
    return _known[application]
