"""Parquet for Spark: `Spool` publishes journal segments, the names say what is in."""

from gateway.store.spool.catalog import Catalog
from gateway.store.spool.names import file_name, last_lsn, parse_file_name
from gateway.store.spool.spool import Level, Published, Publisher, Settings, Spool

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
