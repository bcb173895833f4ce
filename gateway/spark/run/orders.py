"""Deletions that are ordered while the job runs: it takes them between two batches.

    lake/.gateway/orders/ID.json     what is wanted; the job looks each second
    lake/.gateway/orders/ID.begun    the job is at it
    lake/.gateway/orders/ID.told     the answer, for `gateway spark delete`, which waits

The condition says whose events these are: it stands there until the order is done.  A job
that dies with one does not begin it again, as it may have died of it.  What it had written
down goes on with the next `gateway spark delete`.  Whether it had come so far is not known,
so the answer is to ask again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from gateway.sdk.disk import Disk, replace_file
from gateway.spark.commit.ledger import Broken
from gateway.spark.commit.partition import Busy
from gateway.spark.later.deletion import Asked
from gateway.store.readers.lake import INTERNAL

WRONG_USE = 2
"""The status of an answer to what can not be meant so."""
_LONGEST_SECONDS = 86400.0
"""Seconds after which no one waits for an answer."""

Do = Callable[["Order"], Iterator[tuple[str, dict[str, Any]]]]


class Order(msgspec.Struct, frozen=True):
    """An order to the job."""

    asked: Asked | None = None
    """None: only go on with what was begun."""
    purge: bool = False


class Answer(msgspec.Struct, frozen=True):
    """The result of an order."""

    said: list[tuple[str, dict[str, Any]]]
    """The words of `deletion.delete`."""
    status: int = 0
    """The exit status of the command: 0 done, 1 not now, or `WRONG_USE`."""


def _folder(lake: Path) -> Path:
    return lake / INTERNAL / "orders"


def place(lake: Path, disk: Disk, order: Order) -> Path:
    """Leave an order for the job, which owns it.  Raises OSError."""
    folder = _folder(lake)
    disk.make_directory(folder)
    path = folder / f"{time.time_ns()}-{secrets.token_hex(4)}.json"
    replace_file(disk, path, [msgspec.json.encode(order)]).close()
    if os.getuid() == 0:
        whose = lake.stat()
        for made in (path, folder):
            os.chown(made, whose.st_uid, whose.st_gid)
    return path


def answer_to(path: Path) -> Answer | None:
    """Take the answer to an order, once; None: there is none yet.  Raises OSError."""
    told = path.with_suffix(".told")
    with contextlib.suppress(FileNotFoundError):
        answer = msgspec.json.decode(told.read_bytes(), type=Answer)
        told.unlink()
        return answer
    return None


def withdraw(path: Path) -> None:
    """Withdraw an order: no job runs any more."""
    for name in (path, path.with_suffix(".begun")):
        name.unlink(missing_ok=True)


def waiting(lake: Path) -> list[Path]:
    """Orders that were not begun, the oldest first."""
    return sorted(_folder(lake).glob("[!.]*.json"))


def dropped(lake: Path, disk: Disk) -> Iterator[str]:
    """Answer the orders with which a job has died, and forget answers that were not taken.

    Says of each.  Raises OSError.
    """
    for path in _folder(lake).glob("*.begun"):
        text = (
            "the job has ended while it deleted: ask for it again, with the same --where."
            " What it had written down is gone on with then, and what is left is found"
        )
        _tell(path, disk, Answer([(text, {"error": text})], 1))
        yield text
    for path in _folder(lake).glob("*.told"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _LONGEST_SECONDS:
                path.unlink()


def obey(path: Path, disk: Disk, do: Do) -> Answer:
    """Take an order, *do* it, and answer.  Raises OSError, and as `attempt`."""
    begun = path.with_suffix(".begun")
    disk.rename(path, begun)
    answer = attempt(do, msgspec.json.decode(begun.read_bytes(), type=Order))
    _tell(begun, disk, answer)
    return answer


def attempt(do: Do, order: Order) -> Answer:
    """*do* it; the job goes on however that ends, unless it took Java with it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    said: list[tuple[str, dict[str, Any]]] = []
    try:
        said.extend(do(order))
    except (AnalysisException, ParseException) as why:
        said.append((f"--where: {str(why).strip().splitlines()[0]}", {}))
        return Answer(said, WRONG_USE)
    except (
        PySparkException,
        Py4JJavaError,
    ) as why:  # as of a cast that some row refuses
        text = " ".join(str(why).strip().splitlines()[:3])[:1000]
        said.append((text, {"error": text}))
        return Answer(said, 1)
    except (Broken, Busy, OSError, ValueError) as why:
        said.append((str(why), {"error": str(why)}))
        return Answer(said, 1)
    return Answer(said)


def _tell(begun: Path, disk: Disk, answer: Answer) -> None:
    told = begun.with_suffix(".told")
    replace_file(disk, told, [msgspec.json.encode(answer)]).close()
    begun.unlink(missing_ok=True)
