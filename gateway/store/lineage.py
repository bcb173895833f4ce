"""Whether a node's lsns were given by somebody else before this start: by another copy of
its directory, or by this one before an older copy of it was put back.

What can tell are the tables, the newest file in spool, archive and bucket, the word that
the last one has left there, and the directory's own identity
(`gateway.store.incarnation`).  The start goes on behind all of them; what is told here is
what an operator has to see to.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gateway.sdk.disk import Disk
from gateway.store.incarnation import Incarnation
from gateway.store.lake import committed
from gateway.store.mark import Mark
from gateway.store.names import parse_file_name
from gateway.store.spool import Catalog
from gateway.store.spool.catalog_lines import Entry
from gateway.store.table_words import TablePlace, anybody
from gateway.store.table_words import last_lsn as last_in_table
from gateway.store.word import UNDECIDED, Word

OLDER = (
    "the tables have events of node {node} up to lsn {there}, and this directory knew of "
    "none behind {here}: it is an older copy, or lost its catalog and mark.  It goes on "
    "behind them.  If it was put back, what was acknowledged since and is in no table is "
    "lost: `gateway audit` says what"
)
_STRANGER = (
    "{path} was published by incarnation {other} of node {node}, of which this one, {this}, "
    "knows nothing: an older copy of the directory was put back, or two gateways have this "
    "name.  It goes on behind that file; give one of two gateways another `node`"
)

_TAKEN_OVER = (
    "another gateway took this node's name over since incarnation {before} had it here; it "
    "goes on as {this}, from lsn {first} on.  What was acknowledged here under lsns that "
    "the other one has given, too, is in no table: `gateway audit --acknowledged` says what"
)


_FORGOT = (
    "incarnation {before} of this directory had acknowledged lsns that it does not know any "
    "more: it is an older copy, or its disk has lost what it synced.  It goes on as {this}, "
    "from lsn {first} on"
)
_END_UNKNOWN = (
    ".  What was acknowledged since and is in no file is lost, and nobody knows how much "
    "that is: `gateway audit` says so until it is accepted"
)

_LOST = (
    "{path}: incarnation {before} had acknowledged lsns up to {last} when it wrote that, and "
    "{journal} knows nothing of it: its disk was lost, or an older copy of it was put back.  "
    "It goes on as {this}, from lsn {first} on.  What was acknowledged since and is in no "
    "file is lost: `gateway audit` says what is missing"
)

_HEARD = (
    "node {node} of {url}: incarnation {before} had acknowledged lsns up to {last} with "
    "`ack: {ack}` when it was last heard of, at {at}, and {end}.  This directory, {path}, "
    "does not have all of it; it goes on as incarnation {this}, from lsn {first} on.  {rest}"
)


@dataclass(frozen=True, slots=True)
class Known:
    """What a start knows of the node's lsns."""

    here: int
    """The last one that its own disk says was given."""
    uploaded: int
    """The last one in a file that it has seen here, in a table, or in the bucket."""
    first: int
    """Where it goes on."""


def in_tables(node: str, lake: Path, of: Callable[[str], bool] = anybody) -> int:
    """The last lsn that the Spark job says it has put into the tables, *of* whom of the
    node's incarnations; 0 if unknown.
    """
    with contextlib.suppress(OSError, ValueError):
        lives = committed(lake).get(node, {}).items()
        return max(lsns.last for by, lsns in lives if of(by))
    return 0


def in_table(
    node: str,
    place: TablePlace | None,
    tell: Callable[[str], None],
    of: Callable[[str], bool] = anybody,
) -> int:
    """Likewise, by the table's own commits, if it can be seen; *tell* why not."""
    if place is None:
        return 0
    try:
        return last_in_table(node, place, of)
    except (OSError, ValueError) as why:
        tell(
            f"the table at {place.path} can not be read, so this start goes on without"
            f" what it says: {type(why).__name__}: {why}"
        )
        return 0


def heard_of(
    said: Word | None, url: str, node: str, this: Incarnation, path: Path, known: Known
) -> str | None:
    """What the word knows of who had the node's name before, and *this* does not go on
    from all of it; a sentence for people, if so.
    """
    before = None if said is None else said.reached
    if before is None or before.is_behind(this, known.here):
        return None
    if before.all_told and before.lsn < before.since:
        return None  # it has acknowledged nothing
    first = max(known.uploaded + 1, before.since)
    lacking = (
        f"Of lsns {first} to {before.lsn} there is no file in the bucket: they were "
        f"acknowledged by {node} with `ack: {before.ack}` before its disk was lost, and "
        "unless the tables have them they are lost"
        if first <= before.lsn
        else "All of it is in the bucket, or was"
    )
    return _HEARD.format(
        node=node,
        url=url,
        before=before.incarnation or "unknown",
        last=before.lsn,
        ack=before.ack,
        at=datetime.fromtimestamp(before.at, UTC).isoformat(timespec="milliseconds"),
        end=(
            "it has acknowledged nothing behind that"
            if before.all_told
            else "what it has acknowledged behind that is not known to anybody"
        ),
        path=path,
        this=this.id or "unknown",
        first=known.first,
        rest=lacking,
    )


def lost(
    marked: Path, mark: Mark, this: Incarnation, journal: Path, first_lsn: int
) -> str:
    """A sentence for people: *this* has nothing of the journal that wrote the *mark*."""
    return _LOST.format(
        path=marked,
        before=mark.incarnation,
        last=mark.durable,
        journal=journal,
        this=this.id or "unknown",
        first=first_lsn,
    )


def go_on(
    before: Incarnation | None,
    journal: Path,
    disk: Disk,
    catalog: Catalog,
    first_lsn: int,
    *,
    fenced: int | None = None,
    forgot: bool = False,
    lost: bool = False,
) -> tuple[Incarnation, str | None]:
    """Who goes on from *first_lsn*, and what there is to tell if somebody else began.

    *fenced*: the node's name was another gateway's meanwhile, and what *before* puts into
    the bucket behind that lsn is refused, or `word.UNDECIDED`; *forgot*: it has given lsns
    that this directory does not know; *lost*: nobody knows which.
    """
    this, told = _go_on(
        before, journal, disk, catalog, first_lsn, fenced=fenced, forgot=forgot
    )
    if lost and before is not None:
        this = msgspec.structs.replace(this, lost=(*this.lost, before.id))
        told = f"{told}{_END_UNKNOWN}"
    return this, told


def _go_on(
    before: Incarnation | None,
    journal: Path,
    disk: Disk,
    catalog: Catalog,
    first_lsn: int,
    *,
    fenced: int | None,
    forgot: bool,
) -> tuple[Incarnation, str | None]:
    directory = disk.identity(journal)
    if before is not None and before.lives_in(directory):
        if fenced is not None or forgot:
            # What is refused under its id is published under ours.
            begin = first_lsn if fenced in (None, UNDECIDED) else fenced + 1
            this = Incarnation.new(min(first_lsn, begin), directory, before)
            return this, (_FORGOT if fenced is None else _TAKEN_OVER).format(
                before=before.id, this=this.id, first=first_lsn
            )
        if directory[1] in (0, before.generation):
            return before, None
        # An earlier version wrote it.
        return msgspec.structs.replace(before, generation=directory[1]), None
    if before is None:
        before = in_lines(catalog)
    this = Incarnation.new(first_lsn, directory, before)
    if before is None:
        return this, None
    return this, (
        f"{journal} was copied, moved or restored since incarnation {before.id}; it goes "
        f"on as {this.id}, from lsn {first_lsn} on.  See to it that no other copy of it "
        "runs under this node's name"
    )


def in_lines(catalog: Iterable[Entry]) -> Incarnation | None:
    """The one whose id is lost, as the catalog tells of it."""
    began: dict[str, int] = {}
    for entry in catalog:
        if entry.incarnation and entry.said:  # else a name alone tells of it
            began.setdefault(entry.incarnation, entry.first)
    if not began:
        return None
    *earlier, last = began
    begins = tuple(began[each] for each in earlier)
    return Incarnation(last, began[last], 0, tuple(earlier), begins=begins)


def saved(
    this: Incarnation, before: Incarnation | None, journal: Path, disk: Disk
) -> Incarnation:
    """Who publishes: *this*, now that it is saved, if it is not *before*.

    A full disk must not prevent a start: the names of segments say who gave their lsns, and
    the next start tries again.
    """
    if this is before:
        return this
    with contextlib.suppress(OSError):
        this.save(journal, disk)
    return this


def strangers(
    this: Incarnation,
    node: str,
    catalog: Catalog,
    directories: Iterable[Path],
    names: Iterable[str],
    disk: Disk,
) -> Iterator[str]:
    """A sentence if the newest file here was published by somebody unknown; *names* are
    those of the node's files.
    """
    files = (
        (parsed.last, parsed.first, one)
        for one in names
        if (parsed := parse_file_name(one))
    )
    _, first, name = max(files, default=(0, 0, ""))
    entry, newest = catalog.find(first), parse_file_name(name)
    if newest is None or (entry is not None and entry.sha256 and entry.name == name):
        return  # its line is ours
    other = newest.incarnation
    for directory in directories:  # Spark's job moves it while we look
        path = directory / name
        if disk.exists(path) and not this.knows(other):
            yield _STRANGER.format(path=path, other=other, node=node, this=this.id)
            return
