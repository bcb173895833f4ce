"""Spool files without a gateway: what the Spark job reads, made row by row."""

import io
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.event import SCHEMA, Batch, Origin, Rows, Stored
from gateway.store.digests import EVENTS_KEY, EventsDigest
from gateway.store.names import file_name
from gateway.store.node.incarnation import KEY
from gateway.store.spool import parquet
from gateway.store.spool.decoding import Decoder
from incarnations import A

__all__ = ["SpoolFolder", "envelope", "spool_file"]


def spool_file(
    node: str, first: int, rows: Sequence[Rows], *, incarnation: str = A
) -> bytes:
    """A file as a gateway publishes it: lsns from *first*, a batch for each of *rows*."""
    origins = [
        Origin(
            "lumberjack", "beats", f"s-{at}", f"192.0.2.1:{at}", None, {"tls": "1.3"}
        )
        for at in range(3)
    ]
    batches, lsn = [], first
    for at, one in enumerate(rows):
        batch = Batch(origins[at % 3], 1_700_000_000_000_000 + at, one.count, b"", 0)
        batches.append(Stored(batch, lsn))
        lsn += one.count
    left = iter(rows)
    sink = io.BytesIO()
    parquet.write(
        batches,
        sink,
        node=node,
        decoder=Decoder({"lumberjack": lambda _: next(left)}),
        compression="zstd",
        incarnation=incarnation,
    )
    return sink.getvalue()


def envelope(
    node: str,
    first: int,
    payloads: Sequence[bytes],
    *,
    received_at: int | None = None,
    flaws: dict[int, str] | None = None,
    **columns: str | None,
) -> pa.Table:
    """Events as the spool writes them: lsns from *first*, one for each payload."""
    count = len(payloads)
    at = received_at if received_at is not None else int(time.time() * 1e6)
    same: dict[str, str | None] = {
        "node": node,
        "protocol": "lumberjack",
        "listener": "beats",
        "session": "s-1",
        "peer": "192.0.2.1:4711",
        "principal": None,
        "channel": None,
        "kind": "data",
        "content_type": "application/json",
        **columns,
    }
    flawed = flaws or {}
    each: dict[str, list[Any]] = {
        "lsn": list(range(first, first + count)),
        "received_at": [at] * count,
        "seq": list(range(1, count + 1)),
        "payload": list(payloads),
        "attributes": [[("tls", "TLSv1.3")]] * count,
        "flaw": [flawed.get(row) for row in range(count)],
    }
    return pa.table(
        [
            pa.array(each.get(f.name, [same.get(f.name)] * count), f.type)
            if not pa.types.is_dictionary(f.type)
            else pa.array(
                each.get(f.name, [same.get(f.name)] * count), f.type.value_type
            ).dictionary_encode()
            for f in SCHEMA
        ],
        schema=SCHEMA,
    )


@dataclass
class SpoolFolder:
    """A spool directory and whoever publishes into it."""

    path: Path
    produced: Counter[tuple[str, int]] = field(default_factory=Counter)

    def publish(self, table: pa.Table, incarnation: str = A) -> Path:
        """As the gateway does: hidden name, then rename."""
        digest = EventsDigest(table["lsn"][0].as_py())
        digest.add(table["payload"], table["received_at"])
        words = {
            EVENTS_KEY: digest.hexdigest(),
            **(table.schema.metadata or {}),
            KEY: incarnation,
        }
        table = table.replace_schema_metadata(words)
        self.path.mkdir(parents=True, exist_ok=True)
        node, lsns = table["node"][0].as_py(), table["lsn"].to_pylist()
        name = file_name(node, incarnation, lsns[0], lsns[-1])
        hidden = self.path / f".{name}"
        pq.write_table(table, hidden, compression="zstd", write_page_checksum=True)
        hidden.rename(self.path / name)
        self.produced.update((node, lsn) for lsn in lsns)
        return self.path / name

    def events(self, node: str, first: int, count: int, **options: Any) -> Path:
        """Publish *count* plain Beats events."""
        payloads = [
            json.dumps(
                {
                    "@timestamp": "2026-03-01T12:00:00.250Z",
                    "message": f"line {lsn}",
                    "host": {"name": f"host-{lsn % 3}"},
                }
            ).encode()
            for lsn in range(first, first + count)
        ]
        return self.put(node, first, payloads, **options)

    def put(
        self,
        node: str,
        first: int,
        payloads: Sequence[bytes],
        *,
        incarnation: str = A,
        **options: Any,
    ) -> Path:
        """Publish events with these payloads; *options* are those of `envelope`."""
        return self.publish(envelope(node, first, payloads, **options), incarnation)

    def names(self) -> list[str]:
        """What is there, hidden names too."""
        return sorted(path.name for path in self.path.iterdir())
