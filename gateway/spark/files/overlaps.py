"""Files that have lsns in common with what is in the tables, though one incarnation gave them.

A directory gives no lsn twice under one incarnation.  But a machine that is resumed from a
snapshot of its memory, beside the first one, goes on as the same incarnation.  A directory
that was copied publishes its past again, with other bounds.  So before such a file goes into
the tables its rows are compared with those that tables and archive have.  An event is known by
when it came, and by a digest of its payload:

- Where they are equal it is the same past: what is there is left out, as always.
- From the first row on that differs, it is another past, which goes into the tables as a file
  of its own.  It has an incarnation that is derived of the first one and of these events
  (`gateway.store.node.incarnation.derived`), and says of whom (`gateway.of`).  Files that
  come later of the first one are compared with it, too.
- Where rows can not be read any more that would tell, the file waits in `poison/`, and the
  audit tells what it has as missing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from attrs import define

from gateway.event import DELETED
from gateway.sdk.disk import replace_file
from gateway.spark.files import footers
from gateway.spark.files.not_taken import FILES
from gateway.spark.files.pieces import pieces
from gateway.store import digests
from gateway.store.lsns import Lsns
from gateway.store.names import Life, SpoolFile, hidden_name, parse_file_name
from gateway.store.node import incarnation
from gateway.store.node.incarnation import Record, derived
from gateway.store.objects.bucket import ARCHIVE, Bucket, commit
from gateway.store.readers import deleted

if TYPE_CHECKING:
    from gateway.spark.bucket.inbox import Inbox
    from gateway.spark.commit.lakedisk import LakeDisk
    from gateway.spark.commit.ledger import Ledger
    from gateway.spark.commit.sink import Sink
    from gateway.spark.files.poison import Poison

_log = logging.getLogger("gateway.spark")

_Ints = np.ndarray[Any, np.dtype[np.int64]]


class Overlap(Exception):
    """A batch has files with lsns that are in the tables, or in one another."""

    def __init__(self, files: Collection[SpoolFile]) -> None:
        names = ", ".join(file.name for file in [*files][:4])
        super().__init__(f"files with events that others have: {names}")
        self.files = files


class Prints(NamedTuple):
    """Marks by which some events are known, in order of lsn."""

    lsns: _Ints
    times: _Ints
    """When each came, in µs since the epoch."""
    payloads: _Ints
    """A part of the SHA-256 of each payload; 0 if it can not be told."""

    @classmethod
    def of(cls, parts: Iterable[tuple[Any, Any, Any]]) -> Prints:
        """Prints of pieces in any order."""
        each = [np.array(column, np.int64) for column in zip(*parts, strict=True)]
        if not each:
            each = [np.array([], np.int64)] * 3
        lsns, at = np.unique(each[0], return_index=True)
        return cls(lsns, each[1][at], each[2][at])

    def __or__(self, other: Prints) -> Prints:
        both = (np.concatenate(pair) for pair in zip(self, other, strict=True))
        return Prints.of(zip(*both, strict=True))

    def among(self, lsns: Lsns) -> Prints:
        inside = self.are_among(lsns)
        return Prints(*(column[inside] for column in self))

    def are_among(self, lsns: Lsns) -> Any:
        """A mask of the prints that are of these lsns."""
        bounds = np.array(list(lsns), np.int64).reshape(-1, 2)
        if not len(bounds):
            return np.zeros(len(self.lsns), bool)
        at = np.searchsorted(bounds[:, 1], self.lsns)
        inside = at < len(bounds)
        return inside & (bounds[np.minimum(at, len(bounds) - 1), 0] <= self.lsns)


class Rows(NamedTuple):
    """Sets of lsns of a file's rows, as far as others are known by the same names."""

    other: Lsns
    """Rows of another past: they differ from what is there, and are nowhere else."""
    elsewhere: Lsns
    """There, under an incarnation that is derived of theirs."""
    unknown: Lsns
    """Rows that can not be compared: what is there can not be read any more."""


def compared(
    mine: Prints,
    committed: Mapping[Life, Lsns],
    known: Mapping[Life, Prints],
    life: Life,
) -> Rows:
    """*mine* are those of a file of *life*; *committed* and *known* what is in the tables of
    that, and of those derived of it, and what can be read.
    """
    here = np.zeros(len(mine.lsns), bool)
    same, elsewhere, hidden = here.copy(), here.copy(), here.copy()
    for each, lsns in committed.items():
        there, equal = _side_by_side(mine, known.get(each, Prints.of(())))
        hidden |= mine.are_among(lsns) & ~there
        if each == life:
            here, same = there, equal
        else:
            elsewhere |= equal
    unknown = hidden & ~(same | elsewhere)
    return Rows(
        _set(mine.lsns[here & ~same & ~elsewhere & ~unknown]),
        _set(mine.lsns[elsewhere & ~same]),
        _set(mine.lsns[unknown]),
    )


def _side_by_side(mine: Prints, known: Prints) -> tuple[Any, Any]:
    """Masks of the rows of *mine* that are known, and that are equal to what is."""
    if not len(known.lsns):
        nothing = np.zeros(len(mine.lsns), bool)
        return nothing, nothing
    at = np.minimum(np.searchsorted(known.lsns, mine.lsns), len(known.lsns) - 1)
    there = known.lsns[at] == mine.lsns
    prints = known.payloads[at]
    told = (prints != 0) & (mine.payloads != 0)
    equal = there & (known.times[at] == mine.times)
    return there, equal & (~told | (prints == mine.payloads))


def _set(lsns: _Ints) -> Lsns:
    ends = np.flatnonzero(np.diff(lsns) != 1)
    firsts = lsns[np.append(0, ends + 1)] if len(lsns) else lsns
    lasts = lsns[np.append(ends, len(lsns) - 1)] if len(lsns) else lsns
    return Lsns(zip(firsts.tolist(), lasts.tolist(), strict=True))


def print_of(payload: bytes | None) -> int:
    if payload is None:
        return 0
    return number_of(hashlib.sha256(payload).hexdigest())


def number_of(sha256: str | None) -> int:
    """The same of a digest in hex; Spark makes that of a table's rows."""
    return 0 if sha256 is None else int(sha256[:15], 16) or 1


def prints_in(rows: pa.Table) -> Iterator[tuple[Any, Any, Any]]:
    """Prints of rows with `lsn`, `received_at`, `payload`, perhaps `body` and `flaw`.

    The payload of a redacted one can not be told.
    """
    payloads = rows["payload"] if "payload" in rows.column_names else None
    texts = [None] * len(rows) if payloads is None else payloads.to_pylist()
    if "body" in rows.column_names:
        body = rows["body"]
        told = pa.types.is_string(body.type) or pa.types.is_large_string(body.type)
        sent = body.to_pylist() if told else [None] * len(rows)
        texts = [
            text if one is None else one.encode()
            for one, text in zip(sent, texts, strict=True)
        ]
    flaws = rows["flaw"].cast(pa.string()).to_pylist()
    times = rows["received_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    for lsn, at, text, flaw in zip(
        rows["lsn"].to_pylist(), times.to_pylist(), texts, flaws, strict=True
    ):
        gone = flaw is not None and flaw.startswith(DELETED)
        yield lsn, at, 0 if gone else print_of(text)


def prints_of(source: Path | pa.BufferReader, lsns: Lsns) -> Prints:
    """Prints of the events of a spool file that are among these.  Raises what pyarrow raises."""
    names = ["lsn", "received_at", "payload", "flaw"]
    found = Prints.of(())
    with pq.ParquetFile(source, page_checksum_verification=True) as file:
        for rows in pieces(file, names):
            found |= Prints.of(prints_in(rows)).among(lsns)
    return found


def _root(life: Life, ledger: Ledger, said: Mapping[Life, Record]) -> Life:
    """The incarnation of which one is derived, or that itself."""
    record = said.get(life) or ledger.records.get(life)
    return Life(life.node, record.of) if record and record.of else life


def families(
    files: Iterable[SpoolFile], ledger: Ledger, said: Mapping[Life, Record]
) -> dict[Life, list[Life]]:
    """The incarnations of *files*, which have *said* this of themselves; each with that of which
    it is derived, and those that are derived of either.
    """
    found: dict[Life, list[Life]] = {}
    of: dict[Life, list[Life]] = {}
    for life in {file.life for file in files}:
        root = _root(life, ledger, said)
        of.setdefault(root, []).append(life)
        found[life] = list(dict.fromkeys((life, root)))
    for one, record in ledger.records.items():
        if record.of:
            for life in of.get(Life(one.node, record.of), ()):
                if one != life:
                    found[life].append(one)
    return found


def overlapping(
    files: Collection[SpoolFile], ledger: Ledger, said: Mapping[Life, Record]
) -> dict[SpoolFile, dict[Life, Lsns]]:
    """The files of which events are committed, also in their family, or are in another one of
    them; and the lsns of these, by the incarnation that has them.
    """
    family, meeting = families(files, ledger, said), _meeting(files, ledger, said)
    found = {}
    for file in files:
        span = Lsns([(file.first, file.last)])
        there = {
            life: ledger.committed.of_life(life) & span for life in family[file.life]
        }
        if file in meeting:
            there[file.life] = span
        if any(there.values()):
            found[file] = there
    return found


def _meeting(
    files: Collection[SpoolFile], ledger: Ledger, said: Mapping[Life, Record]
) -> set[SpoolFile]:
    """Files that have an event which another one of them may have, also in their family."""
    roots = {file: _root(file.life, ledger, said) for file in files}
    spans: dict[Life, list[tuple[int, int]]] = {}
    for file, root in roots.items():
        spans.setdefault(root, []).append((file.first, file.last))
    twice = {root: Lsns.twice(some) for root, some in spans.items()}
    return {file for file in files if twice[roots[file]].touches(file.first, file.last)}


@define(eq=False, slots=False)
class Overlaps:
    """Settles what overlaps, of one spool; the job's thread alone uses it."""

    _lake: Path
    _spool: Path
    _archive: Path
    _disk: LakeDisk
    _sink: Sink
    _poison: Poison
    _bucket: Bucket | None
    _inbox: Inbox | None
    _point: Callable[[str], None] = lambda _: None

    def __attrs_post_init__(self) -> None:
        self.in_turns: set[str] = set()
        """Files that are to be taken one by one."""

    def settle(self, files: Collection[SpoolFile]) -> None:
        """Compare them, and put what is another past under another name.

        Raises OSError, `BucketError`, and what Spark raises.
        """
        if self._inbox is not None:
            self._inbox.complete(files)
        ledger = self._sink.ledger
        asked = [one for one in deleted.deletions(self._lake) if one.kind == "asked"]
        mine: dict[SpoolFile, Prints] = {}
        there: dict[SpoolFile, dict[Life, Lsns]] = {}
        said: dict[Life, Record] = {}
        for file in files:
            if not (path := self._spool / file.name).exists():
                continue
            # What was deleted is left out by its name, whatever it is.
            span = Lsns([(file.first, file.last)])
            span -= deleted.lsns_of(asked, file.node, file.incarnation)
            mine[file] = prints_of(path, span)
            said |= footers.read(self._spool, [file]).records
            there[file] = {
                life: ledger.committed.of_life(life) & span
                for life in families([file], ledger, said)[file.life]
            }
        self.in_turns |= {file.name for file in _meeting(mine, ledger, said)}
        wanted: dict[Life, Lsns] = {}
        for each in there.values():
            for life, lsns in each.items():
                wanted.setdefault(life, Lsns()).update(lsns)
        known = dict(self._sink.known(wanted))
        for life, lsns in wanted.items():
            found = known.get(life, Prints.of(()))
            lacking = lsns - _set(found.lsns)
            for source in self._in_archives(life, lacking):
                found |= prints_of(source, lacking)
            known[life] = found
        for file, prints in mine.items():
            self._act(file, compared(prints, there[file], known, file.life))

    def _in_archives(self, life: Life, lsns: Lsns) -> Iterator[Path | pa.BufferReader]:
        """Files of the archives with some of these."""
        if not lsns:
            return
        there = self._disk.names(self._archive) if self._archive.is_dir() else ()
        for name in there:
            file = parse_file_name(name)
            if file and file.life == life and lsns.touches(file.first, file.last):
                yield self._archive / name
        if self._bucket is None:
            return
        for one in self._bucket.list(f"{ARCHIVE}/events-{life}-"):
            file = parse_file_name(one.name.removeprefix(f"{ARCHIVE}/"))
            if file and file.life == life and lsns.touches(file.first, file.last):
                yield pa.BufferReader(self._bucket.read(one.name))

    def _act(self, file: SpoolFile, rows: Rows) -> None:
        if rows.unknown:
            self._wait(file, next(iter(rows.unknown))[0])
            return
        if rows.other or rows.elsewhere:
            self._part(file, rows)
        else:
            self._sink.note_compared(file)
        self._sink.drop_holes(file.name)

    def _wait(self, file: SpoolFile, first: int) -> None:
        path = self._spool / file.name
        other = derived(file.incarnation, digests.of_file(path))
        why = FILES["unknown past"].format(first)
        self._poison.move(file, why, SpoolFile(file.node, other, first, file.last))
        _log.error("%s is moved aside: %s", file.name, why)

    def _part(self, file: SpoolFile, rows: Rows) -> None:
        """Have its rows in files of their own: what is another past, and what comes behind,
        under derived incarnations, what is before under its own; not what is there.
        """
        there = self._sink.ledger.committed.of_life(file.life) - rows.other
        left = Lsns([(file.first, file.last)]) - there - rows.elsewhere
        parted = next(iter(rows.other), (file.last + 1, 0))[0]
        # The daemon's: where the job runs alone nobody needs what it imports.
        from gateway.store.spool.parts import derived_part, part_of

        path = self._spool / file.name
        made = []
        own: dict[bytes, bytes] = {}
        if left and incarnation.OF_KEY in digests.metadata_of(path):
            own = {incarnation.FIRST_KEY: str(next(iter(left))[0]).encode()}
        for first, last in left & Lsns([(1, parted - 1)]):
            named = file._replace(first=first, last=last)
            made.append((named, part_of(path, named, own)))
        for first, last in left & Lsns([(parted, file.last)]):
            one, data = derived_part(path, file._replace(first=first, last=last))
            self._delete_there(file, one)
            made.append((one, data))
            _log.error(
                "%s has other events than the tables have under these names: two copies of"
                " a directory or a machine ran as one incarnation. They go into the tables"
                " as incarnation %s: %s",
                *(file.name, one.incarnation, one.name),
            )
        for one, data in made:
            self._put(one, data)
            self._point("put")
        if self._inbox is not None:
            self._inbox.drop(file.name)
        self._disk.unlink(self._spool / file.name)
        self._disk.sync_directory(self._spool)

    def _delete_there(self, file: SpoolFile, other: SpoolFile) -> None:
        """Delete of what is derived of a file what was deleted of that."""
        for one in deleted.deletions(self._lake):
            if one.kind != "asked":
                continue
            lsns = deleted.lsns_of([one], file.node, file.incarnation)
            lsns &= Lsns([(other.first, other.last)])
            if not lsns:
                continue
            events = {node: dict(by) for node, by in one.events.items()}
            events.setdefault(other.node, {})[other.incarnation] = list(lsns)
            new = msgspec.structs.replace(one, events=events, done=False)
            deleted.save(self._disk, self._lake, new)

    def _put(self, file: SpoolFile, data: bytes) -> None:
        if self._bucket is not None:
            commit(self._bucket, file.name, data)
            return
        hidden = self._spool / hidden_name(file.name)
        replace_file(self._disk, hidden, [data]).close()
        self._disk.rename(hidden, self._spool / file.name)
        self._disk.sync_directory(self._spool)
