"""The spool's files in a bucket, as the audit reads them: one at a time, as a copy that is
removed again.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.store.bucket import Bucket, NotThere
from gateway.store.finder import SpoolFile
from gateway.store.names import parse_file_name

__all__ = ["BucketFiles"]


class BucketFiles:
    """Of all nodes in one bucket, or none if that is None.  Raises `BucketError`."""

    def __init__(self, bucket: Bucket | None) -> None:
        self._bucket = bucket
        self._folder = Path(bucket.url if bucket is not None else "")

    def list(self) -> dict[str, list[SpoolFile]]:
        """Those that are there now, by node, in order of lsn.

        Their paths are where they are for people, no names of this machine.
        """
        found: dict[str, list[SpoolFile]] = defaultdict(list)
        if self._bucket is not None:
            for one in self._bucket.list("events-"):
                if parsed := parse_file_name(one.name):
                    file = SpoolFile(self._folder / one.name, *parsed)
                    found[parsed[0]].append(file)
        for files in found.values():
            files.sort(key=lambda file: (file.first, file.last))
        return dict(found)

    def has(self, file: SpoolFile) -> bool:
        """Whether it is one of those."""
        return self._bucket is not None and file.path.parent == self._folder

    @contextmanager
    def local(self, file: SpoolFile) -> Iterator[SpoolFile]:
        """The same file, or a copy of it on this machine.

        Raises FileNotFoundError if it is not in the bucket any more.
        """
        if self._bucket is None or not self.has(file):
            yield file
            return
        name = file.path.name
        with tempfile.TemporaryDirectory(prefix="gateway-audit-") as folder:
            path = Path(folder) / name
            try:
                path.write_bytes(self._bucket.read(name))
            except NotThere:
                raise FileNotFoundError(str(file.path)) from None
            yield SpoolFile(path, file.node, file.first, file.last)
