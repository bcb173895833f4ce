"""The files beside the tables that others than the Spark job read, too.

lake/.gateway/events.json    the job's ledger: what is in the tables, and what not
lake/.gateway/accepted/      holes that were accepted and are not in the ledger yet, one a file
lake/.gateway/sink.json      whose tables they are, unless they are folders of Parquet
lake/.gateway/health.json    what the job knows of itself, (`gateway.figures.reported`)
lake/.gateway/audit.json     what the last audit found (`gateway.store.readers.audited`)

lake/.gateway/closed/        incarnations that have ended, a thousand a file (`closed_in`)

An event's name is (node, incarnation, lsn).
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gateway.store import lsns
from gateway.store.lsns import Lsns
from gateway.store.node.incarnation import Record
from gateway.store.system.disk import named
from gateway.tables import Tables

#: The folder of the lake that belongs to the job; readers of tables pass it over.
INTERNAL = ".gateway"

#: The form of the ledger, and of the files of closed incarnations.
FORM = 1
#: The last one before forms had numbers, which is read as it is (docs/upgrade.md).
_FORMAT_BEFORE = 3

Lsn = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
"""An lsn as a word or a ledger may have it."""


@dataclass(frozen=True, slots=True)
class KnownHole:
    """Events that are in no table because their spool file could not be read."""

    node: str
    first: int
    last: int
    file: str
    """The spool file's name; it lies in `poison/`."""
    why: str
    incarnation: str = ""
    """The incarnation of the lsns."""


def somebody() -> str:
    """The user and the machine, for what is written down with a name: `ann@gw-1`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a number that has no name
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """Lsns that were accepted as lost."""

    node: str
    incarnation: str
    """"": of any."""
    first: int
    last: int | None
    """None: and all behind."""
    reason: str
    who: str
    at: float
    """When, in seconds since the epoch."""

    def has_end_of(self, node: str, incarnation: str, last: int) -> bool:
        """Whether it has what an incarnation left behind, heard of up to lsn *last*."""
        return (
            self.node == node
            and self.incarnation in ("", incarnation)
            and self.first <= last + 1
            and (self.last is None or self.last >= last)
        )


@dataclass(frozen=True, slots=True)
class End:
    """How an incarnation ended that its successor's directory does not go on from."""

    acknowledged: Lsn
    """The last lsn that it was heard to have acknowledged."""
    heard: float
    """When, in seconds since the epoch, by its clock."""
    ack: str
    """How it acknowledged: `journal` or `spool`."""
    exact: bool
    """Whether it acknowledged none behind that."""
    found: float
    """When its successor began."""
    since: Lsn = 0
    """The first lsn that it may have given; 0 if that is not known."""


def leave_word(path: Path, word: bytes) -> None:
    """Put *word* there in one step, as others may read meanwhile.  Raises OSError.

    It may not survive a power cut, and is said again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    with named(new):
        new.write_bytes(word)
    new.replace(path)


def health_path(lake: Path) -> Path:
    """Where a lake's job reports."""
    return lake / INTERNAL / "health.json"


def accepted_folder(lake: Path) -> Path:
    """Where accepted holes wait for the job to take them into its ledger."""
    return lake / INTERNAL / "accepted"


class _Ledger(msgspec.Struct):
    """The part of the ledger that others than the job read."""

    committed: dict[str, dict[str, Lsns]] = {}
    """The committed ranges by node and incarnation."""
    closed: dict[str, int] = {}
    """Files with more of that, and how many events each has."""
    holes: list[KnownHole] = []
    accepted: list[dict[str, Any]] = []
    ends: dict[str, dict[str, End]] = {}
    records: dict[str, dict[str, Record]] = {}
    complete: dict[str, Any] = {}
    """How far the tables are complete (`gateway.store.readers.complete`)."""
    tables: list[str] = []
    """The names of tables by rule."""


def tables_of(lake: Path) -> Tables:
    """The tables that the lake has.  Raises as `known_holes`."""
    return Tables(tuple(_ledger(lake).tables))


def said_complete(lake: Path) -> dict[str, Any]:
    """How far the tables are complete, as JSON has it.  Raises as `known_holes`."""
    return _ledger(lake).complete


def known_holes(lake: Path) -> list[KnownHole]:
    """The events that the job has moved aside and written down; none without a ledger.

    Raises OSError, and ValueError for a ledger that is damaged or of a newer version.
    """
    return _ledger(lake).holes


def committed(lake: Path) -> dict[str, dict[str, Lsns]]:
    """The lsns that the job has committed to the tables, by node and incarnation.

    Raises as `known_holes`.
    """
    ledger = _ledger(lake)
    found: dict[str, dict[str, Lsns]] = {}
    parts = [ledger.committed]
    parts += [closed_in(lake, name).committed for name in ledger.closed]
    for part in parts:
        for node, lives in part.items():
            mine = found.setdefault(node, {})
            for life, its in lives.items():
                mine[life] = mine.get(life, Lsns()) | its
    return found


def ends(lake: Path) -> dict[str, dict[str, End]]:
    """How incarnations ended, by node and incarnation.  Raises as `known_holes`."""
    return _ledger(lake).ends


def records(lake: Path) -> dict[str, dict[str, Record]]:
    """The files' records of incarnations, by node and incarnation.  Raises as `known_holes`."""
    ledger = _ledger(lake)
    found: dict[str, dict[str, Record]] = {}
    parts = [closed_in(lake, name).records for name in ledger.closed]
    for part in (*parts, ledger.records):
        for node, records in part.items():
            found.setdefault(node, {}).update(records)
    return found


def accepted(lake: Path) -> list[Accepted]:
    """The accepted losses, in the ledger and in files that wait for the job.

    Raises as `known_holes`, also of a file that is damaged.
    """
    # The files first: one that goes into the ledger meanwhile is met at least once.
    waiting = []
    for path in sorted(accepted_folder(lake).glob("[!.]*.json")):
        try:
            waiting.append(read_accepted(json.loads(path.read_bytes())))
        except FileNotFoundError:
            continue
        except ValueError as why:
            raise ValueError(f"{path}: {why}") from None
    known = map(read_accepted, _ledger(lake).accepted)
    return list(dict.fromkeys([*known, *waiting]))


def read_accepted(plain: Any) -> Accepted:
    """One as it is in the ledger, or in a file.  Raises ValueError."""
    try:
        found = msgspec.convert({"incarnation": "", **plain}, Accepted)
    except (msgspec.ValidationError, TypeError) as why:
        raise ValueError(f"no accepted hole: {why}") from None
    if found.first < 1 or (found.last is not None and found.last < found.first):
        raise ValueError(f"no accepted hole: lsn {found.first} to {found.last}")
    return found


def sink_of(lake: Path) -> dict[str, str] | None:
    """The sink whose tables these are, by `spark.sink`; None before there are any.

    Beside `sink` there may be `table` and `metadata`: its name or place, and the file
    that describes it.  Raises OSError, and ValueError for a file that is damaged.
    """
    path = lake / INTERNAL / "sink.json"
    try:
        found = _json_in(path)
    except FileNotFoundError:
        written = (lake / INTERNAL / "events.json").exists()
        return {"sink": "parquet"} if written else None
    if not isinstance(found, dict) or not isinstance(found.get("sink"), str):
        raise ValueError(f"{path}: not the job's")  # noqa: TRY004 - as the others
    return found


def _json_in(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as why:
        raise ValueError(f"{path}: {why}") from None


class ClosedIncarnations(msgspec.Struct):
    """The content of a file of closed incarnations, which is never written again."""

    form: int
    committed: dict[str, dict[str, Lsns]]
    records: dict[str, dict[str, Record]] = {}


def closed_path(lake: Path, name: str) -> Path:
    """Where a file of closed incarnations is."""
    return lake / INTERNAL / "closed" / f"{name}.json"


def closed_in(lake: Path, name: str) -> ClosedIncarnations:
    """The content of the file.  Raises OSError, and ValueError where its name does not fit."""
    return read_closed(closed_path(lake, name).read_bytes(), name)


def read_closed(data: bytes, name: str) -> ClosedIncarnations:
    """The same of its bytes, of whose digest *name* is made.  Raises ValueError."""
    if closed_name(data) != name:
        raise ValueError(f"closed incarnations {name}: changed or cut short")
    try:
        found = msgspec.json.decode(
            data, type=ClosedIncarnations, dec_hook=lsns.decoded
        )
    except msgspec.DecodeError as why:
        raise ValueError(f"closed incarnations {name}: {why}") from None
    if found.form != FORM:
        raise ValueError(
            f"closed incarnations {name}: form {found.form}, {FORM} is known"
        )
    return found


def closed_name(data: bytes) -> str:
    """The name of a file with these bytes."""
    return hashlib.sha256(data).hexdigest()[:32]


def why_not_read(kept: Any) -> str | None:
    """Why a ledger is not one of this version, or of the last before forms had numbers."""
    if "form" in kept:
        form, known = kept["form"], FORM
        return None if form == known else f"form {form!r}, and {known} is known here"
    number = kept.get("format")
    if number == _FORMAT_BEFORE:
        return None
    return f"format {number!r}, and {_FORMAT_BEFORE} is the only one before form {FORM} that is read"


def _ledger(lake: Path) -> _Ledger:
    path = lake / INTERNAL / "events.json"
    try:
        plain = _json_in(path)
    except FileNotFoundError:
        return _Ledger()
    try:
        if (why_not := why_not_read(plain)) is not None:
            raise ValueError(f"{path}: {why_not}: another version of gateway wrote it")
        return msgspec.convert(plain, _Ledger, dec_hook=lsns.decoded)
    except (msgspec.ValidationError, AttributeError, TypeError) as why:
        raise ValueError(f"{path} is no ledger: {why}") from None
