"""Looks for Java and Spark, in versions that the Spark job runs on, the module of a
`spark.sink` of one's own, and the kernel in C.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from gateway.config import Config
from gateway.doctor.look import Look, fail, ok, warn
from gateway.sdk import native
from gateway.spark.jvm import java

_SPARK = (4, 1), (5, 0)
_INSTALL = "pip install 'gateway[spark]' brings both"


def examine(
    config: Config,
    *,
    environ: Mapping[str, str] = os.environ,
    version: Callable[[str], str] = metadata.version,
) -> Iterator[Look]:
    """Looks at Java, Spark, the sink's function and the kernel in C.

    The job may run on another machine, if the configuration has no section `spark`, another
    master, or a bucket for the spool.
    """
    if config.spool.has_job:
        here = "spark" in config.model_fields_set and config.spool.bucket is None
        here = here and config.spark.master.startswith("local")
        amiss = fail if here else _elsewhere
        yield _java(environ, amiss)
        yield _spark(version, amiss)
        if ":" in config.spark.sink:
            yield _function(config.spark.sink)
    yield _kernel(native.said)


def _kernel(said: str) -> Look:
    if said == native.OTHER:
        return warn("kernel in C", said, "install both from one place")
    return ok("kernel in C", said)


def _function(sink: str) -> Look:
    """Whether its package is there; nothing of it is run."""
    package = sink.partition(":")[0].partition(".")[0]
    if find_spec(package) is not None:
        return ok("spark.sink", f"{package} of {sink} can be imported here")
    return warn(
        "spark.sink",
        f"{sink}: no module {package} is found here",
        "install it for the job, or name its folder in PYTHONPATH where the job is started",
    )


def _elsewhere(what: str, detail: str, advice: str) -> Look:
    return warn(what, detail, f"{advice}, if the job is to run on this machine")


def _java(environ: Mapping[str, str], amiss: Callable[[str, str, str], Look]) -> Look:
    try:
        with tempfile.TemporaryDirectory() as cache:
            found = java.find(environ, Path(cache))
    except java.NoJava as why:
        tried = "; ".join(line.strip() for line in str(why).splitlines()[1:-1])
        detail = f"no Java {java.OLDEST} or newer: {tried or 'nothing there'}"
        return amiss("Java", detail, _INSTALL)
    return ok("Java", str(found))


def _spark(
    version: Callable[[str], str], amiss: Callable[[str, str, str], Look]
) -> Look:
    try:
        found = version("pyspark")
    except metadata.PackageNotFoundError:
        return amiss("Spark", "pyspark is not installed", _INSTALL)
    parts = found.split(".")
    oldest, before = _SPARK
    try:
        good = oldest <= (int(parts[0]), int(parts[1])) < before
    except (ValueError, IndexError):
        good = False
    if good:
        return ok("Spark", f"pyspark {found}")
    wanted = f"{oldest[0]}.{oldest[1]} or newer, before {before[0]}"
    return amiss("Spark", f"pyspark {found}; the job runs on {wanted}", _INSTALL)
