"""Reads back events that were stored: the files of a node, by the lsns in them.

    journal ── published ──► spool ── taken by Spark ──► archive ── expires
                                                            └─► retained: what of it
                                                                readers still need

A protocol whose readers come back for what was stored is lent `Files` (`Context.files`).
Files move and go while one looks.  An event is in its next place before it leaves the one
before.  A file that is gone when it is opened (FileNotFoundError) has moved on: list
afresh, and look again.  What is nowhere even so is `Gone`.

Everything here blocks, and any thread may call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import FileIO
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from gateway.event import Stored

__all__ = ["Files", "Gone", "JournalFile", "PublishedFile", "Scan"]


class Gone(LookupError):
    """An event is in no file any more."""

    def __init__(self, lsn: int, first: int | None) -> None:
        there = f"the oldest is {first}" if first else "nothing older is left"
        super().__init__(f"lsn {lsn} is not there any more; {there}")
        self.first = first
        """The oldest event that is still there; None if there is none."""


class PublishedFile(Protocol):
    """Events as Parquet, in spool, archive or what is retained; never changed."""

    @property
    def name(self) -> str:
        """The file's name, which is the same wherever the file moves."""

    @property
    def first(self) -> int:
        """The lsn of its first event."""

    @property
    def last(self) -> int: ...


class Scan(Protocol):
    """The batches of a journal segment, one after the other."""

    @property
    def end(self) -> int:
        """Where the body of the batch that came last ends in the file."""

    @property
    def salt(self) -> int:
        """The salt of the file's records, for `JournalFile.goes_on`."""

    def __iter__(self) -> Iterator[Stored]:
        """The batches in the order of their lsns."""


class JournalFile(Protocol):
    """A journal segment: batches as they came."""

    @property
    def name(self) -> str:
        """Another one may have it later: its file is written over."""

    @property
    def first(self) -> int:
        """The lsn of its first event, if it has any."""

    @property
    def before(self) -> int | None:
        """Where the next segment begins; None: this one is still written."""

    def scan(self, *, growing: bool) -> Scan:
        """Scan its batches by now; *growing*: it may be written in this process meanwhile.

        All of it is in memory until the scan is let go.  Raises OSError.
        """

    def goes_on(self, end: int, salt: int) -> bool:
        """Whether there is more by now behind a scan's `end`; *salt* is that scan's.

        Raises OSError.
        """

    def open(self) -> FileIO:
        """Open the file to read bodies where they lie.

        Other bytes may stand there by then, as what a failed write left is written again.  Raises
        OSError.
        """


class Files(Protocol):
    """The files of one node, and what is kept for readers when they leave the archive."""

    def oldest(self) -> int | None:
        """Lists all afresh; the first lsn of the oldest file, if there is one."""

    def files(self, lsn: int) -> Iterator[PublishedFile]:
        """Published files from the one with *lsn* on, as of the last listing.

        Events between the end of one and the begin of the next are needed by no reader, or in the
        journal only.
        """

    def file(self, lsn: int) -> PublishedFile | None:
        """The published file with *lsn*, or the next one; None if there is neither."""

    def segments(self, lsn: int) -> Sequence[JournalFile]:
        """Journal segments from the last one that begins at *lsn* or before on."""

    def open(
        self, file: PublishedFile, metadata: pq.FileMetaData | None = None
    ) -> pq.ParquetFile:
        """Open it wherever it is by now; *metadata* is its footer, if that is known.

        Raises FileNotFoundError, OSError.
        """
