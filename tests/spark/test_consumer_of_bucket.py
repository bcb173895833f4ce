"""The recipe of a job of one's own on a bucket: Spark reads it by `s3a`, a server of somebody
else's answers.

It needs hadoop-aws, from Maven Central, for a Spark that `make long ONLY=lowest` has.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

from deadlines import ROOT, eventually
from gateway import config
from gateway.cli import main
from gateway.store.readers.consumers import Consumers, marks_of
from gateway.store.spool.consumed import BucketExpiry
from gateway_testkit.daemon import listener
from programs import running
from seaweeds import BUCKET, bucket_at, settings_of
from spools import SpoolFolder

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(
        not pyspark.__version__.startswith("4.1."),
        reason="its jars are fetched for the Spark of `make long ONLY=lowest` alone",
    ),
]

RECIPE = ROOT / "examples" / "recipes" / "to_folders.py"
MINUTES = 600.0


class Gateway:
    """What a gateway without a job of ours has put into a bucket, and takes out of it."""

    def __init__(self, home: Path, endpoint: str) -> None:
        self.home = home
        self.file = home / "gateway.yaml"
        self.file.write_text(
            json.dumps(
                {
                    "node": "gw",
                    "data_dir": str(home / "data"),
                    "listeners": [listener("beats", "lumberjack")],
                    "spool": {
                        "directory": f"s3://{BUCKET}/spool",
                        "s3": settings_of(endpoint),
                        "after": "keep",
                        "consumers": ["mine"],
                    },
                }
            )
        )
        self.bucket = bucket_at(endpoint)
        self.made = SpoolFolder(home / "made")
        self.made.path.mkdir()
        settings = config.load(self.file)
        self.consumers = Consumers(lambda name: marks_of(settings, name), ["mine"])
        self._expiry = BucketExpiry(
            self.bucket, lambda: ["gw"], self.consumers, -1.0, time.time
        )

    def put(self, first: int) -> None:
        path = self.made.events("gw", first, 10)
        self.bucket.create(path.name, path.read_bytes())

    def look(self) -> int:
        """When every object's time is over; how many the consumer has not read."""
        self._expiry.look()
        return self.consumers.behind["mine"].files

    def there(self) -> list[str]:
        return [one.name for one in self.bucket.list("events-")]

    def batches(self) -> int:
        return len(list(self.home.glob("mine/batch=*/_SUCCESS")))

    def all_committed(self) -> bool:
        """Whether the checkpoint has each batch that was written."""
        done = self.home.glob("mine-checkpoint/commits/[0-9]*")
        return len(list(done)) == self.batches()

    def counted(self) -> Counter[tuple[str, int]]:
        """How often each event is in what the job wrote."""
        found: Counter[tuple[str, int]] = Counter()
        for path in self.home.glob("mine/*/*.parquet"):
            rows = pq.ParquetFile(path).read(["node", "lsn"]).to_pylist()
            found.update((row["node"], row["lsn"]) for row in rows)
        return found


@pytest.fixture
def gateway(tmp_path, seaweed) -> Gateway:
    return Gateway(tmp_path, seaweed.url)


@pytest.fixture
def start(gateway, tmp_path) -> Iterator[Callable[[], Any]]:
    """Starts the recipe; whatever is left of it at the end is killed."""
    words = (sys.executable, RECIPE, gateway.file, "mine", tmp_path / "mine")
    with running() as begin, (tmp_path / "said").open("a") as errors:
        yield lambda: begin(*words, stderr=errors)


def reads(job: subprocess.Popen[str], gateway: Gateway, batches: int) -> None:
    """Wait until it has written so many; skips where its jars are out of reach."""

    def done() -> bool:
        if job.poll() is not None:
            said = (gateway.home / "said").read_text()
            if "unresolved dependency" in said and not os.environ.get("CI"):
                pytest.skip("hadoop-aws could not be fetched from Maven Central")
            pytest.fail(said[-4000:])
        return gateway.batches() >= batches

    eventually(done, f"batch {batches}", seconds=MINUTES)


def test_each_event_of_a_bucket_once_though_the_job_is_killed(gateway, start, tmp_path):
    """While a gateway puts files there and removes what was read: none goes that is asked
    for again, the newest stays, and what its checkpoint has is said anew where the mark
    is lost."""
    gateway.put(1)
    job = start()
    reads(job, gateway, 1)
    for first in range(11, 101, 10):
        gateway.put(first)
        gateway.look()
    reads(job, gateway, 2)
    job.kill()
    job.wait()
    gateway.put(101)
    gateway.look()
    job = start()
    reads(job, gateway, 3)
    eventually(lambda: gateway.look() == 0, "all of it read", seconds=MINUTES)
    assert gateway.counted() == gateway.made.produced
    assert gateway.consumers.behind["mine"].missed_files == 0
    gateway.put(111)
    eventually(lambda: gateway.look() == 0, "the last one, too", seconds=MINUTES)
    eventually(gateway.all_committed, "Spark has written that down", seconds=MINUTES)
    job.kill()
    job.wait()
    newest = [max(path.name for path in gateway.made.path.iterdir())]
    assert gateway.there() == newest
    gateway.bucket.remove(".gateway-consumer-mine")
    assert gateway.look() == 1
    said = ["mine", "--checkpoint", str(tmp_path / "mine-checkpoint")]
    assert main(["spool", "done", *said, "--config", str(gateway.file)]) == 0
    assert gateway.look() == 0
    assert gateway.counted() == gateway.made.produced
    assert gateway.there() == newest
