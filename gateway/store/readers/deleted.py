"""Deletions from the tables on purpose: a part of the ledger, in files of its own.

    lake/.gateway/deleted/expired.json      the days that `spark.retention` has removed, in one
    lake/.gateway/deleted/delete-….json     a deletion on request, each in its own

Each is written before the first row goes, so the name of a missing row is found here.  What
is named here is in no table, or will be in none.  The job leaves it out where it comes again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from gateway.sdk.disk import Disk, replace_file
from gateway.store.lsns import Lsns
from gateway.store.readers.lake import INTERNAL, Lsn
from gateway.tables import STATS

EXPIRED = "expired"
_FORMAT = 1
_Span = tuple[Lsn, Lsn]


class Rewritten(msgspec.Struct, frozen=True):
    """A file of the archive in which events were redacted."""

    was: str
    """The digest of its events before (`gateway.store.digests`)."""
    now: str
    """And now."""


class Deletion(msgspec.Struct, frozen=True):
    """Events that are in no table on purpose."""

    id: str
    kind: Literal["expired", "asked"]
    who: str
    at: float
    """When it began, in seconds since the epoch."""
    reason: str
    where: str = ""
    """The shape of what was asked for: its texts and numbers are left out."""
    where_hash: str = ""
    """SHA-256 of `salt` and the whole of it, by which who has it can tell."""
    salt: str = ""
    events: dict[str, dict[str, list[_Span]]] = {}
    """The first and last lsn of each range, by node and incarnation."""
    days: dict[str, list[tuple[int, int]]] = {}
    """The days that have gone, as ordinals, by table; of `expired` alone."""
    counts: dict[str, int] = {}
    """How many rows it found, by place."""
    done: bool = True
    """False: it has begun, and the next call goes on."""
    stats: list[str] = []
    """The counts that are taken back: what file N below `counts_of` is called in its table."""
    files: dict[str, list[Rewritten]] = {}
    """The rewritten files of the archive, by name."""
    format: int = _FORMAT


def folder_of(lake: Path) -> Path:
    """Where they are."""
    return lake / INTERNAL / "deleted"


def counts_of(lake: Path, name: str) -> Path:
    """Where a deletion has the counts that it takes back, until they are in their table."""
    return folder_of(lake) / f"{name}.counts"


def digests_before(found: Iterable[Deletion]) -> dict[str, str]:
    """The digest of events before the first deletion that rewrote a file, by the present one."""
    # In no order: one that was cut off goes on after later ones, and clocks are set back.
    was = {
        each.now: each.was
        for one in found
        for versions in one.files.values()
        for each in versions
    }
    first: dict[str, str] = {}
    for now, one_before in was.items():
        before = one_before
        while before in was:
            before = was[before]
        first[now] = before
    return first


def deletions(lake: Path) -> list[Deletion]:
    """All of them, the oldest first.

    Raises OSError, and ValueError for a file that is damaged or of a newer version.
    """
    found = []
    for path in sorted(folder_of(lake).glob("[!.]*.json")):
        with contextlib.suppress(FileNotFoundError):
            found.append(_parsed(path.read_bytes(), path))
    return sorted(found, key=lambda one: one.at)


def stamps(lake: Path) -> list[tuple[str, int, int]]:
    """Stamps of the files, to read them again only once there are others.  Raises OSError."""
    return [
        (path.name, stat.st_mtime_ns, stat.st_size)
        for path in sorted(folder_of(lake).glob("[!.]*.json"))
        for stat in [path.stat()]
    ]


def unfinished(lake: Path) -> list[Deletion]:
    """Deletions that were begun and have not ended.  Raises as `deletions`."""
    return [one for one in deletions(lake) if not one.done]


def load(disk: Disk, lake: Path, name: str) -> Deletion | None:
    """One of them; None if there is none.  Raises as `deletions`."""
    path = folder_of(lake) / f"{name}.json"
    return _parsed(disk.read(path), path) if disk.exists(path) else None


def save(disk: Disk, lake: Path, deletion: Deletion) -> None:
    """Durably, in one step.  Raises OSError."""
    folder = folder_of(lake)
    disk.make_directory(folder)
    data = msgspec.json.format(msgspec.json.encode(deletion), indent=1)
    path = folder / f"{deletion.id}.json"
    replace_file(disk, path, [data, b"\n"]).close()


def expired_days(found: Iterable[Deletion]) -> int:
    return Lsns(
        span
        for one in found
        for table, days in one.days.items()
        if table != STATS
        for span in days
    ).size


def _parsed(data: bytes, path: Path) -> Deletion:
    try:
        found = msgspec.json.decode(data, type=Deletion)
    except msgspec.DecodeError as why:
        raise ValueError(f"{path}: {why}") from None
    if found.format != _FORMAT:
        raise ValueError(
            f"{path} has format {found.format}, this version knows {_FORMAT}: a newer"
            " version of gateway wrote it"
        )
    return found


def lsns_of(found: Iterable[Deletion], node: str, incarnation: str | None) -> Lsns:
    """The lsns of a node in them; of any incarnation, if that is None."""
    return Lsns(
        span
        for one in found
        for each, spans in one.events.get(node, {}).items()
        if incarnation is None or each in ("", incarnation)
        for span in spans
    )
