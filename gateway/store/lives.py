"""Which life of its node gave the lsns of a file that consumers read, as its footer says.

In a bucket only the end of an object is fetched, where the footer is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from attrs import define

from gateway.store import digests
from gateway.store.bucket import Bucket, NotThere
from gateway.store.directories import Directories
from gateway.store.in_bucket import objects_of
from gateway.store.names import parse_file_name
from gateway.store.s3 import bucket_of

if TYPE_CHECKING:
    from gateway.config import Config

_END_BYTES = 64 << 10
"""That are asked for; a footer has a few KiB."""
_AT_ONCE = 16
_AT_A_TIME = 1000
"""So many wait for that: each takes some memory, and a log of Spark's has millions."""


@define(eq=False, slots=False)
class LivesOfFiles:
    """Of the files of one gateway: in its bucket, if it has one.  Blocks; any thread."""

    _directories: Directories
    _bucket: Bucket | None

    def of(self, name: str, size: int) -> str:
        """That of one file, which has so many bytes; empty if it does not say, or is
        damaged.  Raises FileNotFoundError, PermissionError, `BucketError`.
        """
        if (bucket := self._bucket) is not None:
            return _said(bucket, name, size)
        # With `forward` it may still be in the spool, or leave that while we look.  One that
        # waits there for a name that another file has is not meant.
        archive, spool = self._directories.archive, self._directories.spool
        for directory in (archive, spool):
            with contextlib.suppress(FileNotFoundError):
                return digests.incarnation_of(directory / name)
        return digests.incarnation_of(archive / name)

    def of_all(self, files: Mapping[str, int]) -> dict[str, str]:
        """Those of files, by name, of which the sizes are given; without those that are
        gone.  Raises as `of`.
        """
        found: dict[str, str | None] = {}
        left = iter(files.items())
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while some := dict(islice(left, _AT_A_TIME)):
                lives = pool.map(self._of_there, some.keys(), some.values())
                found.update(zip(some, lives, strict=True))
        return {name: life for name, life in found.items() if life is not None}

    def of_named(self, names: Iterable[str]) -> dict[str, str]:
        """Likewise of files of which only the names are known.

        Raises ValueError for what is no name of a spool file, and as `of`.
        """
        names = {*names}
        nodes = set()
        for name in names:
            if (named := parse_file_name(name)) is None:
                raise ValueError(f"{name} is no name of a spool file")
            nodes.add(named.node)
        if (bucket := self._bucket) is None:
            return self.of_all(dict.fromkeys(names & self._here(), 0))
        there = (one for node in nodes for one in objects_of(bucket, node))
        return self.of_all({one.name: one.bytes for one in there if one.name in names})

    def _here(self) -> set[str]:
        """The names in archive and spool: few are left of those that Spark has had."""
        found: set[str] = set()
        for directory in (self._directories.spool, self._directories.archive):
            with contextlib.suppress(FileNotFoundError):
                found.update(path.name for path in directory.iterdir())
        return found

    def _of_there(self, name: str, size: int) -> str | None:
        try:
            return self.of(name, size)
        except (FileNotFoundError, NotThere):
            return None


def lives_of(config: Config) -> LivesOfFiles:
    """Of the files that consumers of this gateway read.

    Raises ImportError without what a bucket needs.
    """
    return LivesOfFiles(Directories.of(config), bucket_of(config.spool))


def _said(bucket: Bucket, name: str, size: int) -> str:
    end = bucket.read(name, max(0, size - _END_BYTES))
    if (length := digests.footer_bytes(end)) > len(end):
        end = bucket.read(name, max(0, size - length))
    return digests.incarnation_of(pa.BufferReader(end))
