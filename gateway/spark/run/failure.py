"""Failures with which a job can not go on, in words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from gateway.sink import kind_of
from gateway.spark.commit.handover import HandOverFailed
from gateway.spark.commit.ledger import Broken
from gateway.spark.jvm.java import NoJava
from gateway.spark.run.causes import advised, cause

_ENDED = 'dagScheduler()" is null'
"""Words of Spark whose Java is ending, though it has not failed."""


class Failed(Exception):
    """The job can not go on; the text says why."""


def reason(why: BaseException) -> str:
    """The lines that matter of an exception that may have come through Java."""
    text = str(why).strip() or type(why).__name__
    if isinstance(why, (Broken, HandOverFailed, NoJava)):
        return text
    if isinstance(why, OSError) and why.filename is not None:
        return advised(f"{why.filename}: {why.strerror}")
    if _ENDED in text:
        return (
            "Java was told to end by something else than the job, within a batch"
            " (systemd: KillMode=mixed); the next start finishes it"
        )
    text = text.partition("\n=== Streaming Query ===")[0]
    lines = [line for line in text.splitlines() if not line.startswith("\tat ")]
    return f"{type(why).__name__}: {' '.join(lines[:3])[:1000]}"


@contextlib.contextmanager
def in_words() -> Iterator[None]:
    """Raise `Failed` for what Spark raises inside, with its cause."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as why:
        raise Failed(cause(str(why)) or reason(why)) from why


def lacking(config: Any, why: ModuleNotFoundError) -> Failed:
    """The package to install where one is not there."""
    extra = kind_of(config.spark.sink).extra
    return Failed(f"no Python package {why.name}: pip install 'gateway[{extra}]'")
