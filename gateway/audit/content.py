"""Events that their sender sent twice: the same place of the same file, the same text.

A shipper that lost its connection before the acknowledgement sends its window again.
That is no fault of ours and can not be seen from lsns; it can be seen from what Beats
write into their events: agent, file and offset.  Rows that the Spark job has told
(flaw `resent`) lie in quarantine and are not looked at.

A day (of arrival) is looked at by itself, so that memory is that of a day's keys.  With any
sink, files are in a folder of their protocol and day, or else are looked at together.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gateway.audit.lake import Problem, Unusable, reading
from gateway.audit.remote import Access, Place, opened
from gateway.audit.sinks import table_files
from gateway.tables import QUARANTINE

_PLACE = ["agent_id", "log_file_path", "log_offset"]
_KEY = [*_PLACE, "message"]
_DAY = re.compile(r".*/protocol=[^/]*/date=[^/]*/")
_BATCH_ROWS = 1 << 17
_MOST_EXAMPLES = 20


@dataclass(slots=True)
class Resent:
    """The result of the search."""

    placed: int = 0
    """Rows that name their place."""
    copies: int = 0
    """How many of them are there once too often."""
    examples: list[str] = field(default_factory=list)
    vanished: set[Place] = field(default_factory=set)
    """Files that were gone when they were read: compacted meanwhile."""
    problems: list[Problem] = field(default_factory=list)


def find_resent(
    lake: Path, *, node: str | None = None, access: Access | None = None
) -> Resent:
    """Look through the tables, at the rows of all nodes or of one.  Raises OSError.

    *access* is how to reach those in object storage.
    """
    found = Resent()
    days: dict[str, list[Place]] = defaultdict(list)
    for place, _ in table_files(lake, access):
        if isinstance(place, Path) and place.is_relative_to(lake / QUARANTINE):
            continue
        day = _DAY.match(str(place))
        days[day[0] if day else ""].append(place)
    # The current day's files are rewritten all the time, and gone soon.
    for _, files in sorted(days.items(), key=_date, reverse=True):
        # First by place alone: texts are long, and few places are there twice.
        rows = _table(files, _PLACE, found, node)
        if rows is None:
            continue
        found.placed += rows.num_rows
        twice = _counted(rows, _PLACE)
        if not twice.num_rows:
            continue
        again = Resent(vanished=found.vanished)  # problems are known
        texts = _table(files, _KEY, again, node, among=twice)
        if texts is not None:
            _add(found, _counted(texts, _KEY))
    return found


def _date(one: tuple[str, object]) -> str:
    return one[0].rpartition("/date=")[2]


def _add(found: Resent, twice: pa.Table) -> None:
    found.copies += sum(count - 1 for count in twice["n"].to_pylist())
    for row in twice.slice(0, max(0, _MOST_EXAMPLES - len(found.examples))).to_pylist():
        found.examples.append(
            f"agent {row['agent_id']}, {row['log_file_path']} at {row['log_offset']}:"
            f" {row['n']} times"
        )


def _counted(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The keys that are there more than once, and how often (`n`)."""
    groups = rows.group_by(list(keys)).aggregate([([], "count_all")])
    groups = groups.rename_columns([*groups.column_names[:-1], "n"])
    return groups.filter(pc.greater(groups["n"], 1)).select([*keys, "n"])


def _table(
    files: Sequence[Place],
    columns: Sequence[str],
    found: Resent,
    node: str | None,
    among: pa.Table | None = None,
) -> pa.Table | None:
    """The columns of the rows that name their place, or of those in *among*."""
    parts = [part for path in files for part in _parts(path, columns, found, node)]
    if among is not None:
        keys = among.select(_PLACE)
        parts = [
            part.join(keys, _PLACE, join_type="inner") for part in parts if len(part)
        ]
    return pa.concat_tables(parts) if parts else None


def _parts(
    path: Place, columns: Sequence[str], found: Resent, node: str | None
) -> Iterator[pa.Table]:
    wanted = list(columns) if node is None else [*columns, "node"]
    try:
        with reading(path), pq.ParquetFile(opened(path)) as file:
            if not set(wanted) <= set(file.schema_arrow.names):
                return
            for batch in file.iter_batches(_BATCH_ROWS, columns=wanted):
                rows = pa.table(batch)
                if node is not None:
                    mine = pc.equal(rows["node"].cast(pa.string()), node)
                    rows = rows.filter(mine).select(columns)
                known = pc.and_(
                    rows["agent_id"].is_valid(), rows["log_offset"].is_valid()
                )
                yield rows.filter(known)
    except FileNotFoundError:
        found.vanished.add(path)
    except Unusable as why:
        found.problems.append(Problem(str(path), str(why)))
