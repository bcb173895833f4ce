"""What a bucket has of a node's files behind those that a start knows of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.store.bucket import ARCHIVE, FENCED, Bucket, BucketError, StoredObject
from gateway.store.incarnation import Incarnation
from gateway.store.names import last_lsn, parse_file_name

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
    """Names of the node's files in a bucket that begin behind *lsn*, in order of lsn.

    Raises `BucketError`.
    """
    return [one.name for one in objects_of(bucket, node, lsn)]


def objects_of(bucket: Bucket, node: str, lsn: int = 0) -> list[StoredObject]:
    """The node's files in a bucket that begin behind *lsn*, in order of lsn."""
    found = []
    for one in bucket.list(f"events-{node}_"):
        parsed = parse_file_name(one.name)
        if parsed is not None and parsed.first > lsn:
            found.append((parsed.first, parsed.last, one.name, one))
    return [one for *_, one in sorted(found)]


def newest_below(bucket: Bucket, folder: str, node: str, lsn: int) -> str:
    """The name of the node's newest file behind *lsn* in a folder of the bucket, or empty.

    Raises `BucketError`.
    """
    newest = ""
    for one in bucket.list(f"{folder}/events-{node}_"):
        name = one.name.rpartition("/")[2]
        if (found := last_lsn(node, [name])) > lsn:
            lsn, newest = found, name
    return newest


def newest_in(
    bucket: Bucket, this: Incarnation, node: str, name: str, here: int
) -> str:
    """A sentence about a file of the node of which this directory knew nothing."""
    parsed = parse_file_name(name.removeprefix(f"{ARCHIVE}/"))
    other = parsed.incarnation if parsed else "unknown"
    return _IN_BUCKET.format(
        url=bucket.url, name=name, other=other, node=node, this=this.id, here=here
    )
