"""One life of a node's storage whose spool is a bucket, and what tests ask of both."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from twisted.internet.defer import Deferred

from gateway.config import model
from gateway.event import Batch, Origin, Rows
from gateway.sdk.interfaces import Memory
from gateway.store.directories import Directories
from gateway.store.names import parse_file_name
from gateway.store.objects.bucket import Bucket
from gateway.store.objects.node_record import NodeRecord, read_all
from gateway.store.spool import uploads
from gateway.store.storage import OpenedStorage, Settings, StorageCallbacks
from gateway.store.system.machine import Machine
from gateway_testkit.bucket import MemoryBucket
from gateway_testkit.reactor import QueuedReactor
from gateway_testkit.settings import options_of


class Node:
    """One life of a gateway's storage."""

    def __init__(
        self,
        root: Path,
        bucket: Bucket | None,
        *,
        ack: str = "spool",
        memory: Memory | None = None,
        opened: Callable[[], object] = lambda: None,
        **spool: Any,
    ) -> None:
        self.reactor = QueuedReactor()
        self.root = root
        self.told: list[str] = []
        found = OpenedStorage(
            settings=Settings(
                node="gw",
                directories=Directories.under(root),
                spool=options_of(model.Spool, **{"roll_interval": 0.01, **spool}),
                acknowledge_when_published=ack == "spool",
            ),
            machine=Machine(),
            reactor=self.reactor,
            decoders={"plain": lambda body: Rows([body])},
            callbacks=StorageCallbacks(
                fatal=pytest.fail,
                damaged=lambda losses, repairs: self.told.extend(repairs),
                noticed=self.told.append,
            ),
            remembering=memory is not None,
            bucket=bucket,
            in_thread=self.reactor.in_thread,
        )
        opened()
        self.storage = found.recover({} if memory is None else {"plain": memory})
        self.acknowledged: list[int] = []

    def start(self) -> Node:
        self.storage.start()
        self.reactor.run(lambda: self.storage.ready.called)
        return self

    def send(self, payload: bytes) -> None:
        origin = Origin("plain", "l", "s-1", "[::1]:9")
        done = self.storage.journal.submit(Batch(origin, 1, 1, payload, len(payload)))
        done.addCallback(lambda stored: self.acknowledged.append(stored.lsn))
        done.addErrback(lambda _: None)

    def sent(self, *payloads: bytes) -> Node:
        """One after the other, each acknowledged."""
        for payload in payloads:
            before = len(self.acknowledged)
            self.send(payload)
            self.reactor.run(lambda before=before: len(self.acknowledged) > before)
        return self

    def stop(self) -> None:
        self.reactor.wait(Deferred.fromCoroutine(self.storage.stop()))


def uploads_of(node: Node) -> uploads.Uploads:
    found = node.storage.spool.uploads
    assert found is not None
    return found


def kill(node: Node) -> None:
    """It asks nothing more of the bucket."""
    uploads_of(node).finish(0.0)
    node.reactor.run(lambda: not uploads_of(node)._busy)
    node.reactor.wait(node.storage.spool.stop())  # else it would go on in its threads


def named(bucket: MemoryBucket) -> dict[tuple[str, int], bytes]:
    """What is in the bucket's files, by incarnation and lsn; each once."""
    found: dict[tuple[str, int], bytes] = {}
    for name, data in sorted(bucket.objects.items()):
        if (file := parse_file_name(name)) is not None:
            table = pq.read_table(io.BytesIO(data), columns=["lsn", "payload"])
            for row in table.to_pylist():
                key = file.incarnation, row["lsn"]
                assert key not in found
                found[key] = row["payload"]
    return found


def events(bucket: MemoryBucket) -> dict[int, bytes]:
    """The same by lsn, where one directory gave them all."""
    found = named(bucket)
    assert len({lsn for _, lsn in found}) == len(found)
    return {lsn: found[by, lsn] for by, lsn in sorted(found, key=lambda key: key[1])}


def words(bucket: MemoryBucket) -> dict[str, NodeRecord]:
    """What each incarnation says of itself now."""
    heard = (one.record for one in read_all(bucket, "gw"))
    return {word.incarnation: word for word in heard if word is not None}
