"""Tables of Delta and Iceberg in a test: spool and checkpoint are played, the rest is real."""

import importlib.util
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from gateway.audit import audit
from gateway.config import model
from gateway.sinks.delta import kind as delta
from gateway.sinks.iceberg import kind as iceberg
from gateway.spark.commit.commits import CommitSink
from gateway.spark.commit.formats import Format
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.sink import Committed, Parts
from gateway.store.directories import Directories
from gateway_testkit.settings import options_of
from played_spark import Stream
from small_s3 import SmallS3

KINDS: dict[str, Format] = {"delta": delta, "iceberg": iceberg}

MARKS = [
    pytest.mark.spark,
    pytest.mark.needs_maven,
    pytest.mark.skipif(
        not all(one.fits(pyspark.__version__) for one in KINDS.values()),
        reason=f"no jars fit Spark {pyspark.__version__}; `make long ONLY=lowest` has one they fit",
    ),
]

ONLY_DELTA = pytest.mark.parametrize("sink", ["delta"], indirect=True)
ONLY_ICEBERG = pytest.mark.parametrize("sink", ["iceberg"], indirect=True)

SIZE = 10


def lost(_table: Any) -> dict[str, Any]:
    """What a table says whose ledgers somebody's maintenance has removed."""
    return {}


def reached(server: SmallS3) -> model.S3:
    return options_of(
        model.S3,
        endpoint=server.url,
        region="eu",
        access_key_id="k",
        secret_access_key="s",
    )


@dataclass
class World(Stream):
    """A spool, a checkpoint, and tables of one format."""

    spark: Any
    config: SimpleNamespace
    done: list[Committed] = field(default_factory=list)

    @property
    def kind(self) -> Format:
        return KINDS[self.config.spark.sink]

    def sink(self) -> Any:
        made = self.kind.make(
            Parts(self.config, self.spark, self.checkpoint, Lake(), self.done.append)
        )
        assert isinstance(made, CommitSink)
        made._point = self.point
        return made

    def events(self) -> Any:
        return self.kind.tables(self.config, self.spark)[0]

    def check_complete(self) -> None:
        """The table has each event of the spool once, says the audit, too; so has `stats`."""
        events, stats = self.kind.tables(self.config, self.spark)
        found = Counter((r.node, r.lsn) for r in events.rows().collect())
        assert found == self.spool.produced
        assert events.open().committed == stats.open().committed
        counted = stats.rows().groupBy().sum("events").collect()[0][0]
        assert counted == len(self.spool.produced)
        reader = {"delta": "deltalake", "iceberg": "pyiceberg"}[self.config.spark.sink]
        if importlib.util.find_spec(reader) is not None:
            report = audit(Directories.under(self.config.data_dir))
            assert report.complete, report


def check_both(world: World, beside: World) -> None:
    """Every event of both jobs is in the one table, once, and the audit of each complete."""
    rows = world.events()._all_rows().select("node", "lsn").collect()
    found = Counter((row.node, row.lsn) for row in rows)
    assert found == world.spool.produced + beside.spool.produced
    world.check_complete()
    beside.check_complete()
