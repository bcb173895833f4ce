"""Looks for files that can not be read as they were written.

The catalog's lines, journal segments, spool files and the small files in `state/` are read
with what the start reads them with, and nothing is mended.  Payloads are the audit's
business (`gateway audit`): here of spool files only the footers are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from gateway.config import Config
from gateway.doctor.look import Look, fail, ok, warn
from gateway.plugins import installed
from gateway.store.checkpoint import Unreadable, decode_state, saved_names
from gateway.store.directories import Directories
from gateway.store.finder import SegmentFile, list_names, segment_files
from gateway.store.journal import segment
from gateway.store.journal.recovery import DAMAGED
from gateway.store.lsns import spelled
from gateway.store.names import parse_file_name
from gateway.store.node import mark
from gateway.store.node.catalog import CATALOG, look
from gateway.store.spool import mending
from gateway.store.system import statefile
from gateway.store.system.disk import RealDisk

_SHOWN = 20
_AUDIT = "`gateway audit` tells which events are concerned"
_START = (
    f"the next start sets it aside, serves the rest and names what is lost; {_AUDIT}"
)


def examine(config: Config) -> Iterator[Look]:
    places = Directories.of(config)
    for what, found, seen in (
        ("catalog", _catalog, "its lines are whole"),
        ("journal segments", _segments, "their records can be read"),
        ("spool files", _spool, "they are whole, by their footers"),
        ("state", _state, "its small files can be read"),
    ):
        looks = list(found(config, places))
        yield from looks[:_SHOWN]
        if len(looks) > _SHOWN:
            yield fail(what, f"and {len(looks) - _SHOWN} more such files", _AUDIT)
        if not looks:
            yield ok(what, seen)


def _catalog(config: Config, places: Directories) -> Iterator[Look]:
    journal = places.journal_of(config.node)
    path = journal / CATALOG[0]
    try:
        lines = look(journal)  # that a file is where it belongs, segments will say
    except OSError as why:
        advice = "the disk does not give it back: `dmesg`; put back a copy"
        yield fail("catalog", f"{path}: {why.strerror}", advice)
        return
    damaged = lines.damaged_numbers
    if not damaged:
        return
    names = [*list_names(places.spool), *list_names(places.archive)]
    published = _marked(places.state_of(config.node)).published
    try:
        mending.mend(lines.numbered(mending.Entry), config.node, names, published)
    except mending.Damaged as why:
        yield fail("catalog", f"{path}: {why}", "the daemon does not start until then")
        return
    numbers = ", ".join(map(str, damaged[:8]))
    advice = "the next start repairs them from the names of files"
    yield warn("catalog", f"{path}: line {numbers} damaged", advice)


def _marked(state: Path) -> mark.Mark:
    try:
        return statefile.look(state / mark.NAME, mark.Mark) or mark.Mark()
    except OSError:
        return mark.Mark()


def _segments(config: Config, places: Directories) -> Iterator[Look]:
    journal = places.journal_of(config.node)
    what = "journal segments"
    # Read before them: the daemon, if it runs, makes them longer only.
    marked = _marked(places.state_of(config.node))
    for file in segment_files(journal):
        try:
            # One with less than a header is being made, and holds no event yet.
            if file.path.stat().st_size <= segment.HEADER_BYTES:
                continue
            scan = _scan(file, marked)
        except FileNotFoundError:
            continue  # it was published meanwhile
        except segment.OtherFormat as why:
            yield fail(what, f"{file.path}: {why}", "start the version that wrote it")
        except segment.InvalidSegment as why:
            yield fail(what, f"{file.path}: {why}", _START)
        except OSError as why:
            text = f"the disk does not give it back (`dmesg`); {_START}"
            yield fail(what, f"{file.path}: {why.strerror}", text)
        else:
            for one in scan.damage:
                last = one.first_lsn + max(one.events, 1) - 1
                yield fail(
                    what,
                    f"{file.path}: {one}, {spelled(one.first_lsn, last)}",
                    _START,
                )
            for name in sorted(scan.protocols - installed().protocols.keys()):
                yield fail(
                    what,
                    f"{file.path}: has batches of protocol {name!r}, which is not "
                    "installed",
                    "install the package that brings it; the daemon does not start "
                    "until then",
                )
    for name in sorted(list_names(journal)):
        if name.endswith(DAMAGED):
            text = "it was set aside; remove it when nobody wants to look into it"
            yield warn(what, f"{journal / name}: found damaged earlier", text)


def _scan(file: SegmentFile, marked: mark.Mark) -> segment.Scan:
    """Scan a file up to the end that the mark has of it; only the newest has events up to there."""
    out = [first for first, _ in marked.left_out if first > file.first]
    durable = 0 if file.before else min([marked.durable, *(lsn - 1 for lsn in out)])
    synced = marked.synced if file.path.name == marked.segment else 0
    return file.scan(durable=durable, synced=synced).survey()


def _spool(config: Config, places: Directories) -> Iterator[Look]:
    for directory in (places.spool, places.archive):
        for name in sorted(list_names(directory)):
            path = directory / name
            if not name.startswith("events-"):
                continue
            parsed = parse_file_name(name)
            if parsed is None:
                advice = "move it elsewhere: the job would take it for one of ours"
                yield warn("spool files", f"{path} is not the gateway's", advice)
            elif (why := _flaw(path, parsed.last - parsed.first + 1)) is not None:
                advice = _advice(config, archived=directory == places.archive)
                yield fail("spool files", f"{path}: {why}", advice)


def _advice(config: Config, *, archived: bool) -> str:
    """Advice on a damaged file: whether its events are elsewhere, too."""
    spool = config.spool
    there = {"forward": "at the hub", "keep": ""}.get(spool.after, "in the tables")
    if spool.bucket is not None:
        there = "in the bucket"
    if archived and there:
        return f"its events are {there}; it can not be used again"
    if spool.bucket is None and there:
        return f"it is moved to poison/, and those behind it go on; {_AUDIT}"
    return f"nobody else has its events: put back a copy; {_AUDIT}"


def _flaw(path: Path, events: int) -> str | None:
    """Why a file is not what its name promises, by its footer."""
    try:
        rows = pq.read_metadata(path).num_rows
    except FileNotFoundError:
        return None  # it was taken meanwhile
    except PermissionError:
        raise
    except Exception as why:  # a damaged footer makes pyarrow raise anything
        return " ".join(str(why).split())[:200]
    return None if rows == events else f"it has {rows} events, its name says {events}"


def _state(config: Config, places: Directories) -> Iterator[Look]:
    state = places.state_of(config.node)
    path = state / mark.NAME
    try:
        good = statefile.decode(path, path.read_bytes(), mark.Mark) is not None
    except FileNotFoundError:
        good = True
    except OSError:
        good = False
    if not good:
        yield warn("state", f"{path} is damaged", "the daemon writes it anew")
    for name in saved_names(state, RealDisk()):
        path = state / f"{name}.state"
        try:
            decode_state(path, name, path.read_bytes())
        except FileNotFoundError:
            continue
        except Unreadable as why:
            yield fail("state", str(why), "the daemon does not start until then")
        except OSError as why:
            advice = "the disk does not give it back (`dmesg`); put back a copy"
            yield fail("state", f"{path}: {why.strerror}", advice)
