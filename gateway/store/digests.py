"""The digests of spool files: of a file's events, and of the file before it.

    gateway.events     BLAKE3 over three BLAKE3s, as their 32 bytes each, and two numbers, as
                       int64, little-endian: of the payloads of all rows in their order (that
                       of the lsns), one after the other; of their lengths, each as int64;
                       of `received_at`, each as int64, in µs since the epoch; then the first
                       lsn, and how many rows there are
    gateway.previous   the link of the node's file before this one; 64 zeros in the first
                       file of a node; not there if the gateway did not know it
    gateway.deleted    in a file in which events were redacted: `gateway.events` as it is
                       of the rows now; that itself stays what it was

They stand in the file's own key-value metadata, as hex digits.  Two files with the same
`gateway.events` are the same events, whatever their bytes: those depend on the version that
wrote them, and on the compression.

The *link* of a file is the BLAKE3 of both digests, `gateway.events` and `gateway.previous`,
as they stand there, one after the other.  So it covers the link before it, and the newest
one stands for all files.  The catalog has the links of the newest files, and the mark the
newest.

All of it can be computed again from the rows, also from those in tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

from gateway.sdk.arrow import batches_by_group

EVENTS_KEY = b"gateway.events"
PREVIOUS_KEY = b"gateway.previous"
DELETED_KEY = b"gateway.deleted"

NOTHING = "0" * 64
"""The digest in place of the file before a node's first one."""

_INT64 = np.dtype("<i8")
_BATCH_ROWS = 1 << 15
_CHUNK = 1 << 20


class Link(NamedTuple):
    """A file, as far as the next one is concerned."""

    last_lsn: int
    """The lsn of its last event; 0 if there is no file yet."""
    digest: str
    """The file's link; `NOTHING` if there is no file yet, empty if that is not known."""


class EventsDigest:
    """The digest of events that come in pieces, in order of lsn."""

    def __init__(self, first_lsn: int) -> None:
        self._first_lsn = first_lsn
        self._payloads, self._lengths, self._times = blake3(), blake3(), blake3()
        self._count = 0

    def add(
        self,
        payloads: pa.Array | pa.ChunkedArray,
        received_at: pa.Array | pa.ChunkedArray,
    ) -> None:
        """The next rows: payloads of type binary or large_binary, times in µs; no nulls.

        What is hashed is Arrow's own buffers, in calls that release the interpreter.
        """
        for each in _chunks(payloads):
            self.add_payloads(each)
        self.add_times(received_at)

    def add_times(self, received_at: pa.Array | pa.ChunkedArray) -> None:
        """The times of the next rows, whose payloads come for themselves."""
        for each in _chunks(received_at):
            times = each.view(pa.int64()).to_numpy()
            self._times.update(_octets(times))

    def add_payloads(self, payloads: pa.Array) -> None:
        """The payloads of the next rows, whose times come for themselves."""
        count = len(payloads)
        if not count:
            return
        _, ends, data = payloads.buffers()
        kind = np.dtype(
            np.int64 if pa.types.is_large_binary(payloads.type) else np.int32
        )
        at = kind.itemsize * payloads.offset
        offsets = np.frombuffer(ends, kind, count + 1, at)
        if data is not None:
            self._payloads.update(memoryview(data)[offsets[0] : offsets[-1]])
        self._lengths.update(_octets(np.diff(offsets)))
        self._count += count

    def hexdigest(self) -> str:
        whole = blake3()
        for each in (self._payloads, self._lengths, self._times):
            whole.update(each.digest())
        for number in (self._first_lsn, self._count):
            whole.update(number.to_bytes(8, "little"))
        return str(whole.hexdigest())


def _octets(numbers: np.ndarray[Any, Any]) -> memoryview:
    """Each as int64, little-endian."""
    return numbers.astype(_INT64, copy=False).view(np.uint8).data


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def link_of(events: str, previous: str) -> str:
    """The link of a file of these events, behind the file with that link."""
    return str(blake3(f"{events}{previous}".encode()).hexdigest())


def link_said(metadata: Mapping[bytes, bytes] | None) -> str:
    """The link that a file says it has; empty if it says nothing of its events."""
    events = said(metadata, EVENTS_KEY)
    return link_of(events, said(metadata, PREVIOUS_KEY) or "") if events else ""


def of_file(source: Path | pa.BufferReader) -> str:
    """The digest of the events that are in a file, whatever it says itself.

    Raises FileNotFoundError, and what pyarrow raises for a file that is damaged.
    """
    with pq.ParquetFile(source, page_checksum_verification=True) as file:
        found: EventsDigest | None = None
        names = ["lsn", "received_at", "payload"]
        for batch in batches_by_group(file, _BATCH_ROWS, names):
            found = found or EventsDigest(batch["lsn"][0].as_py())
            found.add(batch["payload"], batch["received_at"])
    return (found or EventsDigest(0)).hexdigest()


def of_octets(path: Path) -> str:
    """BLAKE3 of a file's bytes.  Raises OSError."""
    found = blake3()
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            found.update(data)
    return str(found.hexdigest())


def are_same(one: Path | pa.BufferReader, other: Path | pa.BufferReader) -> bool | None:
    """Whether two files say that they have the same events; None if one of them says nothing.

    Raises FileNotFoundError, PermissionError.
    """
    mine, theirs = (said(metadata_of(each), EVENTS_KEY) for each in (one, other))
    return None if mine is None or theirs is None else mine == theirs


def metadata_of(path: Path | pa.BufferReader) -> Mapping[bytes, bytes]:
    """A file's key-value metadata; nothing if it has none, or is damaged.

    Raises FileNotFoundError, PermissionError.
    """
    try:
        return pq.read_metadata(path).metadata or {}
    except (FileNotFoundError, PermissionError):
        raise
    except Exception:  # a damaged footer makes pyarrow raise anything
        return {}


def said(metadata: Mapping[bytes, bytes] | None, key: bytes) -> str | None:
    """The value of *key* in a file's key-value metadata; None if there is none."""
    value = (metadata or {}).get(key)
    return None if value is None else value.decode("ascii", "replace")


def footer_bytes(end: bytes) -> int:
    """Bytes that a file's footer takes, says the *end* of the file; 0 if it is no Parquet."""
    size, magic = end[-8:-4], end[-4:]
    return 8 + int.from_bytes(size, "little") if magic == b"PAR1" else 0


def events_said(metadata: Mapping[bytes, bytes] | None) -> str:
    """The digest of the events that a file has now, as it says; empty if it does not."""
    return said(metadata, DELETED_KEY) or said(metadata, EVENTS_KEY) or ""
