"""Files that have left archive or bucket where no job of ours takes them (`spool.after: keep`).

Marks of consumers say what these have read (`gateway.store.readers.consumers`); what has left
an archive for its age, or for want of room, is known by its lsns.  Both by incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from gateway.audit.lake import Problem
from gateway.audit.sites import Site, union
from gateway.store.lsns import Lsns
from gateway.store.node.expired import expired_in
from gateway.store.readers.consumers import OBJECT, Mark, marks_at
from gateway.store.system.disk import RealDisk


class Consumed:
    """The events consumed at all sites that keep what they publish."""

    def __init__(self, sites: Iterable[Site]) -> None:
        """Read what is written down before a file goes.  Raises OSError, `BucketError`."""
        self._read: dict[str, dict[str, Lsns]] = {}
        self._left: dict[str, dict[str, Lsns]] = {}
        self.problems: list[Problem] = []
        for site in sites:
            if not site.keeps:
                continue
            for name in _names(site):
                self._add(site, name)
            if site.bucket is None:
                for node, of in expired_in(site.directories).items():
                    self._left[node] = union(self._left.get(node, {}), of)

    def _add(self, site: Site, name: str) -> None:
        places = site.directories.consumers
        try:
            mark = marks_at(site.bucket, places, RealDisk(), name).read() or Mark()
        except (OSError, msgspec.DecodeError) as why:
            self.problems.append(Problem(f"the mark of consumer {name}", str(why)))
            return
        for of in (mark.done, mark.in_hand):
            for key, lsns in of.items():
                node, _, by = key.partition("_")
                self._read.setdefault(node, {}).setdefault(by, Lsns()).update(lsns)

    @property
    def nodes(self) -> set[str]:
        """The nodes with events that were read, or have left."""
        return self._read.keys() | self._left.keys()

    def of(self, node: str) -> Iterator[tuple[str, Lsns]]:
        """Each incarnation, and its lsns that are known to have been there."""
        for of in (self._read, self._left):
            yield from of.get(node, {}).items()

    def read(self, node: str, life: str) -> Lsns:
        """The lsns of an incarnation that a consumer has read."""
        return self._read.get(node, {}).get(life, Lsns())

    def left(self, node: str) -> Mapping[str, Lsns]:
        """The lsns that may have left an archive for good, by incarnation; one that is not
        there may be among those that went on from it.
        """
        return self._left.get(node, {})


def _names(site: Site) -> Sequence[str]:
    """Names of consumers that have ever said something."""
    return sorted({name for name in _there(site) if name and not name.startswith(".")})


def _there(site: Site) -> Iterator[str]:
    if (bucket := site.bucket) is not None:
        for one in bucket.list(OBJECT):
            yield one.name.removeprefix(OBJECT)
    elif (folder := site.directories.consumers).is_dir():
        for path in folder.iterdir():
            yield path.name
