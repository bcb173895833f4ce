"""Damaged lines of published files: what each said, as far as lsns and names of files tell.

A damaged line was synced, so a file was published that it would name.  In between other
lines that is all that lies between their lsns, as files are published in order; where nothing
lies there, the line was of another type.  Of the last lines only names of files can tell, and
the mark (`gateway.store.node.mark`).

A damaged or missing line does not say whether its events were published.  Where its file is
gone, too, that is in doubt: a segment that has them, and is put back, may be the only copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import msgspec

from gateway.store.lsns import spelled
from gateway.store.names import file_name, parse_file_name
from gateway.store.node.catalog import Line


class Damaged(Exception):
    """A damaged line that nothing can make good; the text says what to do."""


class Entry(Line, frozen=True, omit_defaults=True, tag="file"):
    """A file that may be public.

    The digests (`gateway.store.digests`) are empty in lines that were mended.
    """

    first: int
    last: int
    name: str = msgspec.field(name="key")
    events: str = ""
    """The digest of its events."""
    link: str = ""
    """The file's link."""
    octets: str = ""
    """BLAKE3 of all its bytes, as they were published here."""
    modified: float = 0.0
    """When the file was modified, it says, in seconds since the epoch; 0 if unknown.  No
    later file says that it is older, whatever the clock says then."""
    doubted: bool = False
    """Whether there may have been no such file: no line says who published it."""

    @property
    def hidden(self) -> str:
        """The name until the file is complete; what starts with `.` is not there yet."""
        return f".{self.name}"

    @property
    def incarnation(self) -> str:
        """The incarnation of its lsns; empty if the name says none."""
        parsed = parse_file_name(self.name)
        return parsed.incarnation if parsed else ""


def mend(
    lines: list[tuple[int, Entry | None]],
    node: str,
    names: Iterable[str],
    published: int = 0,
    given_by: Callable[[int], str] = lambda _: "",
) -> tuple[list[Entry], list[str]]:
    """The entries, those of damaged and missing lines too; a sentence for each repair.

    *lines* are numbered; None is a damaged one that may have been an entry.  *names* are
    those of the node's files, hidden ones (`.…`) too.  Everything up to lsn *published* was
    published, whatever the lines say.  *given_by* says which incarnation gave an lsn, where
    no name of a file does.  Raises `Damaged`.
    """
    names = list(names)
    # What is before the first line says nothing, and may be millions of files.
    begin = lines[0][1].first if lines and lines[0][1] is not None else 0
    files = sorted(file for file in _files(node, names) if file[1] >= begin)
    hidden = sorted(_files(node, (name[1:] for name in names if name[:1] == ".")))
    found: list[Entry] = []
    said: list[str] = []
    at = 0
    for good, group in groupby(lines, key=lambda line: line[1] is not None):
        some = list(group)
        at += len(some)
        if good:
            found += [entry for _, entry in some if entry is not None]
            continue
        numbers = " to ".join(str(each) for each, _ in (some[0], *some[1:][-1:]))
        first = _end(found, 1)
        following = lines[at][1] if at < len(lines) else None
        if following is not None:
            missing = _between(
                node, first, following.first - 1, files, hidden, given_by
            )
        else:
            missing = _behind(first, files)
            if len(missing) < len(some):
                # A file is complete before it has a line, and public after that: the
                # line of one file may be there whose name is not.
                missing += _behind(_end(missing, first), hidden)[:1]
            if not missing and len(some) == 1:
                # One line, and it said all that is published behind the others.
                missing = _between(node, first, published, files, hidden, given_by)
            if len(missing) < len(some):
                raise Damaged(_advice(node, given_by(first), first, numbers))
        found += missing
        last = _end(missing, first) - 1
        if missing:
            count = f"{spelled(first, last)} taken for published"
        else:
            count = "it named no file, and an older line counts"
        said.append(f"line {numbers} damaged: {count}")
    last = _end(found, 1) - 1
    if last < published:
        found += _between(node, last + 1, published, files, hidden, given_by)
    found += _behind(max(last, published) + 1, files)
    if found and found[-1].last > last:
        through = spelled(last + 1, found[-1].last)
        said.append(f"lines missing at the end: {through} taken for published")
    return found, said


def _files(node: str, names: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    for name in names:
        parsed = parse_file_name(name)
        if parsed is not None and parsed.node == node:
            yield parsed.first, parsed.last, name


def _between(
    node: str,
    first: int,
    last: int,
    files: list[tuple[int, int, str]],
    hidden: list[tuple[int, int, str]],
    given_by: Callable[[int], str],
) -> list[Entry]:
    """Entries for all lsns of this range: of files that are there, and of others, which
    are doubted unless they are *hidden*.
    """

    def other(begin: int, end: int) -> Entry:
        for *lsns, name in hidden:
            if lsns == [begin, end]:
                return Entry(begin, end, name)
        name = file_name(node, given_by(begin), begin, end)
        return Entry(begin, end, name, doubted=True)

    found: list[Entry] = []
    for begin, end, name in files:
        if first <= begin and end <= last:
            if first < begin:
                found.append(other(first, begin - 1))
            found.append(Entry(begin, end, name))
            first = end + 1
    if first <= last:
        found.append(other(first, last))
    return found


def _behind(first: int, files: list[tuple[int, int, str]]) -> list[Entry]:
    """Entries of the files that follow on each other from lsn *first* on."""
    found: list[Entry] = []
    for begin, end, name in files:
        if begin == first:
            found.append(Entry(begin, end, name))
            first = end + 1
    return found


def _end(entries: list[Entry], first: int) -> int:
    return entries[-1].last + 1 if entries else first


def _advice(node: str, incarnation: str, first: int, numbers: str) -> str:
    example = file_name(node, incarnation, first, first + 99)
    return (
        f"line {numbers} is damaged, and of the files that were published from lsn "
        f"{first} on none is left to tell what it said.  `gateway audit` tells which lsns "
        "from there on are in the tables: make an empty file of that name in archive/, "
        f"such as {example}, and start again; or put back a copy of the catalog"
    )
