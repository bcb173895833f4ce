"""Verifies spool files: does each hold what its name promises?

Every byte is read: names, footers, the checksum of every page, the schema.  The lsns must
be those of the name, each once and in order, and the payloads those that the file was
written with.  Nothing is written.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.audit.files import runs_in
from gateway.audit.lake import Problem, Unusable, reading
from gateway.event import SCHEMA
from gateway.store.finder import SpoolFile
from gateway.store.lsns import spelled
from gateway.store.names import parse_file_name

_CLOCK_SECONDS = 5.0
_Spans = dict[tuple[str, str], list[SpoolFile]]
"""The files of each incarnation of a node."""


@dataclass(slots=True)
class Verified:
    """The counts of `verify`."""

    files: int = 0
    events: int = 0
    moved: int = 0
    """Files that were taken by the Spark job before they could be read."""
    problems: list[Problem] = field(default_factory=list)


def verify(paths: Iterable[Path]) -> Verified:
    """Check files, and what of directories readers would see.

    Raises FileNotFoundError for a path that is not there, PermissionError.
    """
    done = Verified()
    spans: _Spans = defaultdict(list)
    for path in paths:
        path.stat()
        for one in _public(path):
            try:
                done.events += _verify_one(one, spans, time.time() + _CLOCK_SECONDS)
            except FileNotFoundError:
                done.moved += 1
                continue
            except Unusable as why:
                done.problems.append(Problem(str(one), str(why)))
            done.files += 1
    for files in spans.values():
        done.problems += _overlaps(files)
    return done


def _public(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(one for one in path.iterdir() if not one.name.startswith("."))


def _verify_one(path: Path, spans: _Spans, latest: float) -> int:
    parsed = parse_file_name(path.name)
    if parsed is None:
        raise Unusable("not a name that the gateway gives; it does not belong here")
    file = SpoolFile(path, *parsed)
    spans[file.node, file.incarnation].append(file)
    if path.stat().st_mtime > latest:
        raise Unusable("its modification time lies in the future")
    with reading(path), pq.ParquetFile(path) as content:
        schema, rows = content.schema_arrow, int(content.metadata.num_rows)
    if not schema.equals(SCHEMA):
        raise Unusable(f"its columns are not the gateway's: {_differ(schema)}")
    wanted = file.last - file.first + 1
    if rows != wanted:
        raise Unusable(f"it has {rows} events, its name promises {wanted}")
    _check_lsns(file, runs_in(file))
    return rows


def _differ(schema: pa.Schema) -> str:
    found, wanted = set(schema), set(SCHEMA)
    odd = [f"{field.name} {field.type}" for field in found - wanted]
    lack = [f"no {field.name} {field.type}" for field in wanted - found]
    return ", ".join(sorted(odd) + sorted(lack)) or "their order differs"


def _check_lsns(file: SpoolFile, runs: list[tuple[int, int]]) -> None:
    if runs == [(file.first, file.last)]:
        return
    expected = file.first
    for first, last in runs:
        if first != expected:
            raise Unusable(
                f"where lsn {expected} should be, it has {spelled(first, last)}"
            )
        expected = last + 1
    raise Unusable(f"its lsns end with {expected - 1}")


def _overlaps(files: list[SpoolFile]) -> Iterator[Problem]:
    files.sort(key=lambda file: (file.first, file.last))
    reach: SpoolFile | None = None
    for file in files:
        if reach and file.first <= reach.last and file.path.name != reach.path.name:
            yield Problem(str(file.path), f"it overlaps with {reach.path}")
        if reach is None or file.last > reach.last:
            reach = file
