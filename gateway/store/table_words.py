"""How far a node is in a table on this machine's file system, as its last commits say.

The Spark job puts its ledger into the words of each commit, where the format has such
(`gateway.sink.Kind.ledgers`).  A node that lost its disk reads it as plain JSON, so that it
gives no lsn again which the table has.  Tables elsewhere, and catalogs that are no folders,
are not seen.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from gateway.sink import kind_of

if TYPE_CHECKING:
    from gateway.config import Config

_MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A folder that has a table, or will have one."""

    sink: str
    """Its kind."""
    path: Path


def table_of(config: Config) -> TablePlace | None:
    """Where the job's table is, if that can be seen from here."""
    path = kind_of(config.spark.sink).folder(config)
    return None if path is None else TablePlace(config.spark.sink, path)


def local(place: str) -> Path | None:
    """The path of a place on this machine, given as path or URL."""
    url = urlsplit(place)
    if url.scheme not in ("", "file") or url.netloc not in ("", "localhost"):
        return None
    path = Path(place if not url.scheme else unquote(url.path))
    return path if path.is_absolute() else None


def anybody(_: str) -> bool:
    """Whatever incarnation it is."""
    return True


def last_lsn(node: str, place: TablePlace, of: Callable[[str], bool] = anybody) -> int:
    """The last lsn of a node that a table says it has, *of* whom of its incarnations; 0 if
    it says none.

    Raises OSError, and ValueError for what is no such table's.
    """
    ledgers = kind_of(place.sink).ledgers(place.path)
    try:
        return max((last_in(ledger, node, of) for ledger in ledgers), default=0)
    except (AttributeError, TypeError, RecursionError) as why:
        raise ValueError(f"{type(why).__name__}: {why}") from None


def last_in(ledger: Any, node: str, of: Callable[[str], bool]) -> int:
    """The last lsn of a node that is committed, by a ledger of any form."""
    lives = ledger.get("committed", {}).get(node, [])
    if not isinstance(lives, dict):  # by incarnation since form 3
        lives = {"": lives}
    found = (int(last) for by, spans in lives.items() if of(by) for _, last in spans)
    return max(found, default=0)


def numbered(folder: Path, form: re.Pattern[str]) -> list[Path]:
    """The files there whose names fit, the one with the highest number first."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    found = [(int(match[1]), name) for name in names if (match := form.fullmatch(name))]
    return [folder / name for _, name in sorted(found, reverse=True)]


def read(path: Path) -> bytes:
    """A file of JSON, unpacked.  Raises OSError, ValueError for one that is too large."""
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise ValueError(f"{path.name} has {size} bytes")
    data = path.read_bytes()
    if ".gz" not in path.suffixes:
        return data
    with gzip.open(path) as file:
        return file.read(_MOST_BYTES)


def ledgers_in(words: Any) -> list[dict[str, Any]]:
    """What the words of a commit say, if they are a job's: its ledger, and in `others` those
    that maintenance has carried on for other jobs of the table.
    """
    if not isinstance(words, str) or '"committed"' not in words:
        return []
    try:
        found = json.loads(words)
    except ValueError:
        return []  # somebody else's
    if not isinstance(found, dict):
        return []
    others = found.pop("others", ())
    return [
        one
        for one in (found, *others)
        if isinstance(one, dict) and isinstance(one.get("committed"), dict)
    ]
