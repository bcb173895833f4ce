"""A machine that loses its disk and comes back under its node's name: real daemons, the
real Spark job and an S3 server; what clients heard is counted against the rows.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from daemons import Daemon, listener
from deadlines import environment, eventually, run
from gateway.audit.acknowledged import event_id, read_ids
from gateway.config import model
from gateway.spark.reading import files
from gateway.store.incarnation import KEY
from gateway.store.names import file_name
from gateway.store.word import Word, read
from gateway_testkit.seaweed import Seaweed
from gateway_testkit.settings import options_of
from one_java import one_java
from seaweeds import bucket_at, settings_of

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.spark]

NEXT_TO_NOTHING = {"roll_interval": "50ms"}


class Site:
    """A gateway on a machine of its own, a job on another, and what clients have heard."""

    def __init__(
        self,
        daemon: Daemon,
        port: int,
        home: Path,
        spool: Any,
        java: Mapping[str, str],
    ) -> None:
        self.daemon, self.port, self._home, self._java = daemon, port, home, java
        elsewhere = "s3" in spool
        there = ("--gateway", daemon.admin), ("--config", daemon.config)
        self._other: tuple[Any, ...] = there[0] if elsewhere else there[1]
        """How the audit, which runs where the job does, learns of the gateway."""
        self._heard: list[Path] = []
        self.job = home / "job.yaml"
        settings = {
            "node": "job",
            "data_dir": str(home / "job"),
            "spool": spool,
            "listeners": [listener("none", "lumberjack")],
            "spark": {"driver_memory": "1g", "trigger": "200ms"},
        }
        self.job.write_text(json.dumps(settings))

    def send(self, events: int) -> None:
        """Acknowledged, all of them."""
        acked = self._home / f"acked-{len(self._heard)}"
        self._heard.append(acked)
        words = ("send", "lumberjack", f"127.0.0.1:{self.port}", "--generate", events)
        self._command(*words, "--acked", acked)
        assert len(read_ids(acked.read_text().splitlines())) == events

    def lose_the_disk(self) -> None:
        """Killed, and nothing of its directory is left."""
        self.daemon.kill()
        shutil.rmtree(self.daemon.data)

    def take(self) -> str:
        """The job reads all that is there; what it said."""
        return self._command("spark", "--once", "--config", self.job, env=self._java)

    def rows(self) -> Counter[str]:
        """How often each event that clients have heard of is in the table."""
        lake = self._home / "job" / "lake"
        table = ds.dataset(files(lake, "events"), partitioning="hive").to_table(
            ["body"]
        )
        there = Counter(event_id(body.encode()) for body in table["body"].to_pylist())
        heard = [
            name
            for path in self._heard
            for name in read_ids(path.read_text().splitlines())
        ]
        return Counter({name: there[name] for name in heard})

    def incarnations(self) -> list[str]:
        """Those of the table's rows."""
        lake = self._home / "job" / "lake"
        table = ds.dataset(files(lake, "events")).to_table(["incarnation"])
        return sorted(set(table["incarnation"].to_pylist()))

    def audit(self, *words: Any, status: int) -> str:
        """What it says, of the job's machine and the gateway that runs."""
        return self._command(
            *("audit", *words, "--config", self.job),
            *self._other,
            status=status,
        )

    def accept(self, lsns: str) -> None:
        """As an operator who knows what was lost."""
        self._command(
            *("audit", "accept", "gw-1", lsns, "--reason", "its disk is gone"),
            *("--config", self.job, *self._other),
        )

    def heard_of(self) -> list[Any]:
        """All acknowledged ids, as arguments of the audit."""
        return ["--acknowledged", *self._heard]

    def _command(
        self,
        *words: Any,
        status: int = 0,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        command = [sys.executable, "-m", "gateway.cli", *map(str, words)]
        done = run(*command, cwd=self._home, env=environment() | env)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The environment of all jobs: one Java, a session for each."""
    asked = options_of(model.Spark, driver_memory="1g")
    with one_java(asked, tmp_path_factory.mktemp("java")) as found:
        yield found


@pytest.fixture
def in_a_directory(
    prepare: Callable[..., Daemon],
    free_port: Callable[[], int],
    tmp_path: Path,
    java: Mapping[str, str],
) -> Site:
    """The spool is a directory that gateway and job share; the rest is each one's own."""
    shared = {"directory": str(tmp_path / "spool"), **NEXT_TO_NOTHING}
    port = free_port()
    beats = listener("beats", "lumberjack", listen=f"tcp:127.0.0.1:{port}")
    daemon = prepare(spool=shared, listeners=[beats]).start()
    return Site(daemon, port, tmp_path, shared, java)


@pytest.fixture
def in_a_bucket(
    prepare: Callable[..., Daemon],
    free_port: Callable[[], int],
    tmp_path: Path,
    seaweed: Seaweed,
    java: Mapping[str, str],
) -> Callable[[str], Site]:
    """The spool is a bucket of SeaweedFS; made with what `ack` is to be."""

    def make(ack: str) -> Site:
        port = free_port()
        spool = {
            "directory": "s3://gateway/spool",
            "s3": settings_of(seaweed.url),
            # What is sent at once is in one file, where the bucket is not waited for.
            **(NEXT_TO_NOTHING if ack == "spool" else {"roll_interval": "2s"}),
        }
        beats = listener("beats", "lumberjack", listen=f"tcp:127.0.0.1:{port}")
        daemon = prepare(ack=ack, spool=spool, listeners=[beats]).start()
        return Site(daemon, port, tmp_path, spool, java)

    return make


def test_what_a_rebuilt_machine_acknowledges_is_in_the_table(
    in_a_directory: Site,
) -> None:
    """Nothing it can see knows of the node: it gives the same lsns, in files of the same
    names, and each of its events is a row.  The audit does not say complete of what the
    lost disk may have had, until somebody accepts that.
    """
    site = in_a_directory
    site.send(1600)
    eventually(lambda: site.daemon.status()["spool"]["published_lsn"] == 1600, "a file")
    site.take()
    assert site.audit(*site.heard_of(), status=0).count("complete: 1600 events")
    site.lose_the_disk()
    site.daemon.start()
    site.send(900)
    eventually(lambda: site.daemon.status()["spool"]["published_lsn"] == 900, "a file")
    said = site.take()
    assert said.count("began anew") == 1
    assert set(site.rows().values()) == {1}
    assert len(site.rows()) == 2500
    assert len(site.incarnations()) == 2
    said = site.audit(*site.heard_of(), status=1)
    assert "2500 of 2500 acknowledged events found" in said
    assert "gw-1 behind lsn 1600" in said
    site.accept("1601-")
    assert "complete: " in site.audit(*site.heard_of(), status=0)


def test_objects_that_others_remove_take_nothing_acknowledged_with_them(
    in_a_bucket: Callable[[str], Site], seaweed: Seaweed
) -> None:
    """With `ack: spool`: a lifecycle rule takes the node's newest object, and then its disk
    goes.  It goes on behind what it had acknowledged, and all of it is in the table.
    """
    site = in_a_bucket("spool")
    bucket = bucket_at(seaweed.url)
    site.send(400)
    site.take()
    assert [bucket.remove(one.name) for one in bucket.list("events-")]
    site.lose_the_disk()
    site.daemon.start()
    site.send(1700)
    site.take()
    assert set(site.rows().values()) == {1}
    assert len(site.rows()) == 2100
    assert "complete: 2100 events" in site.audit(*site.heard_of(), status=0)


def test_a_late_file_does_not_take_the_newest_ones_place(
    in_a_bucket: Callable[[str], Site], seaweed: Seaweed
) -> None:
    """A gateway that was taken over puts a file there afterwards: it is moved away, and
    what the next machine goes on behind stays.
    """
    site = in_a_bucket("spool")
    bucket = bucket_at(seaweed.url)
    site.send(100)
    first = _word(bucket).reached
    assert first is not None
    old = max(one.name for one in bucket.list("events-"))
    content = bucket.read(old)
    site.lose_the_disk()
    site.daemon.start()  # on another machine, after 15 s
    site.send(100)
    site.take()
    newest = max(one.name for one in bucket.list("events-"))
    late = file_name("gw-1", 1001, 1000 + _events(content))
    bucket.create(late, content)
    site.take()
    assert [one.name for one in bucket.list("events-")] == [newest]
    assert [one.name for one in bucket.list("_fenced/events-")] == [f"_fenced/{late}"]
    site.lose_the_disk()
    site.daemon.start()
    site.send(100)
    site.take()
    assert set(site.rows().values()) == {1}
    assert len(site.rows()) == 300


def test_what_a_lost_disk_had_acknowledged_is_a_named_hole(
    in_a_bucket: Callable[[str], Site], seaweed: Seaweed
) -> None:
    """With `ack: journal`, while the bucket is away: the audit names the lsns, and says that
    nobody vouches for more, until somebody accepts it.
    """
    site = in_a_bucket("journal")
    bucket = bucket_at(seaweed.url)
    site.send(300)
    eventually(lambda: site.daemon.status()["spool"]["published_lsn"] == 300, "a file")
    site.take()
    name = file_name("gw-1", 301, 400)
    bucket.create(name, b"somebody else's")  # so that it can not be uploaded
    site.send(100)
    eventually(lambda: (_word(bucket).reached or NOBODY).lsn == 400, "a word")
    site.lose_the_disk()
    bucket.remove(name)
    site.daemon.start()
    site.send(200)
    eventually(lambda: site.daemon.status()["spool"]["published_lsn"] == 600, "a file")
    site.take()
    there = site.rows()
    assert sorted(there.values()) == [0] * 100 + [1] * 500
    said = site.audit(status=1)
    assert "lsn 301-400" in said
    assert "acknowledged by gw-1 with ack: journal before its disk was lost" in said
    assert "up to lsn 400 when last heard" in said
    site.accept("301-400")
    said = site.audit(status=0)
    assert "100 accepted as lost (its disk is gone)" in said
    site.send(10)
    eventually(lambda: site.daemon.status()["spool"]["published_lsn"] == 610, "a file")
    site.take()  # takes it into its ledger
    ledger = json.loads((site.job.parent / "job/lake/.gateway/events.json").read_text())
    assert [one["reason"] for one in ledger["accepted"]] == ["its disk is gone"]
    assert "100 accepted as lost (its disk is gone)" in site.audit(status=0)


class NOBODY:
    """Nothing was heard yet."""

    lsn = -1


def _word(bucket: Any) -> Word:
    found = read(bucket, "gw-1")
    assert found is not None
    return found[0]


def _events(content: bytes) -> int:
    import pyarrow as pa

    footer = pq.read_metadata(pa.BufferReader(content))
    assert footer.metadata[KEY]
    return int(footer.num_rows)
