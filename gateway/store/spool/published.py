"""The published files: which journal segments have become which files, so that none is
published twice.

A line of the catalog for each (`Entry`), synced *before* the file gets its public name.  So
for a segment that is still there after a crash:

    no line                 its file was never public: write it again
    a line and a hidden file    the rename did not happen: rename it now
    a line, no hidden file  it was public, and was taken since: nothing is left to do

What a segment had and its disk did not give back is in no file.  Another line calls it a hole
(`gateway.store.node.holes`): it is noted before the file behind it is published.

Entries whose segments are gone are dropped in time, the oldest first.  The last one
stays: it has the last lsn when no segment is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from gateway.sdk.disk import Disk
from gateway.store.digests import Link
from gateway.store.journal import segment
from gateway.store.journal.log import Segment
from gateway.store.lsns import Lsns, spelled
from gateway.store.names import parse_file_name
from gateway.store.node.catalog import Catalog, Lines
from gateway.store.node.holes import Holes, all_of, holes_in
from gateway.store.spool.mending import Damaged, Entry, mend

__all__ = ["Entry", "PublishedFiles", "behind", "settled_in"]

_KEEP = 1000


class PublishedFiles:
    """The files of a node's catalog; the spool's thread owns them."""

    def __init__(
        self,
        catalog: Catalog,
        disk: Disk,
        node: str = "",
        names: Iterable[str] = (),
        published: int = 0,
        given_by: Callable[[int], str] = lambda _: "",
    ) -> None:
        """*names* are those of the node's files, wherever they are; everything up to
        lsn *published* was published, and *given_by* says by which incarnation an lsn was
        given: see `mend`.

        The catalog is not changed before `settle`.  Raises `Damaged`.
        """
        self._catalog = catalog
        self.path = catalog.path
        self._disk = disk
        lines = catalog.numbered(Entry)
        self.holes = all_of(holes_in(catalog))
        """Lsns that are in no file, as nothing gives them back."""
        for first, last in self.holes:
            if first <= published <= last:
                published = first - 1
        try:
            known, repairs = mend(lines, node, names, published, given_by)
        except Damaged as why:
            raise Damaged(f"{self.path}: {why}") from None
        good = [line for _, line in lines if line is not None]
        self.read_lsn = max((self.holes.last, *(line.last for line in good)))
        """The last lsn that a good line has; others may have been added to them."""
        self.damaged = len(good) < len(lines)
        """Some line is."""
        mended = {number for number, line in lines if line is None}
        repairs += [
            f"line {number} damaged: it named no file, and an older line counts"
            for number in catalog.damaged_numbers
            if number not in mended
        ]
        self.repairs = [f"{self.path}: {repair}" for repair in repairs]
        """A sentence for each damaged line, with what it was taken for."""
        self._entries = {entry.first: entry for entry in known}
        self._unsaid = {entry.first for entry in {*known}.difference(good)}
        """First lsns of entries that no line says, but the name of a file."""
        self._most = 2 * _KEEP

    def count_public(
        self, node: str, segments: Iterable[Segment], names: Iterable[str]
    ) -> list[str]:
        """Segments whose file is public by its name, *names* are those, are published,
        though damaged lines say nothing of them; a sentence for each.  Before `settle`.
        """
        said = []
        there = {each.incarnation: Lsns() for each in segments if each.events}
        for each in segments:
            if each.events and self.unpublished(each.first_lsn) <= each.last_lsn:
                there[each.incarnation].add(each.first_lsn, each.last_lsn)
        for name in sorted({*names}):
            file = parse_file_name(name)
            if file is None or file.node != node or file.first in self._entries:
                continue
            if not there.get(file.incarnation, Lsns()).covers(file.first, file.last):
                continue
            entry = Entry(file.first, file.last, name)
            self._entries[entry.first] = entry
            said.append(
                f"{self.path}: no line names {name}, which is public: "
                f"{spelled(entry.first, entry.last)} taken for published"
            )
        self._entries = dict(sorted(self._entries.items()))
        return said

    def know(self, incarnations: Iterable[str]) -> None:
        """Doubt what is there by a file's name alone and of none of these *incarnations*, which
        this directory had.
        """
        had = set(incarnations)
        self._unsaid = {
            first
            for first in self._unsaid
            if self._entries[first].incarnation not in had
        }

    def settle(self) -> None:
        """Hand what was read, and what that means, to the catalog, which settles it."""
        self._catalog.replace(Entry, self._entries.values())

    @property
    def last_lsn(self) -> int:
        """The last lsn that is in a file, or a hole; 0 if there is none."""
        lasts = (entry.last for entry in self._entries.values())
        return max(self.holes.last, *lasts, 0)

    @property
    def newest(self) -> Entry | None:
        """The entry with the last lsn."""
        known = self._entries.values()
        return max(known, key=lambda entry: entry.last, default=None)

    def note(self, link: Link) -> None:
        """Add the link of the newest file, whose line may not say it; before `settle`."""
        newest = self.newest
        if newest is not None and newest.last == link.last_lsn:
            known = msgspec.structs.replace(newest, link=link.digest)
            self._entries[newest.first] = known

    def __iter__(self) -> Iterator[Entry]:
        """The entries it still remembers."""
        return iter(self._entries.values())

    def find(self, first_lsn: int) -> Entry | None:
        """The entry of the segment that starts there."""
        return self._entries.get(first_lsn)

    def unpublished(self, lsn: int) -> int:
        """The first lsn from *lsn* on that is in no file, and no hole."""
        return behind(_spans(self._entries.values()) | self.holes, lsn)

    def has_forgotten(self, sealed: Segment) -> bool:
        """Whether a segment was put back after its line was dropped.

        Files are published in order, and no line is dropped whose segment is there.
        """
        oldest = min((entry.first for entry in self._entries.values()), default=0)
        if self.holes.covers(sealed.first_lsn, sealed.last_lsn):
            return False
        return bool(sealed.events) and sealed.last_lsn < oldest

    def has_all_of(self, sealed: Segment) -> bool:
        """Whether the files have what can be read of a segment that is published.

        Not if it has what was a hole then, as it was put back since, or what no line says to
        be in a file.  A file of an incarnation that this directory never had has other events,
        which got the same lsns while the journal was away.  That is not known if its lines were
        dropped before.
        """
        if self.has_forgotten(sealed):
            return False
        first, last = sealed.first_lsn, sealed.last_lsn
        others = _spans(
            one
            for one in self._entries.values()
            if first <= one.last and one.first <= last
            if one.doubted or one.first in self._unsaid
        )
        may_lack = Lsns([(first, last)]) & (others | self.holes)
        return sealed.lost >= may_lack.size

    def note_hole(self, incarnation: str, first: int, last: int) -> None:
        """Note durably that no file will have these.

        After an OSError a crash may find the line, or not.
        """
        known = self._catalog.newest(Holes, incarnation)
        found = Lsns() if known is None else known.lsns
        found.add(first, last)
        self._catalog.put(Holes(incarnation, found))
        self.holes.add(first, last)

    def add(self, entry: Entry) -> None:
        """Remember it durably.

        After an OSError a crash may find the line, or not, so the hidden file must stay as
        it is; the next call settles it.
        """
        if len(self._entries) >= self._most:
            self._forget()
        self._catalog.put(entry)
        self._entries[entry.first] = entry

    def close(self) -> None:
        """Let go of the catalog."""
        self._catalog.close()

    def _forget(self) -> None:
        oldest = self._oldest()
        known = self._entries.values()
        newest = list(known)[-_KEEP:]
        still = [entry for entry in known if entry.last >= oldest]
        # Both end with the newest, so the longer one has them all.
        keep = max(newest, still, key=len)
        # The segments of those that are dropped must not come back.
        self._disk.sync_directory(self.path.parent)
        self._catalog.replace(Entry, keep)
        self._entries = {entry.first: entry for entry in keep}
        self._most = 2 * max(_KEEP, len(keep))

    def _oldest(self) -> int:
        """The first lsn of the oldest segment that is there."""
        there = segment.in_order(self._disk.names(self.path.parent))
        return there[0][0] if there else self.last_lsn + 1


def settled_in(lines: Lines) -> Lsns:
    """Lsns that are in files, and holes, as a catalog says."""
    return _spans(lines.all(Entry)) | all_of(holes_in(lines))


def behind(settled: Lsns, lsn: int) -> int:
    """The first lsn from *lsn* on that is not among these."""
    return next((last + 1 for first, last in settled if first <= lsn <= last), lsn)


def _spans(entries: Iterable[Entry]) -> Lsns:
    return Lsns((entry.first, entry.last) for entry in entries)
