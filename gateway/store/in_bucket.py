"""What a bucket has of a node's files behind those that a start knows of.

There may be millions; names sort like lsns, so what is before costs nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.store import digests, incarnation
from gateway.store.bucket import ARCHIVE, FENCED, Bucket, BucketError, StoredObject
from gateway.store.incarnation import Incarnation
from gateway.store.names import last_lsn, parse_file_name

_PAGE = 1000

_IN_BUCKET = (
    "{url} has {name}, by incarnation {other} of node {node}, and this directory, {this}, "
    "knew of no lsn behind {here}: its disk is new, or it is an older copy, or two "
    "gateways have this name.  It goes on behind that file.  What was acknowledged and is "
    "neither in the bucket nor here is lost; give one of two gateways another `node`"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a bucket says of the node's files behind those that are known here."""

    uploaded: Sequence[str] = ()
    """Their names, in order."""
    archived: str = ""
    """The newest one that a job has archived, if it is newer than those."""
    refused: str = ""
    """Likewise of those that came too late."""
    unlisted: str | None = None
    """Why nothing is known."""

    def last_lsn(self, node: str) -> int:
        """Of those that were given and not refused; 0 if there are none."""
        return last_lsn(node, [*self.uploaded, self.archived])

    def newest(self, node: str) -> str:
        """The object with that lsn."""
        if last_lsn(node, [self.archived]) > last_lsn(node, self.uploaded):
            return f"{ARCHIVE}/{self.archived}"
        return self.uploaded[-1]


def ask(
    bucket: Bucket, node: str, directory: Path, here: int, in_tables: int, *, new: bool
) -> Asked:
    """What is there behind the last file that is known *here*.

    A *new* directory knows of no lsn that was given, so it must ask; one that was here
    before goes on without.  Raises `BucketError`.
    """
    try:
        names = files_behind(bucket, node, here)
        known = max(here, in_tables, last_lsn(node, names))
        return Asked(
            names,
            newest_below(bucket, ARCHIVE, node, known),
            newest_below(bucket, FENCED, node, known),
        )
    except BucketError as why:
        if new:
            raise BucketError(
                f"{directory} is new, so it has to be known what {bucket.url} has of node "
                f"{node}: {why}"
            ) from None
        return Asked(
            unlisted=f"{bucket.url} can not be listed, so this start goes on without: {why}"
        )


def files_behind(bucket: Bucket, node: str, lsn: int) -> list[str]:
    """Names of the node's files in a bucket that begin behind *lsn*, in order.

    What is before costs nothing, as names sort like lsns.  Raises `BucketError`.
    """
    return [one.name for one in objects_of(bucket, node, lsn)]


def objects_of(bucket: Bucket, node: str, lsn: int = 0) -> list[StoredObject]:
    """Likewise the objects, all of the node's by themselves."""
    begin = f"events-{node}-"
    # An lsn has 20 digits, and the first is always 0: so few names of nodes that begin
    # as this one does come between.
    found = bucket.list(f"{begin}0", f"{begin}{lsn + 1:020d}" if lsn else "")
    return [
        one
        for one in found
        if (parsed := parse_file_name(one.name)) and parsed.node == node
    ]


def newest_below(bucket: Bucket, folder: str, node: str, lsn: int) -> str:
    """The name of the node's newest file behind *lsn* in a folder of the bucket, or empty.

    There may be millions: as names sort like lsns, it is looked for in strides, in few
    requests.  Raises `BucketError`.
    """
    begin, stride, newest = f"{folder}/events-{node}-", 0, ""
    while True:
        page = bucket.list(f"{begin}0", f"{begin}{lsn + stride + 1:020d}")
        names = [one.name.rpartition("/")[2] for one in islice(page, _PAGE)]
        ours = [(last_lsn(node, [name]), name) for name in names]
        if names:
            found, name = max(ours)
            if found > lsn:
                lsn, newest = found, name
            if len(names) < _PAGE or found == 0:
                return newest
            stride = max(2 * stride, _PAGE)
        elif not stride:
            return newest
        else:
            stride //= 2


def newest_in(
    bucket: Bucket, this: Incarnation, node: str, name: str, here: int
) -> str:
    """A sentence about a file of the node of which this directory knew nothing."""
    other = "unknown"
    with contextlib.suppress(BucketError, pa.ArrowException):
        metadata = pq.read_metadata(pa.BufferReader(bucket.read(name))).metadata
        other = digests.said(metadata, incarnation.KEY) or other
    return _IN_BUCKET.format(
        url=bucket.url, name=name, other=other, node=node, this=this.id, here=here
    )
