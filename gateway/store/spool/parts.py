"""Parts of a spool file, as files of their own: what the job, or a gateway, makes of another past
of one incarnation (`gateway.spark.files.overlaps`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.event import SCHEMA
from gateway.store import digests
from gateway.store.names import SpoolFile
from gateway.store.node import incarnation
from gateway.store.node.incarnation import derived
from gateway.store.spool.parquet import open_writer

_OWN = (
    digests.EVENTS_KEY,
    digests.PREVIOUS_KEY,
    digests.DELETED_KEY,
    incarnation.CONTINUES_KEY,
)
"""Keys that a part of a file does not have as the whole one did."""


def part_of(
    source: Path | pa.BufferReader,
    file: SpoolFile,
    words: Mapping[bytes, bytes] = {},
) -> bytes:
    """The rows of *file* out of a file that may have more, as one that says *words*, too.

    Raises what pyarrow raises.
    """
    digest = digests.EventsDigest(file.first)
    sink = pa.BufferOutputStream()
    with (
        pq.ParquetFile(source, page_checksum_verification=True) as whole,
        open_writer(sink, "zstd") as writer,
    ):
        said = dict(whole.metadata.metadata or {})
        for number in range(whole.num_row_groups):
            rows = whole.read_row_group(number).select(SCHEMA.names).cast(SCHEMA)
            inside = pc.and_(
                pc.greater_equal(rows["lsn"], file.first),
                pc.less_equal(rows["lsn"], file.last),
            )
            rows = rows.filter(inside).combine_chunks()
            if len(rows):
                digest.add(rows["payload"], rows["received_at"])
                writer.write_table(rows, row_group_size=len(rows))
        kept = {
            key: value
            for key, value in said.items()
            if key.startswith(b"gateway.") and key not in _OWN
        }
        kept[digests.EVENTS_KEY] = digest.hexdigest().encode()
        writer.add_key_value_metadata({**kept, **words})
    return bytes(sink.getvalue().to_pybytes())


def derived_part(
    source: Path | pa.BufferReader, file: SpoolFile
) -> tuple[SpoolFile, bytes]:
    """The same under an incarnation that is derived of the file's: its name, and itself."""
    data = part_of(source, file)
    said = digests.metadata_of(pa.BufferReader(data))
    by = derived(file.incarnation, digests.events_said(said))
    words = {
        incarnation.KEY: by.encode(),
        incarnation.FIRST_KEY: str(file.first).encode(),
        incarnation.OF_KEY: said.get(
            incarnation.OF_KEY, file.incarnation.encode("ascii")
        ),
    }
    named = file._replace(incarnation=by)
    return named, part_of(pa.BufferReader(data), named, words)
