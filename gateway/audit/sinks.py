"""The tables of any sink of the Spark job, for the audit: no Spark is needed.

Counted are the files that have the rows now, as the sink's kind lists them: what a
compaction has replaced is not there.  Where rows were deleted and the files left as they
are, that is said: which rows are gone is not known here.  Where rows can not be read here,
as with a function of one's own, the job's ledger is asked, and the report says that it is
only told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from gateway.audit.counts import CHUNK, Counts
from gateway.audit.lake import Identity, Lake, Problem, identity_of
from gateway.audit.remote import Access, Place, Remote, path_of
from gateway.sink import Kind, kind_of
from gateway.store.readers.lake import committed, sink_of


def lake_of(
    lake: Path, *, node: str | None, first: int, access: Access | None = None
) -> Lake:
    """The counter of the events in the tables.  Raises OSError."""
    kind, _ = _sink(lake)
    if "rows" not in kind.abilities:
        return Told(lake, node=node, first=first)
    return _OfSink(lake, access or Access(), node=node, first=first)


def table_files(
    lake: Path, access: Access | None = None
) -> Iterator[tuple[Place, Identity]]:
    """The files that have the rows of all tables of events.

    *access* is how to reach those in object storage.  Raises OSError, also where a
    package is missing that reads the table, or where its files can not be reached.
    """
    for place, identity, _ in _listed(lake, access or Access()):
        yield place, identity


def _listed(lake: Path, access: Access) -> Iterator[tuple[Place, Identity, str | None]]:
    """The files, and how rows in each are marked as deleted."""
    kind, told = _sink(lake)
    store = None
    for name, deleted in _files(kind, lake, told, access):
        path = path_of(name) if isinstance(name, str) else name
        if path is None:
            store = store or access.store
            # Its name is never given again.
            yield Remote(str(name), store), Identity(0, 0, 0), deleted
        elif (identity := identity_of(path)) is not None:
            yield path, identity, deleted


def _files(
    kind: Kind, lake: Path, told: Mapping[str, str], access: Access
) -> Iterable[tuple[Path | str, str | None]]:
    if "rows" not in kind.abilities:
        return ()
    try:
        return list(kind.files(lake, told, access))
    except ModuleNotFoundError as why:
        raise OSError(
            f"no Python package {why.name}, which reads the table: pip install"
            f" 'gateway[{kind.extra}]'"
        ) from None
    except (
        Exception
    ) as why:  # a library raises what it likes; in a line, without colours
        text = " ".join(re.sub(r"\x1b\[\d*m|↳", "", str(why)).split())
        place = told.get("table", lake)
        raise OSError(f"the table at {place} can not be read: {text}") from None


def _sink(lake: Path) -> tuple[Kind, Mapping[str, str]]:
    """The kind of a lake's tables, and what is told of them."""
    try:
        told = sink_of(lake) or {"sink": "parquet"}
        return kind_of(told["sink"]), told
    except ValueError as why:
        raise OSError(f"{lake}: {why}") from None


class _OfSink(Lake):
    """Counts in the files that the sink's tables have."""

    def __init__(
        self, directory: Path, access: Access, *, node: str | None, first: int
    ) -> None:
        super().__init__(directory, node=node, first=first)
        self._access = access
        self._deleted: list[Problem] = []
        self._mine: frozenset[str] | None = None
        """The nodes of this job, where others write the table, too."""

    def look(self) -> None:
        _, told = _sink(self.directory)
        mine = None
        if told.keys() & {"job", "shared"}:
            try:
                mine = frozenset(committed(self.directory))
            except ValueError as why:
                raise OSError(str(why)) from None
        if mine != self._mine:
            self._forget()
            self._mine = mine
        super().look()
        self.problems += self._deleted

    def _counts(self, node: str) -> bool:
        return super()._counts(node) and (self._mine is None or node in self._mine)

    def there(self) -> dict[Place, Identity]:
        found = list(_listed(self.directory, self._access))
        self._deleted = [
            Problem(
                str(place),
                "it can not be judged: rows of it are deleted by others, which are"
                f" counted here, by {how}",
            )
            for place, _, how in found
            if how is not None
        ]
        return {place: identity for place, identity, _ in found}


class Told(Lake):
    """Events that a user's function took, by the word of the job's ledger."""

    told = True

    def look(self) -> None:
        self.nodes.clear()
        try:
            known = committed(self.directory)
        except ValueError as why:
            raise OSError(str(why)) from None
        for node, lives in known.items():
            for incarnation, spans in (
                lives.items() if self.node in (None, node) else ()
            ):
                counts = self.nodes.setdefault(node, {}).setdefault(
                    incarnation, Counts()
                )
                for first, last in spans:
                    for begin in range(max(first, self.first), last + 1, CHUNK):
                        end = min(begin + CHUNK, last + 1)
                        counts.add(np.arange(begin, end, dtype=np.int64))

    def files_with(
        self, node: str, incarnation: str, first: int, last: int
    ) -> list[Place]:
        """None: no event is twice in a ledger."""
        return []
