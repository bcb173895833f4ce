"""The catalog of a node: all that it keeps beside its segments and its mark, in one file.

    journal/NODE/catalog    typed lines (`gateway.sdk.summed`): published files, the
                            incarnation, what has left the archive, the removal clock, …

A small state of a node is a type: a `Line` with a tag.  Of each type the newest line counts;
of a type that has keys, the newest line of each key.  A line is appended and synced.  Once
most lines are old the file is written anew and takes the place of the old one in one step.

A crash tears the last line at most: it lacks its newline or its type, and nothing relied on
it.  Any other line that does not fit its checksum was synced, and is damaged.  What its type
said before counts then, so a type either errs on the safe side with an older line, or asks whether one of
its own may be `damaged`.  Published files can not do with that: their lines are mended
(`gateway.store.spool.mending`).

The mark stays apart, as it tells when this file is lost (`gateway.store.mark`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from gateway.sdk.disk import Disk, File, replace_file
from gateway.sdk.summed import OtherForm, decode, encode, of_file
from gateway.store.system.disk import RealDisk, read_patiently
from gateway.store.system.threads import Alone, RealThreads, Threads

CATALOG = ("catalog", ".catalog")
"""Names of the file: as it is read, and while a new one is written."""

_SPARE = 1000
"""Old lines that do not matter, however few others there are."""
_TYPE = re.compile(rb'"type":"([a-z-]+)"')


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A small state of a node.

    A subclass has a tag of its own, `class Kept(Line, tag="kept")`; a field that is called
    `key` in the file, `msgspec.field(name="key")`, tells lines of one type apart.  Tags differ
    in length, so that even a damaged line shows of which type it was not.
    """


class _Head(msgspec.Struct):
    type: str
    key: str = ""


_Line = TypeVar("_Line", bound=Line)


class Lines:
    """A catalog as its bytes say it.  Raises `OtherForm`."""

    def __init__(self, data: bytes = b"") -> None:
        *lines, rest = data.split(b"\n")
        # Its last byte may be a newline that was damaged.
        lines += [each for each in (rest, rest[:-1]) if _head(each)][:1]
        if lines and _head(lines[-1]) is None and not _TYPE.search(lines[-1]):
            lines.pop()
        self._read = [(_head(line), line + b"\n") for line in lines]
        self._known: dict[tuple[str, str], bytes] = {}
        for head, line in self._read:
            if head is not None:
                self._known[head.type, head.key] = line

    def damaged(self, kind: type[_Line]) -> bool:
        """Whether a damaged line was read that may be of this type."""
        tag = _tag(kind)
        return any(head is None and _may_be(line, tag) for head, line in self._read)

    def numbered(self, kind: type[_Line]) -> list[tuple[int, _Line | None]]:
        """The lines of a type as they were read, with their numbers; None for a damaged one
        that may be of it.  Behind all of them none counts that does not name its type.
        """
        tag = _tag(kind)
        found = [
            (number, None if head is None else _made(line, kind))
            for number, (head, line) in enumerate(self._read, 1)
            if (head.type == tag if head is not None else _may_be(line, tag))
        ]
        while found and not _names(self._read[found[-1][0] - 1][1], tag):
            found.pop()
        return found

    @property
    def damaged_numbers(self) -> list[int]:
        """The numbers of damaged lines; the first line is 1."""
        return [at for at, (head, _) in enumerate(self._read, 1) if head is None]

    def all(self, kind: type[_Line]) -> list[_Line]:
        """The newest line of each key."""
        tag = _tag(kind)
        known = list(self._known.items())
        return [_made(line, kind) for (each, _), line in known if each == tag]

    def newest(self, kind: type[_Line], key: str = "") -> _Line | None:
        """The newest line of a type, and of a key."""
        line = self._known.get((_tag(kind), key))
        return None if line is None else _made(line, kind)


def look(journal: Path, disk: Disk | None = None) -> Lines:
    """The catalog in a node's journal, for a reader; empty where there is none.

    Raises `OtherForm`, OSError.
    """
    path, disk = journal / CATALOG[0], disk or RealDisk()
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), of_file(path):
        return Lines(disk.read(path))
    return Lines()


def catalogs_in(journals: Path) -> dict[str, Lines]:
    """The catalogs of all nodes, by node, for a reader.  Raises `OtherForm`, OSError."""
    paths = sorted(journals.glob(f"*/{CATALOG[0]}"))
    return {path.parent.name: look(path.parent) for path in paths}


class Catalog(Lines):
    """The catalog of a node that runs.  Blocks; any thread may call."""

    def __init__(
        self, directory: Path, disk: Disk, threads: Threads | None = None
    ) -> None:
        """Nothing is written yet.  Raises `OtherForm`, OSError."""
        self.path = directory / CATALOG[0]
        self._disk = disk
        self._alone = Alone(threads or RealThreads())
        self._file: File | None = None
        """None: it must be written anew before it takes another line."""
        self._in_file = 0
        """How many lines it has."""
        there = disk.exists(self.path)
        with of_file(self.path):
            super().__init__(read_patiently(disk, self.path)[0] if there else b"")

    def put(self, line: Line) -> None:
        """Keep it durably, in the place of what its type and key had.

        After an OSError a crash may find the line, or not; the next call settles that.
        """
        with self._alone:
            place, data = _placed(line)
            known = {**self._known, place: data}
            if self._file is None or self._in_file > 2 * len(known) + _SPARE:
                self._write(known)
            else:
                try:
                    self._file.write([data])
                    self._file.sync()
                except OSError:
                    # After a failed sync this file can not be trusted with one more line.
                    self._let_go()
                    raise
                self._in_file += 1
            self._known = known

    def replace(self, kind: type[_Line], lines: Iterable[_Line]) -> None:
        """Have these lines of a type, and no other: the next one writes the file anew."""
        with self._alone:
            self._let_go()
            tag = _tag(kind)
            self._known = {
                place: line for place, line in self._known.items() if place[0] != tag
            }
            self._known.update(map(_placed, lines))

    def settle(self, *lines: Line) -> None:
        """Make durable what was read, and *lines*.  Raises OSError.

        No room for a copy is no failure, as a full disk must not prevent a start.  Then what was
        read is synced, and the rest is written with the next line.
        """
        with self._alone:
            self._known.update(map(_placed, lines))
            try:
                self._write(self._known)
            except OSError:
                if not self._disk.exists(self.path):
                    raise
                with contextlib.closing(self._disk.open(self.path)) as file:
                    file.sync()

    def close(self) -> None:
        """Let go of the file."""
        with self._alone:
            self._let_go()

    def _write(self, known: dict[tuple[str, str], bytes]) -> None:
        # It may have no name any more where this fails late.
        self._let_go()
        self._file = replace_file(self._disk, self.path, list(known.values()))
        self._in_file = len(known)

    def _let_go(self) -> None:
        if (file := self._file) is not None:
            self._file = None
            file.close()


def _head(line: bytes) -> _Head | None:
    """The type and the key of a line; None if it is damaged.  Raises `OtherForm`."""
    try:
        return decode(line, _Head)
    except msgspec.ValidationError:
        raise OtherForm(
            "it has a line without a type: a commit before 29 November 2026 wrote it, and"
            " docs/upgrade.md says how to go on"
        ) from None


def _placed(line: Line) -> tuple[tuple[str, str], bytes]:
    data = encode(line)
    head = _head(data[:-1])
    assert head is not None
    return (head.type, head.key), data


def _made(line: bytes, kind: type[_Line]) -> _Line:
    made = decode(line[:-1], kind)
    assert made is not None
    return made


def _may_be(damaged: bytes, tag: str) -> bool:
    """Whether a damaged line may have been of that type.  One that names types of other
    lengths only was not: no flipped bit changes a length.  A sector of zeros may.
    """
    return _names(damaged, tag) or b"\0" in damaged or not _TYPE.search(damaged)


def _names(line: bytes, tag: str) -> bool:
    """Whether a type of that length is named; a lost newline makes one line of two."""
    return any(len(each) == len(tag) for each in _TYPE.findall(line))


def _tag(kind: type[Line]) -> str:
    return str(kind.__struct_config__.tag)
