"""Batches to a Parquet file for Spark.

One file holds one journal segment.  It is written row group by row group, so memory
does not grow with the file.  One group is decoded while the one before it is encoded,
where there is a thread for that.  Every data page carries a CRC, because Spark believes
flipped bits otherwise.
"""

from __future__ import annotations

import contextlib
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import define

from gateway.event import SCHEMA, SCHEMA_VERSION, SCHEMA_VERSION_KEY, Stored
from gateway.store.digests import EVENTS_KEY, PREVIOUS_KEY, EventsDigest
from gateway.store.node.incarnation import CONTINUES_KEY, FIRST_KEY, Record
from gateway.store.node.incarnation import KEY as INCARNATION_KEY
from gateway.store.spool.columns import ENCODED, Columns
from gateway.store.spool.decoding import Decoder

_GATHERED = 1 << 20
"""Bytes that go to the file at a time.

A thread that encodes needs the interpreter for each of these writes only, not for each page
while another one decodes."""

_BATCH_ROWS = 1 << 12
"""Values of a column that are encoded at once; a page has whole batches.

More than pyarrow's 1024 cost less each of small events; of large ones pages would be too
large with yet more."""

_DICTIONARY = [f.name for f in SCHEMA if pa.types.is_dictionary(f.type)]


@dataclass(slots=True)
class Written:
    """The content of a file."""

    events: int = 0
    flaws: Counter[str] = field(default_factory=Counter)
    """How many events are flawed, by reason."""
    digest: str = ""
    """The digest of the events (`gateway.store.digests`)."""
    previous: str = ""
    """The link of the file before it."""


def open_writer(
    sink: Any, compression: str, schema: pa.Schema = SCHEMA
) -> pq.ParquetWriter:
    """A writer of events to *sink* (a writable binary file object), a context manager.

    They come in *schema*, `SCHEMA` or `ENCODED`, and Arrow reads them in `SCHEMA`.
    """
    writer = pq.ParquetWriter(
        sink,
        schema,
        store_schema=False,
        compression=compression,
        compression_level=1 if compression == "zstd" else None,
        use_dictionary=[
            *_DICTIONARY,
            "attributes.key_value.key",
            "attributes.key_value.value",
        ],
        column_encoding={
            "lsn": "DELTA_BINARY_PACKED",
            "received_at": "DELTA_BINARY_PACKED",
            "seq": "DELTA_BINARY_PACKED",
        },
        write_statistics=["lsn", "received_at", "protocol", "flaw"],
        write_page_checksum=True,
        write_batch_size=_BATCH_ROWS,
        coerce_timestamps="us",
    )
    writer.add_key_value_metadata({b"ARROW:schema": b64encode(SCHEMA.serialize())})
    return writer


_UNKNOWN = Record()


def write(
    batches: Iterable[Stored],
    sink: Any,
    *,
    node: str,
    decoder: Decoder,
    compression: str,
    previous: Callable[[], str] = str,
    incarnation: str = "",
    record: Record = _UNKNOWN,
    progress: Callable[[], None] = lambda: None,
    decoded: Callable[[], None] = lambda: None,
    executor: Executor | None = None,
) -> Written:
    """Write a whole file to *sink*, a writable binary file object.

    It stays open unless something goes wrong.  *previous*, asked when all rows are written,
    gives the link of the file before it (`gateway.store.digests`), and *incarnation* is who
    publishes it (`gateway.store.node.incarnation`).  Both are empty if that is not known, and so
    is its *record*.  *progress* is called after each group of rows, and *decoded* when the last
    one has its values.  With an *executor*, of one thread, a group is encoded and written to
    *sink* in that.
    """
    done = Written()
    batches = iter(batches)
    first = next(batches, None)
    digest = EventsDigest(first.lsn if first is not None else 0)
    batches = chain([] if first is None else [first], batches)
    with (
        _gathering(sink) as gathered,
        open_writer(gathered, compression, ENCODED) as writer,
    ):
        writer.add_key_value_metadata({SCHEMA_VERSION_KEY: b"%d" % SCHEMA_VERSION})
        columns = Columns(node, digest.add_payloads)
        with _Encoding(writer, done, digest, executor) as encoding:
            for run, rows in decoder.decoded(batches):
                columns.add_all(run, rows)
                if columns.enough:
                    encoding.begin(columns)
                    columns = Columns(node, digest.add_payloads)
                    progress()
            if columns.rows:
                encoding.begin(columns)
            decoded()
        gathered.flush()
        done.digest = digest.hexdigest()
        writer.add_key_value_metadata({EVENTS_KEY: done.digest})
        done.previous = previous()
        if done.previous:
            writer.add_key_value_metadata({PREVIOUS_KEY: done.previous})
        if incarnation:
            writer.add_key_value_metadata({INCARNATION_KEY: incarnation})
        if record.first:
            writer.add_key_value_metadata({FIRST_KEY: str(record.first)})
        if record.continues:
            writer.add_key_value_metadata({CONTINUES_KEY: record.continues})
    return done


@contextlib.contextmanager
def _gathering(sink: Any) -> Iterator[pa.NativeFile]:
    """A stream before *sink*, which is closed if something goes wrong."""
    gathered = pa.BufferedOutputStream(pa.PythonFile(sink, "w"), _GATHERED)
    try:
        yield gathered
        gathered.detach()
    except BaseException:
        with contextlib.suppress(Exception):  # what went wrong first is raised
            gathered.close()
        raise


@define(eq=False, slots=False)
class _Encoding:
    """Encodes groups of rows in their order: each one here, or while the next is decoded."""

    _writer: pq.ParquetWriter
    _done: Written
    _digest: EventsDigest
    _executor: Executor | None

    def __attrs_post_init__(self) -> None:
        self._begun: list[Future[None]] = []
        """The groups that may not be written yet, the oldest first."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._settle(0)
        finally:
            for each in self._begun:
                each.cancel()
            wait(self._begun)  # what they raise comes too late

    def begin(self, columns: Columns) -> None:
        """Encode these, behind those before; raises what went wrong with those."""
        group = columns.table()
        self._done.events += group.num_rows
        self._done.flaws.update(columns.flaws)
        self._digest.add_times(group.column("received_at"))
        if self._executor is None:
            self._write(group)
            return
        self._begun.append(self._executor.submit(self._write, group))
        self._settle(1)

    def _write(self, group: pa.Table) -> None:
        self._writer.write_table(group, row_group_size=group.num_rows)

    def _settle(self, most: int) -> None:
        """Wait until no more than *most* groups are left to be written."""
        while len(self._begun) > most:
            self._begun[0].result()
            del self._begun[0]
