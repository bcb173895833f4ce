"""Catalogs of nodes that do not run, for tests that need a line in one."""

from collections.abc import Iterable
from pathlib import Path

from gateway.store.directories import Directories
from gateway.store.node.catalog import Catalog, Line, look
from gateway.store.node.expired import ExpiredRecord
from gateway.store.spool.mending import Entry
from gateway.store.system.disk import RealDisk


def write(journal: Path, line: Line) -> None:
    """Add a line to the catalog in a node's journal, which is made where it is not there."""
    journal.mkdir(parents=True, exist_ok=True)
    Catalog(journal, RealDisk()).put(line)


def expire(data: Path, names: Iterable[str], node: str = "gw") -> None:
    """Have *node* note, which ran in *data*, that these files leave its archive."""
    places = Directories.under(data)
    for path in (places.journal_of(node), places.state_of(node)):
        path.mkdir(parents=True, exist_ok=True)
    catalog = Catalog(places.journal_of(node), RealDisk())
    ExpiredRecord(catalog, places.archive, RealDisk()).note(names)


def published_in(journal: Path) -> list[Entry]:
    """What a node's catalog says of published files."""
    return look(journal).all(Entry)


def lines_of(catalog: Path, kind: bytes) -> list[bytes]:
    """The lines of a catalog's file that name a type."""
    lines = catalog.read_bytes().splitlines(keepends=True)
    return [line for line in lines if b'"type":"%b"' % kind in line]
