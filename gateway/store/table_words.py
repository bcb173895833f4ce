"""How far a node is in a table of Delta or Iceberg on this machine's file system, as its
last commits say.

    Delta      TABLE/_delta_log/N.json             commitInfo.userMetadata
    Iceberg    TABLE/metadata/vN.metadata.json     snapshots[].summary["gateway.ledger"]

The Spark job puts its ledger there.  A node that lost its disk reads it as plain JSON, so
that it gives no lsn again which the table has.  Tables elsewhere, and catalogs that are no
folders, are not seen.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from gateway.config import Config

__all__ = ["TablePlace", "last_in", "last_lsn", "table_of"]

_COMMIT = re.compile(r"(\d{20})\.json")
_METADATA = re.compile(r"v(\d+)(\.gz)?\.metadata\.json(\.gz)?")
_CATALOG = "lake"
"""Iceberg's where none is named: folders below the lake (`gateway.spark.formats`)."""
_LEDGER = "gateway.ledger"
_COMMITS = 50
"""So many are looked at; others than the job commit, too."""
_LEDGERS = 3
"""A compaction beside the job carries one that is older than the job's next."""
_MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A folder that has a table, or will have one."""

    sink: str
    """`delta` or `iceberg`."""
    path: Path


def table_of(config: Config) -> TablePlace | None:
    """Where the job's table is, if that can be seen from here."""
    spark, lake = config.spark, config.data_dir / "lake"
    if spark.sink == "delta":
        path = _local(spark.table or str(lake / "delta" / "events"))
        return None if path is None else TablePlace("delta", path)
    if spark.sink != "iceberg":
        return None
    catalog, *parts = (spark.table or f"{_CATALOG}.gateway.events").split(".")
    key = f"spark.sql.catalog.{catalog}"
    if key in spark.conf:
        if str(spark.conf.get(f"{key}.type")) != "hadoop":
            return None
        warehouse = _local(str(spark.conf.get(f"{key}.warehouse", "")))
    else:
        warehouse = lake / "iceberg" if catalog == _CATALOG else None
    return (
        None if warehouse is None else TablePlace("iceberg", warehouse.joinpath(*parts))
    )


def _local(place: str) -> Path | None:
    url = urlsplit(place)
    if url.scheme not in ("", "file") or url.netloc not in ("", "localhost"):
        return None
    path = Path(place if not url.scheme else unquote(url.path))
    return path if path.is_absolute() else None


def last_lsn(node: str, place: TablePlace) -> int:
    """The last lsn of a node that a table says it has; 0 if it says none.

    Raises OSError, and ValueError for what is no such table's.
    """
    ledgers = (_of_delta if place.sink == "delta" else _of_iceberg)(place.path)
    try:
        return max((last_in(ledger, node) for ledger in ledgers), default=0)
    except (AttributeError, TypeError, RecursionError) as why:
        raise ValueError(f"{type(why).__name__}: {why}") from None


def last_in(ledger: Any, node: str) -> int:
    """The last lsn of a node that is committed, by a ledger of any form."""
    spans = ledger.get("committed", {}).get(node, [])
    # By incarnation since form 3.
    if isinstance(spans, dict):
        spans = [span for each in spans.values() for span in each]
    return max((int(last) for _, last in spans), default=0)


def _numbered(folder: Path, form: re.Pattern[str]) -> list[Path]:
    """The files there whose names fit, the one with the highest number first."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    found = [(int(match[1]), name) for name in names if (match := form.fullmatch(name))]
    return [folder / name for _, name in sorted(found, reverse=True)]


def _read(path: Path) -> bytes:
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise ValueError(f"{path.name} has {size} bytes")
    data = path.read_bytes()
    if ".gz" not in path.suffixes:
        return data
    with gzip.open(path) as file:
        return file.read(_MOST_BYTES)


def _of_delta(path: Path) -> Iterator[Any]:
    found = 0
    for commit in _numbered(path / "_delta_log", _COMMIT)[:_COMMITS]:
        for line in _read(commit).splitlines():
            if b'"commitInfo"' not in line:
                continue
            words = json.loads(line).get("commitInfo", {}).get("userMetadata")
            if (ledger := _ledger(words)) is not None:
                yield ledger
                found += 1
        if found >= _LEDGERS:
            return


def _of_iceberg(path: Path) -> Iterator[Any]:
    for metadata in _numbered(path / "metadata", _METADATA)[:1]:
        for snapshot in json.loads(_read(metadata)).get("snapshots") or ():
            ledger = _ledger(snapshot.get("summary", {}).get(_LEDGER))
            if ledger is not None:
                yield ledger


def _ledger(words: Any) -> Any:
    """What the words of a commit say, if they are the job's."""
    if not isinstance(words, str) or '"committed"' not in words:
        return None
    try:
        found = json.loads(words)
    except ValueError:
        return None  # somebody else's
    return found if isinstance(found, dict) else None
