"""The digests of spool files: of a file's payloads, and of the file before it.

    gateway.payloads.blake3
                       BLAKE3 of the payloads of all rows, in their order (that of the
                       lsns): of their bytes, one payload after the other; then of their
                       lengths, each as int64, little-endian; then of their number, likewise
    gateway.payloads   SHA-256 of the same, in files of earlier versions instead
    gateway.previous   SHA-256 of all bytes of the node's file before this one, as
                       `sha256sum` prints it; 64 zeros in the first file of a node; not
                       there if the gateway did not know it

They stand in the file's own key-value metadata, as hex digits.  The digest of a whole file
is its *link*: it covers the link before it, so the newest one stands for all files.  The
catalog has the links of the newest files, and the mark the newest.

Payloads have a digest of their own because rows leave their file: it can be computed again
from the tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PAYLOADS_KEY = b"gateway.payloads.blake3"
SHA256_KEY = b"gateway.payloads"
PREVIOUS_KEY = b"gateway.previous"

NOTHING = "0" * 64
"""What stands for the file before a node's first one."""

_INT64 = np.dtype("<i8")
_CHUNK = 1 << 20


class Link(NamedTuple):
    """A file, as far as the next one is concerned."""

    last_lsn: int
    """Of its last event; 0 if there is no file yet."""
    sha256: str
    """Of all of it; `NOTHING` if there is no file yet, empty if that is not known."""


class Payloads(NamedTuple):
    """What is said of payloads: their digest, and of which kind it is."""

    key: bytes = PAYLOADS_KEY
    """That of the metadata."""
    digest: str = ""
    """Empty if it is not known."""

    def __bool__(self) -> bool:
        return bool(self.digest)

    def __str__(self) -> str:
        """As a sentence has it."""
        return f"{'SHA-256' if self.key == SHA256_KEY else 'BLAKE3'} {self.digest}"


class PayloadDigest:
    """The digest of a column of payloads that comes in pieces."""

    def __init__(self, key: bytes = PAYLOADS_KEY) -> None:
        """*key* is that of the metadata where it belongs."""
        self.key = key
        self._hash = _hash(key)
        self._lengths: list[bytes] = []
        self._count = 0

    def add(self, payloads: pa.Array | pa.ChunkedArray) -> None:
        """The next rows: of type binary or large_binary, without nulls.

        What is hashed is Arrow's own buffer, in one call that releases the interpreter.
        """
        if isinstance(payloads, pa.ChunkedArray):
            for each in payloads.chunks:
                self.add(each)
            return
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
            self._hash.update(memoryview(data)[offsets[0] : offsets[-1]])
        self._lengths.append(np.diff(offsets).astype(_INT64).tobytes())
        self._count += count

    def hexdigest(self) -> str:
        """Of all that was added."""
        whole = self._hash.copy()
        for lengths in self._lengths:
            whole.update(lengths)
        whole.update(self._count.to_bytes(8, "little"))
        return str(whole.hexdigest())

    def payloads(self) -> Payloads:
        """The same, with its kind."""
        return Payloads(self.key, self.hexdigest())


def _hash(key: bytes) -> Any:
    if key == SHA256_KEY:
        return hashlib.sha256()
    # Late: most processes that look at digests hash no payload.
    from blake3 import blake3

    return blake3()


def of_file(path: Path) -> str:
    """The link of a file: SHA-256 of its bytes.  Raises OSError."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            found.update(data)
    return found.hexdigest()


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
    """What a file's key-value metadata says under *key*; None if nothing."""
    value = (metadata or {}).get(key)
    return None if value is None else value.decode("ascii", "replace")


def footer_bytes(end: bytes) -> int:
    """Bytes that a file's footer takes, says the *end* of the file; 0 if it is no Parquet."""
    size, magic = end[-8:-4], end[-4:]
    return 8 + int.from_bytes(size, "little") if magic == b"PAR1" else 0


def payloads_said(metadata: Mapping[bytes, bytes] | None) -> Payloads:
    """What a file says of its payloads, if anything."""
    for key in (PAYLOADS_KEY, SHA256_KEY):
        if digest := said(metadata, key):
            return Payloads(key, digest)
    return Payloads()
