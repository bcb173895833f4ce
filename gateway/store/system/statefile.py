"""A small state that outlives the process: a file with one line, replaced as a whole.

    read    a line behind its checksum (`gateway.sdk.summed`)
    write   the hidden name, `.NAME` → sync → rename → sync directory (`replace_file`)

A crash leaves the old one or the new one.  One that is damaged says nothing, as one that
is not there: the owner of a state can do without it, and errs on the safe side.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from attrs import define

from gateway.sdk import summed
from gateway.sdk.disk import Disk, replace_file
from gateway.sdk.summed import of_file
from gateway.store.system.disk import read_patiently

_T = TypeVar("_T", bound=msgspec.Struct)


def decode(path: Path, data: bytes, kind: type[_T]) -> _T | None:
    """The state in these bytes; None if it is damaged.  Raises `OtherForm`."""
    with of_file(path):
        return summed.decode(data[:-1], kind)


def look(path: Path, kind: type[_T]) -> _T | None:
    """The state in a file, for one that only looks; None if it is not there, or damaged.

    Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        return decode(path, path.read_bytes(), kind)
    return None


def of_nodes(folder: Path, name: str, kind: type[_T]) -> Iterator[tuple[str, _T]]:
    """The states in the nodes' files of that name, each in a folder of its node's."""
    for path in folder.glob(f"*/{name}"):
        if (found := look(path, kind)) is not None:
            yield path.parent.name, found


@define(eq=False)
class StateFile(Generic[_T]):
    """The file of one *kind*.  Blocks; raises OSError, `OtherForm`."""

    path: Path
    _kind: type[_T]
    _disk: Disk

    def read(self) -> tuple[_T | None, str | None]:
        """The state, if it is there, and a sentence if it can not be told."""
        if not self._disk.exists(self.path):
            return None, None
        data, _ = read_patiently(self._disk, self.path)
        if (found := decode(self.path, data, self._kind)) is None:
            return None, f"{self.path} is damaged; it is written anew"
        return found, None

    def write(self, state: _T) -> None:
        """Durably."""
        replace_file(self._disk, self.path, [summed.encode(state)]).close()
