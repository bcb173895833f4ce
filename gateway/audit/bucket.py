"""The spool's files in a bucket, for the audit.

A file is read as a copy that is removed again, one at a time.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gateway.store.finder import SpoolFile
from gateway.store.names import parse_file_name
from gateway.store.objects.bucket import ARCHIVE, Bucket, NotThere


class BucketFiles:
    """The files of all nodes in one bucket, or none if that is None.  Raises `BucketError`."""

    def __init__(self, bucket: Bucket | None) -> None:
        self._bucket = bucket
        self._folder = Path(bucket.url if bucket is not None else "")

    def list(self, *, archive: bool = False) -> dict[str, list[SpoolFile]]:
        """The present files by node, in order of lsn, of the spool or of the archive.

        The job leaves in the archive what it has committed.  Paths are where files are for people,
        no names of this machine.
        """
        found: dict[str, list[SpoolFile]] = defaultdict(list)
        below = f"{ARCHIVE}/" if archive else ""
        if self._bucket is not None:
            for one in self._bucket.list(f"{below}events-"):
                name = one.name.removeprefix(below)
                if parsed := parse_file_name(name):
                    file = SpoolFile(self._folder / one.name, *parsed)
                    found[parsed.node].append(file)
        for files in found.values():
            files.sort(key=lambda file: (file.first, file.last))
        return dict(found)

    def has(self, file: SpoolFile) -> bool:
        places = self._folder, self._folder / ARCHIVE
        return self._bucket is not None and file.path.parent in places

    @contextmanager
    def local(self, file: SpoolFile) -> Iterator[SpoolFile]:
        """The same file, or a copy of it on this machine.

        Raises FileNotFoundError if it is not in the bucket any more.
        """
        if self._bucket is None or not self.has(file):
            yield file
            return
        name = file.path.name
        key = name if file.path.parent == self._folder else f"{ARCHIVE}/{name}"
        with tempfile.TemporaryDirectory(prefix="gateway-audit-") as folder:
            path = Path(folder) / name
            try:
                path.write_bytes(self._bucket.read(key))
            except NotThere:
                raise FileNotFoundError(str(file.path)) from None
            yield replace(file, path=path)
