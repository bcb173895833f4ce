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
from gateway.store import claim
from gateway.store.bucket import Bucket, BucketError
from gateway.store.claim import Claim
from gateway.store.directories import Directories
from gateway.store.disk import RealDisk
from gateway.store.machine import Machine
from gateway.store.spool import uploads
from gateway.store.storage import OpenedStorage, Settings, StorageCallbacks
from gateway.store.word import Holder, Reached, Word, name_of
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
        claim: Claim | None = None,
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
            claim=claim,
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


def claimed(bucket: MemoryBucket, root: Path) -> Claim:
    """As a start has it, of the data directory *root*."""
    journal = Directories.under(root).journal_of("gw")
    journal.mkdir(parents=True, exist_ok=True)
    return claim.claimed(bucket, "gw", journal, RealDisk(), lambda _: None)


def unclaimed(bucket: MemoryBucket) -> None:
    """Requests for the node's name fail, and no others."""

    def fault(request: str, name: str) -> None:
        if name == name_of("gw"):
            raise BucketError(f"{name}: 503 SlowDown")

    bucket.fault = fault


def uploads_of(node: Node) -> uploads.Uploads:
    found = node.storage.spool.uploads
    assert found is not None
    return found


def kill(node: Node) -> None:
    """It asks nothing more of the bucket, and answers nobody."""
    assert node.storage._opened.claim is not None
    node.storage._opened.claim.stop()
    uploads_of(node).forbid("it was killed")
    node.reactor.run(lambda: not uploads_of(node)._busy)
    node.reactor.wait(node.storage.spool.stop())  # else it would go on in its threads


def events(bucket: MemoryBucket) -> dict[int, bytes]:
    """What is in the bucket's files, by lsn; each once."""
    found: dict[int, bytes] = {}
    for name, data in sorted(bucket.objects.items()):
        if name.startswith("events-"):
            table = pq.read_table(io.BytesIO(data), columns=["lsn", "payload"])
            for row in table.to_pylist():
                assert row["lsn"] not in found
                found[row["lsn"]] = row["payload"]
    return found


def said(bucket: MemoryBucket) -> Word:
    """What the word says now."""
    found = Claim(bucket, "gw", Holder.here(Path(), "")).read()
    assert found is not None
    return found


def reached(bucket: MemoryBucket) -> Reached:
    found = said(bucket).reached
    assert found is not None
    return found
