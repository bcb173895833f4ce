"""Java's heap for a batch: settings by the size of its rows, and files that did not fit.

Spark reads 4,096 rows at once and looks at the size of what it writes every 100 rows; of
events of 9 MB that is more than any heap.  So both are set for each batch, by what the
footers say of its rows.

A batch that runs out of heap all the same is begun anew, one file at a time.  A file that
does not fit alone is moved aside, and the rest goes on.  `lake/.gateway/heap.json` knows of
that over the end of Java and of the job, and of which heap it was: with another one each
file is tried again.

Between small batches the heap is kept small, as memory is what a small flow costs.  That
has Java collect all of it for each few megabytes that large ones bring, so for these it may
grow (`Room`).

A small file that runs out of heap alone is not why it was too small.  It stays, as each
file behind it would go the same way, and the job ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gateway.spark.commit.lakedisk import LakeDisk
from gateway.spark.commit.ledger import write_json
from gateway.spark.jvm.compiled import array
from gateway.spark.jvm.given import settings_of
from gateway.store.names import SpoolFile


class Free(NamedTuple):
    """Percent of the heap that a collection leaves free, by the names of Java's flags."""

    MinHeapFreeRatio: int
    MaxHeapFreeRatio: int


#: Memory matters: what `gateway.spark.jvm.session` has Java begin with.
SMALL = Free(20, 40)
#: Time matters.
LARGE = Free(50, 70)
#: Bytes of the files of a batch that is no small one.
_LARGE_BYTES = 2 << 20
_FLAGS = "com.sun.management.HotSpotDiagnosticMXBean"

#: Rows that may be larger than this are written by one task.
ALONE_BYTES = 4 << 20
#: What Java ends with when Spark saw it run out of heap.
EXIT = 52

_READ_BYTES, _READ_ROWS = 8 << 20, 4096
_WRITE_BYTES, _WRITE_ROWS = 4 << 20, 100
_MOST_WRITE_ROWS = 10_000

_READ = "spark.sql.parquet.columnarReaderBatchSize"
_CHECKS = tuple(
    f"parquet.{what}.size.row.check.{end}"
    for what in ("page", "block")
    for end in ("min", "max")
)
#: Java says so as well where it has no room for threads or classes, whatever the rows are.
_OTHER = r": (unable to create|Metaspace|Compressed class space)"
_OUT = re.compile(
    rf"OutOfMemoryError(?!{_OTHER})|Cannot reserve additional contiguous bytes"
    rf"|(exit(ed)?|Command exited with) code:? {EXIT}\b"
)


def fit(spark: Any, row_bytes: int) -> None:
    """Have the session read and write rows of up to this size in little of the heap.

    What the user has set (`spark.conf`) stays.
    """
    row_bytes = max(1, row_bytes)
    read = min(_READ_ROWS, max(1, _READ_BYTES // row_bytes))
    least = min(_WRITE_ROWS, max(1, _WRITE_BYTES // row_bytes))
    most = least if least < _WRITE_ROWS else _MOST_WRITE_ROWS
    rows = {_READ: read}
    rows |= {key: least if key.endswith("min") else most for key in _CHECKS}
    given = settings_of(spark)
    for key, count in rows.items():
        if key not in given and f"spark.hadoop.{key}" not in given:
            spark.conf.set(key, str(count))


class Room:
    """How much of Java's heap is to be free after a collection, by what batches bring."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._java: Any = spark._jvm  # noqa: SLF001
        kind = self._java.java.lang.Class.forName(_FLAGS)
        factory = self._java.java.lang.management.ManagementFactory
        self._flags = factory.getPlatformMXBean(kind)
        text = self._java.java.lang.Class.forName("java.lang.String")
        self._get = kind.getMethod("getVMOption", self._array("Class", [text]))
        self._put = kind.getMethod("setVMOption", self._array("Class", [text, text]))
        mine = spark.sparkContext.master.startswith("local") and self.now() == SMALL
        self._free = SMALL if mine else None
        """The flags as they are now; None: the user has set them, or tasks run elsewhere."""

    def fit(self, batch_bytes: int) -> None:
        """Have Java's heap grow for a batch whose files have 2 MiB, and shrink for others."""
        wanted = LARGE if batch_bytes > _LARGE_BYTES else SMALL
        if self._free is None or self._free == wanted:
            return
        self.set(wanted)
        self._free = wanted

    def now(self) -> Free | None:
        """Java's flags; None: this Java has none such."""
        from py4j.protocol import Py4JError

        try:
            return Free(*(self._value(name) for name in Free._fields))
        except Py4JError:
            return None

    def set(self, wanted: Free) -> None:
        """Set Java's flags."""
        # Java takes no least that is above the most.
        for name, percent in sorted(wanted._asdict().items(), reverse=wanted is SMALL):
            given = self._array("Object", [name, str(percent)])
            self._put.invoke(self._flags, given)

    def _value(self, name: str) -> int:
        given = self._array("Object", [name])
        return int(self._get.invoke(self._flags, given).getValue())

    def _array(self, kind: str, values: Sequence[Any]) -> Any:
        return array(self._spark, getattr(self._java.java.lang, kind), values)


def ran_out(why: BaseException) -> bool:
    """Whether it says that a heap was too small."""
    return _OUT.search(str(why)) is not None


def key_of(spark: Any) -> str:
    """The heap that the batches have, and its key; *spark* is the configuration's section."""
    if spark.master.startswith("local"):
        return f"{spark.driver_memory} (spark.driver_memory)"
    found = spark.conf.get("spark.executor.memory", "1g")
    return f"{found} (spark.executor.memory in spark.conf)"


class Suspects:
    """Files of a batch that ran out of heap, until each was tried alone.

    True while there are any.
    """

    def __init__(self, path: Path, disk: LakeDisk, heap: str) -> None:
        """*heap* is `key_of` the heap that there is now."""
        self._path = path
        self._disk = disk
        self.heap = heap
        told = json.loads(disk.read(path)) if disk.exists(path) else {}
        self.names: set[str] = set(told.get("files", ()))
        same = told.get("heap") == heap
        self.alone: str | None = told.get("alone") if same else None
        """One that did not fit, and is to be moved aside."""

    def __bool__(self) -> bool:
        return bool(self.names)

    def innocent(self, files: Sequence[SpoolFile], bytes_in_memory: int) -> bool:
        """Whether a batch of these, of which only one may be, would fit into any heap that
        is not full of something else.
        """
        return bool(self) and len(files) == 1 and bytes_in_memory < ALONE_BYTES

    def failed(self, files: Sequence[SpoolFile]) -> None:
        """A batch of these ran out of heap."""
        names = [file.name for file in files]
        if self and len(names) == 1:
            (self.alone,) = names
        self.names.update(names)
        self._write()

    def aside(self, name: str) -> None:
        self.alone = None
        self.names.discard(name)
        self._write()

    def keep(self, waiting: Collection[str]) -> bool:
        """Only these still wait; whether that was the last of them."""
        before, self.names = self.names, self.names.intersection(waiting)
        if self.names != before:
            self._write()
        return bool(before) and not self.names

    def _write(self) -> None:
        if self.names or self.alone:
            known = {
                "files": sorted(self.names),
                "alone": self.alone,
                "heap": self.heap,
            }
            write_json(self._disk, self._path, known)
        elif self._disk.exists(self._path):
            self._disk.unlink(self._path)
