"""The interface of a kind of tables: one object for each `spark.sink`.

    gateway/sinks/NAME.py        kind = …       one module, called as the configuration has it
    gateway/sinks/function.py                   for `module:function`

Configuration, daemon, job, audit and commands know kinds of tables only through `Kind`.
Importing a module of `gateway/sinks` must be cheap, because every command does it, and
must not need Spark, because the daemon does it: methods import what they need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.audit.remote import Access
    from gateway.config.spark import Spark
    from gateway.sdk.section import Place
    from gateway.spark.commit.lakedisk import LakeDisk
    from gateway.spark.commit.sink import Parts, Sink
    from gateway.spark.later.days import Rewritten, RowsMade

__all__ = ["NAMES", "PARTITIONS", "Ability", "Kind", "able", "kind_of"]

#: What `spark.sink` may say, `module:function` apart.
NAMES = ("parquet", "delta", "iceberg")
_MODULES = (*NAMES, "function")

#: What tables are divided by.
PARTITIONS = ("protocol", "date")

Ability = Literal[
    "adopt",  # its tables begin with the rows of Parquet folders (gateway spark adopt)
    "bloom",  # files say which values a column does not have (spark.bloom_filters)
    "backfill",  # columns of rows that are there are made anew (gateway spark backfill)
    "compact",  # the small files of days that are over become large ones (spark.compact)
    "deduplicate",  # what a shipper sent again goes to quarantine (spark.deduplicate)
    "elsewhere",  # tasks that do not see the job's disk write it
    "folders",  # `lake/events` and its siblings are folders of Parquet files
    "expire",  # days leave its tables (spark.retention), and rows (gateway spark delete)
    "maintain",  # `gateway spark maintain`
    "partitions",  # others than protocol and date (spark.partition_by)
    "shared",  # several jobs write one table (spark.job)
    "tables",  # rules say which table takes an event (spark.tables)
    "rows",  # its rows are read without Spark: the audit counts them
    "variant",  # spark.body may be VARIANT
]


class Kind(ABC):
    """One kind of tables."""

    name: ClassVar[str]
    """The name in `spark.sink` and `lake/.gateway/sink.json`."""
    extra: ClassVar[str] = "spark"
    """`pip install 'gateway[…]'` brings what it needs."""
    abilities: ClassVar[frozenset[Ability]]
    trigger: ClassVar[str] = "2s"
    """`spark.trigger`, where the configuration says none."""

    def misfits(self, spark: Spark) -> Iterator[tuple[Place, str]]:
        """Places and reasons of keys in the configuration's section that do not agree."""
        if spark.deduplicate and "deduplicate" not in self.abilities:
            needed = " or ".join(able("deduplicate"))
            yield ("deduplicate",), f"needs spark.sink: {needed}, not {spark.sink}"
        kept = {key: one for key, one in spark.retention if one is not None}
        if kept and "expire" not in self.abilities:
            needed = ", ".join(able("expire"))
            yield ("retention", next(iter(kept))), f"needs spark.sink: {needed}"
        if spark.tables and "tables" not in self.abilities:
            needed = " or ".join(able("tables"))
            yield ("tables",), f"needs spark.sink: {needed}, not {spark.sink}"
        if spark.body != "json" and "variant" not in self.abilities:
            why = "few of its readers open a table with VARIANT"
            yield ("body",), f"must be json with spark.sink: {spark.sink}; {why}"
        if spark.job is not None and "shared" not in self.abilities:
            why = "one job alone names and compacts the files of a folder"
            yield ("job",), f"needs spark.sink: {' or '.join(able('shared'))}; {why}"
        if "partitions" not in self.abilities:
            needed = " or ".join(able("partitions"))
            for place, given in spark.partitions():
                if given != [*PARTITIONS]:
                    why = f"needs spark.sink: {needed}, not {spark.sink}"
                    if place[1:]:
                        why += ": one write divides the rows of all tables"
                    yield place, why
        if spark.bloom_filters and "bloom" not in self.abilities:
            needed = " or ".join(able("bloom"))
            yield ("bloom_filters",), f"needs spark.sink: {needed}, not {spark.sink}"

    def settings(self, spark: Any, data_dir: Path, version: str) -> dict[str, str]:
        """The settings that a session of Spark *version* needs; may be none.

        *spark* is the configuration's section.  Raises `gateway.spark.commit.ledger.Broken` where
        it can not be.
        """
        del spark, data_dir, version
        return {}

    def check_spark(self, version: str) -> None:
        """Raise `gateway.spark.commit.ledger.Broken` where Spark *version* can not have it."""
        del version

    @abstractmethod
    def make(self, parts: Parts) -> Sink:
        """The sink that puts the job's batches into the tables.

        Raises `gateway.spark.commit.ledger.Broken` where it can not be.
        """

    def maintain(
        self,
        config: Any,
        spark: Any,
        disk: LakeDisk,
        days: float,
        *,
        thorough: bool = True,
    ) -> Iterator[str]:
        """Compact the tables and remove what is older than *days* and no longer of them.

        If *thorough*, the current day, too, and files that a crash has left and no commit names.
        May run beside the job.  Says what was done, step by step.  Raises
        `gateway.spark.commit.ledger.Broken`, and what Spark raises.
        """
        raise NotImplementedError(self.name)

    def backfill(
        self,
        config: Any,
        spark: Any,
        disk: LakeDisk,
        names: Collection[str],
        tables: Collection[str] = (),
    ) -> Iterator[Rewritten]:
        """Make columns of rows that are in the tables: those of *names*, or those that the
        tables lack; of *tables* alone, where some are named.

        Raises `gateway.spark.commit.partition.Busy`, `gateway.spark.commit.ledger.Broken`,
        OSError, and what Spark raises.
        """
        raise NotImplementedError(self.name)

    def rewrite(
        self, config: Any, spark: Any, disk: LakeDisk, make: RowsMade, word: str
    ) -> Iterator[Rewritten]:
        """Rewrite each day of the tables of events: *make* makes its new rows of the old ones.

        A day changes in one step, also beside the job.  Names of new files have *word* in
        them.  Raises the same as `backfill`.
        """
        raise NotImplementedError(self.name)

    def adopt(
        self, config: Any, spark: Any, disk: LakeDisk, old: Path
    ) -> Iterator[str]:
        """Begin the tables with the rows of the lake of Parquet folders *old*.

        Says what was done.  Raises `gateway.spark.commit.ledger.Broken`, OSError, and what Spark
        raises.
        """
        raise NotImplementedError(self.name)

    def files(
        self, lake: Path, told: Mapping[str, str], access: Access
    ) -> Iterable[tuple[Path | str, str | None]]:
        """The files that have the rows of all tables of events now: path, or URL, of each,
        and how rows of it are deleted that still are in it.

        *told* is what `lake/.gateway/sink.json` says.  Raises OSError,
        ModuleNotFoundError for a library that reads the table, and what that raises.
        """
        raise NotImplementedError(self.name)

    def access(self, spark: Spark) -> Mapping[str, str]:
        """The table's own settings of the object storage that has it: fields of
        `gateway.audit.remote.Access`.
        """
        del spark
        return {}


def kind_of(sink: str) -> Kind:
    """The kind of tables that `spark.sink`, or a lake's `sink.json`, names."""
    name = "function" if ":" in sink else sink
    if name not in _MODULES:
        raise ValueError(f"spark.sink: {sink}: this version has no such kind of tables")
    found: Kind = import_module(f"gateway.sinks.{name}").kind
    return found


def able(ability: Ability) -> list[str]:
    """The names of the kinds that can do this."""
    return [name for name in NAMES if ability in kind_of(name).abilities]
