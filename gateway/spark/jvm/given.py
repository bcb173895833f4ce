"""Settings that Spark's application was begun with, read once.

PySpark's own copy of them is two hundred calls of Java, each time that it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_known: dict[str, Mapping[str, str]] = {}
"""The settings by the application of Spark."""


def settings_of(spark: SparkSession) -> Mapping[str, str]:
    """The settings that the application of *spark* has; those of a session may be others."""
    application = spark.sparkContext.applicationId
    if application not in _known:
        # Spark's own text of them has no values that look like secrets.
        pairs = spark._jsc.sc().conf().getAll()  # noqa: SLF001
        known = (pair.toString()[1:-1].partition(",") for pair in pairs)
        _known[application] = {name: value for name, _, value in known}
    return _known[application]
