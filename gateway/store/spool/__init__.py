"""Parquet files for Spark, made of sealed journal segments, each exactly once.

spool      the thread
publisher  one segment becomes one file
published  which segments have become files; with `mending`
writing    the file of one segment; with `decoding`, `columns`, `parquet`
processes  where that happens; with `process`, which runs in one
uploads    files on their way to a bucket
parts      parts of them, where two pasts have one name
levels     how full spool and disk are
expiry     the end of archived files
retained   what readers still need of them; with `selection`
"""

from gateway.store.names import file_name, last_lsn, parse_file_name
from gateway.store.spool.levels import Level
from gateway.store.spool.published import PublishedFiles
from gateway.store.spool.publisher import Published, Publisher
from gateway.store.spool.spool import Spool

__all__ = [
    "Level",
    "Published",
    "PublishedFiles",
    "Publisher",
    "Spool",
    "file_name",
    "last_lsn",
    "parse_file_name",
]
