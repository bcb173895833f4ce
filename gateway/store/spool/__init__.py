"""Parquet files for Spark: `Spool` publishes journal segments; `names` has their names."""

from gateway.store.spool.catalog import Catalog
from gateway.store.spool.levels import Level
from gateway.store.spool.names import file_name, last_lsn, parse_file_name
from gateway.store.spool.publisher import Published, Publisher
from gateway.store.spool.spool import Settings, Spool

__all__ = [
    "Catalog",
    "Level",
    "Published",
    "Publisher",
    "Settings",
    "Spool",
    "file_name",
    "last_lsn",
    "parse_file_name",
]
