"""A storm of faults between gateways, a bucket and the job that reads it: what was
acknowledged is in the tables once.
"""

import contextlib
import io
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.spark.bucket.inbox import Inbox
from gateway.spark.bucket.requests import by_threads
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger, Ranges
from gateway.spark.files.poison import make_readable
from gateway.store.names import SpoolFile, file_name, parse_file_name
from gateway.store.objects.bucket import BucketError, commit
from gateway_testkit.bucket import MemoryBucket
from incarnations import A

_TROUBLE = 0.15
_STEPS = 400
_DRAIN, _CALM = 50, 10
_ATTEMPTS = 4
"""Of a task, as Spark's."""
_EVENTS = 20

Event = tuple[str, str, int]
"""Node, incarnation, lsn."""


class Storm(MemoryBucket):
    """Refuses some requests, carries others out without an answer, cuts what it gives
    short, and is gone for a while."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self.trouble = _TROUBLE
        self.gone = False
        self.met: Counter[str] = Counter()
        self.fault, self.after = self._before, self._behind

    def _before(self, request: str, name: str) -> None:
        if self.gone:
            raise BucketError("no route to host")
        self._maybe("refused")

    def _behind(self, request: str, name: str) -> None:
        self._maybe("not answered")

    def _maybe(self, what: str) -> None:
        if self._chance.random() < self.trouble / 2:
            self.met[what] += 1
            raise BucketError(what)

    def read(self, name: str, first: int = 0) -> bytes:
        """See `Bucket`."""
        data = super().read(name, first)
        if name.startswith("events-") and self._chance.random() < self.trouble / 2:
            self.met["cut short"] += 1
            return data[: self._chance.randrange(len(data))]
        return data


class Gateway:
    """Puts its files there until it knows that they are; then they are acknowledged."""

    def __init__(self, bucket: Storm, node: str, by: str, first: int = 1) -> None:
        self._bucket, self.node, self.by, self._next = bucket, node, by, first
        self._made: list[tuple[str, bytes]] = []
        self.acknowledged: set[Event] = set()

    def make(self, events: int = _EVENTS) -> None:
        """A file on its disk, of which nobody has heard."""
        lsns = [*range(self._next, self._next + events)]
        payload = [random.Random(f"{self.by} {lsn}").randbytes(1000) for lsn in lsns]
        table = pa.table({"lsn": lsns, "payload": payload})
        out = io.BytesIO()
        pq.write_table(table, out, compression="none")
        name = file_name(self.node, self.by, lsns[0], lsns[-1])
        self._made.append((name, out.getvalue()))
        self._next += events

    def upload(self) -> None:
        """Also what was under way when it was killed: it knows nothing of that."""
        for one in [*self._made]:
            name, data = one
            with contextlib.suppress(BucketError):
                commit(self._bucket, name, data)
                self._made.remove(one)
                file = parse_file_name(name)
                assert file is not None
                for lsn in range(file.first, file.last + 1):
                    self.acknowledged.add((self.node, self.by, lsn))

    @property
    def waits(self) -> bool:
        """Whether it has what is not acknowledged."""
        return bool(self._made)


class Job:
    """Its inbox is the real one; Spark and the tables are played."""

    def __init__(self, bucket: Storm, folder: Path, *, whole: bool) -> None:
        self._bucket, self._folder, self._whole = bucket, folder, whole
        self.tables: Counter[Event] = Counter()
        self._committed = Ranges()
        self.restart()

    def restart(self) -> None:
        """As after a kill."""
        ledger = Ledger(committed=self._committed)
        self.inbox = Inbox(
            *(self._bucket, self._folder, Lake(), lambda: ledger),
            archived=True,
            most_bytes=1 << 20,
            at_once=by_threads,
            whole=self._whole,
        )
        self.inbox._ledger = lambda: Ledger(committed=self._committed)
        self.inbox.copies.recover()

    def here(self) -> list[SpoolFile]:
        """The files of its inbox."""
        names = sorted(path.name for path in self._folder.glob("events-*"))
        return [file for name in names if (file := parse_file_name(name))]

    def look(self) -> None:
        """At the bucket."""
        with contextlib.suppress(BucketError):
            self.inbox.look()

    def batch(self, *, killed: bool = False) -> None:
        """All that is here goes into the tables, and then away, unless it is killed."""
        files = self.here()
        fresh = [file for file in files if not self._committed.covers(file)]
        try:
            rows = [row for file in fresh for row in self._rows(file)]
        except OSError:
            with contextlib.suppress(BucketError):
                make_readable(fresh, self.inbox, lambda _: [])
            return
        committed = Ranges()
        committed.update(self._committed)
        for file in fresh:
            committed.add(file.life, file.first, file.last)
        self.tables.update(rows)
        self._committed = committed
        if not killed:
            for file in files:
                (self._folder / file.name).unlink(missing_ok=True)

    def _rows(self, file: SpoolFile) -> list[Event]:
        """What the tasks read, here or in the bucket."""
        path = self._folder / file.name
        size = path.stat().st_size
        source = path.read_bytes() if self._whole else b""
        for _ in range(_ATTEMPTS):
            if len(source) == size:
                break
            with contextlib.suppress(BucketError):
                source = self._bucket.read(file.name)
        else:
            raise OSError("it is not as large as the driver says")
        table = pq.ParquetFile(
            pa.BufferReader(source), page_checksum_verification=True
        ).read()
        assert table.column_names == ["lsn", "payload"]
        return [(file.node, file.incarnation, lsn) for lsn in table["lsn"].to_pylist()]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_a_storm_loses_and_doubles_nothing(seed, whole, tmp_path):
    """Three gateways, their server and the job are killed, requests fail, are not answered,
    or are answered in part; one gateway stands still while another machine has its name, and
    then goes on with what it had on its way."""
    chance = random.Random(seed)
    bucket = Storm(chance)
    gateways = [Gateway(bucket, f"gw-{n}", "xyz"[n] * 10) for n in range(3)]
    job = Job(bucket, tmp_path / "inbox", whole=whole)
    frozen = gateways[2]
    for step in range(_STEPS):
        if step == _STEPS // 2:  # another machine has its name, and a disk of its own
            gateways[2] = Gateway(bucket, "gw-2", A)
        running = [one for one in gateways if one is not frozen or step < _STEPS // 3]
        doing = chance.random()
        if doing < 0.4 and running:
            chance.choice(running).make()
        elif doing < 0.7 and running:
            chance.choice(running).upload()
        elif doing < 0.85:
            job.look()
        elif doing < 0.95:
            job.batch(killed=chance.random() < 0.2)
        elif doing < 0.97:
            job.restart()
        else:
            bucket.gone = not bucket.gone and chance.random() < 0.5
        if step == _STEPS // 3:
            frozen.make()
    assert frozen.waits
    bucket.gone = False
    frozen.make()
    for _ in range(_DRAIN):
        frozen.upload()
        for one in gateways:
            one.upload()
        job.look()
        job.batch()
    assert bucket.met.keys() == {"refused", "not answered", "cut short"}
    bucket.trouble = 0.0
    for _ in range(_CALM):
        job.look()
        job.batch()
    assert not any(one.waits for one in gateways)
    wanted = set[Event]().union(*(one.acknowledged for one in (*gateways, frozen)))
    assert job.tables == Counter(wanted)
    assert job.here() == []
    of_tables = {f"_archive/{name}" for name in _files_of(job.tables)}
    assert bucket.objects.keys() == of_tables


def _files_of(events: Counter[Event]) -> set[str]:
    return {
        file_name(node, by, lsn, lsn + _EVENTS - 1)
        for node, by, lsn in events
        if (lsn - 1) % _EVENTS == 0
    }
