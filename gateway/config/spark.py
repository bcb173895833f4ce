"""The types of the configuration's section `spark`: the Structured Streaming job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from gateway.config.columns import Column, ColumnName, disagreeing, names
from gateway.config.fields import JvmMemory, OneOrSeveral, SinkName, SparkValue
from gateway.config.tables import TableByRule, TableName, disagreeing_tables
from gateway.sdk.endpoint import Tcp
from gateway.sdk.fields import ByteCount, Count, FolderPath, Listen, Switch, Text
from gateway.sdk.section import Place, Reload, Section
from gateway.sdk.units import Time
from gateway.sink import PARTITIONS, kind_of

MiB = 2**20
GiB = 2**30
MINUTE = 60.0
HOUR = 3600.0

Kept = Annotated[float, Time("1d", "36500d")] | None


class SparkAdmin(Section):
    """The job's own health and metrics; `admin.token` is asked for here, too."""

    listen: Listen | None = Field(
        default="tcp:127.0.0.1:8081",
        validate_default=True,
        description="A TCP port of the job; null: none",
    )

    def misfits(self) -> Iterator[tuple[Place, str]]:
        if not isinstance(self.listen, Tcp | None):
            yield ("listen",), f"must be tcp:PORT or tcp:HOST:PORT, not {self.listen}"


class SparkAudit(Section):
    """Audits that run by themselves beside the job, and give way to everything else."""

    every: Annotated[float, Time("10m", "365d")] | None = Field(
        default=24 * HOUR, description="From one to the next (time); null: none"
    )
    time_limit: Annotated[float, Time("1s", "7d")] = Field(
        default=HOUR, description="One ends that takes longer (time)"
    )
    read_bytes: ByteCount | None = Field(
        default=64 * GiB,
        description="One ends that has read more from disks (size, null: any)",
    )
    silent_after: Annotated[float, Time("1m", "30d")] = Field(
        default=300.0,
        description="A gateway's word vouches for so long for what is in its journal alone"
        " (time)",
    )


class Retention(Section):
    """How long rows stay in the tables: whole days go, once all of one is older."""

    events: Kept = Field(default=None, description="Of events (time, null: for ever)")
    quarantine: Kept = Field(
        default=None, description="Of flawed events (time, null: for ever)"
    )
    stats: Kept = Field(default=None, description="Of counts (time, null: for ever)")


class Spark(Section):
    """The Structured Streaming job."""

    reload: ClassVar = Reload("job")

    master: Text = Field(default="local[2]", description="Where Spark runs")
    trigger: Annotated[float, Time("0s", "24h")] = Field(
        default=2.0,
        description="A micro-batch at most this often (time); delta, iceberg: 1m",
    )
    sink: SinkName = Field(
        default="parquet",
        description="Kind of tables: parquet, delta, iceberg, or module:function",
    )
    table: Text | None = Field(
        default=None,
        description="Delta: the table's URL; Iceberg: catalog.namespace.table",
    )
    job: Text | None = Field(
        default=None,
        description="delta, iceberg: name of this job, where several write one table",
    )
    jars_directory: FolderPath | None = Field(
        default=None,
        description="Jars of delta or iceberg, in place of Maven Central",
    )
    body: Literal["json", "variant", "both"] = Field(
        default="json",
        description="Column body: the JSON as text, as VARIANT, or both",
    )
    columns: dict[ColumnName, OneOrSeveral[Column] | None] = Field(
        default={}, description="More columns out of the JSON; null drops a usual one"
    )
    schemas: FolderPath | None = Field(
        default=None,
        description="Avro and Protobuf schemas of events behind a registry's header",
    )
    schema_registry: Text | None = Field(
        default=None,
        description="URL of a registry's REST, whose schemas are fetched there",
    )
    tables: dict[TableName, TableByRule] = Field(
        default={},
        description="Tables by rule: an event belongs to the first that takes it",
    )
    partition_by: list[Text] = Field(
        default=[*PARTITIONS],
        description="delta, iceberg: partitions of a table that begins",
    )
    most_partitions: Count = Field(
        default=1000,
        description="delta, iceberg: a batch with rows of more is told of (count)",
    )
    bloom_filters: list[Text] = Field(
        default=[],
        description="iceberg: columns in which readers look for single values",
    )
    stats_window: Annotated[float, Time("1s", "30d")] = Field(
        default=MINUTE, description="Width of a window in lake/stats (time)"
    )
    deduplicate: Switch = Field(
        default=False,
        description="Beats' events that come again go to quarantine, flawed resent",
    )
    deduplicate_by: Literal["contents", "place"] = Field(
        default="contents",
        description="Doubles share their place and all contents, or place and message",
    )
    deduplicate_horizon: Annotated[float, Time("1s", "7d")] = Field(
        default=HOUR, description="How far back deduplicate looks (time)"
    )
    compact: Switch = Field(
        default=True,
        description="Rewrite small files, and all of a day once it is over",
    )
    retention: Retention = Field(
        default_factory=Retention, description="When days leave the tables for good"
    )
    max_bytes_per_trigger: ByteCount = Field(
        default=256 * MiB, description="Bytes of events in one micro-batch (size)"
    )
    driver_memory: JvmMemory = Field(
        default="1g", description="Java heap of the job: 512m, 1g or 1GiB"
    )
    admin: SparkAdmin = Field(
        default_factory=SparkAdmin, description="Health and metrics of the job"
    )
    audit: SparkAudit = Field(
        default_factory=SparkAudit, description="Proof that all is there, by itself"
    )
    ui: Switch = Field(default=False, description="Spark's own web page, on port 4040")
    conf: dict[str, SparkValue] = Field(
        default={}, repr=False, description="More of Spark's settings, by their names"
    )

    def misfits(self) -> Iterator[tuple[Place, str]]:
        yield from kind_of(self.sink).misfits(self)
        yield from self._unknown_columns()
        if self.schema_registry is not None:
            if self.schemas is None:
                yield ("schema_registry",), "needs schemas: the folder that keeps them"
            if not self.schema_registry.startswith(("http://", "https://")):
                yield ("schema_registry",), "must begin with http:// or https://"
        for name, given in self.columns.items():
            if given is not None:
                for place, why in disagreeing(name, given):
                    yield ("columns", name, *place), why
        for place, why in disagreeing_tables(self.tables, self.columns):
            yield ("tables", *place), why

    def partitions(self) -> Iterator[tuple[Place, list[str]]]:
        """Each place that says by which partitions a table begins, and these."""
        yield ("partition_by",), self.partition_by
        for name, table in self.tables.items():
            if table.partition_by is not None:
                yield ("tables", name, "partition_by"), table.partition_by

    def _unknown_columns(self) -> Iterator[tuple[Place, str]]:
        for key, given in (
            *self.partitions(),
            (("bloom_filters",), self.bloom_filters),
        ):
            own = self.tables[str(key[1])].columns if key[1:] else {}
            there = {*names(self.columns), *own}
            for number, one in enumerate(given):
                # Of `days(event_time)` and `bucket(16, host)` the name.
                name = one.rpartition("(")[2].rpartition(",")[2].strip(" )")
                if name not in there:
                    near = get_close_matches(name, sorted(there), 1)
                    or_ = f"; did you mean {near[0]!r}?" if near else "."
                    listed = ", ".join(sorted(there))
                    yield (*key, number), f"no column {name!r}{or_} There are {listed}"

    @model_validator(mode="before")
    @classmethod
    def _in_the_rhythm_of_its_sink(cls, value: object) -> object:
        if isinstance(value, dict) and "trigger" not in value and "sink" in value:
            with suppress(ValueError):  # no such kind, which is told elsewhere
                return {**value, "trigger": kind_of(str(value["sink"])).trigger}
        return value
