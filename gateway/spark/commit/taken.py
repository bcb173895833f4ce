"""The file of each name that the tables have, by the digest of its events.

    lake/.gateway/taken    NAME DIGEST, a line for each file, behind its commit

A name may come again: a kill has left it in the spool or the bucket, or it has another past
of the incarnation (`gateway.spark.files.overlaps`).  Where the digest is the same no rows
have to be compared.  Nothing rests on this file: what it lacks is compared.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from gateway.store.readers.lake import INTERNAL

_MOST = 20_000
"""Lines, and it begins anew with half of them."""


class Taken:
    """The digests of one lake; the sink's thread writes them, and others read."""

    def __init__(self, lake: Path) -> None:
        self._path = lake / INTERNAL / "taken"
        self._known: dict[str, str] | None = None

    def note(self, digests: Mapping[str, str]) -> None:
        """Note files that are in the tables: the digest of each, by name."""
        known = self._read()
        new = {
            name: digest
            for name, digest in digests.items()
            if digest and known.get(name) != digest
        }
        known |= new
        with contextlib.suppress(OSError):  # then they are compared, if they come again
            if len(known) > _MOST:
                known = self._known = dict([*known.items()][_MOST // 2 :])
                self._path.unlink(missing_ok=True)
                new = known
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write("".join(f"{name} {by}\n" for name, by in new.items()))

    def has(self, name: str, digest: str) -> bool:
        """Whether that file is in the tables."""
        return bool(digest) and self._read().get(name) == digest

    def _read(self) -> dict[str, str]:
        if self._known is None:
            text = ""
            with contextlib.suppress(OSError):
                text = self._path.read_text("ascii", "replace")
            lines = (line.split(" ") for line in text.splitlines())
            self._known = {line[0]: line[1] for line in lines if len(line) == 2}
        return self._known
