"""The nodes whose files a job meets: what of each is in the tables, what waits, and how one
that left is forgotten.

A job needs no list of its nodes: files have their node's name.  What is forgotten is drained
first.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gateway.spark.bucket.clearing import keep
from gateway.spark.bucket.missing import known, lacking
from gateway.spark.commit.ledger import Ledger
from gateway.store.lsns import Lsns
from gateway.store.names import FoundFile, found_file
from gateway.store.objects import node_record
from gateway.store.objects.bucket import Bucket


class NotDrained(Exception):
    """A job is not done with a node's files; the text says how many."""


class Unknown(Exception):
    """There is no such node."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state of one node, as bucket and ledger say."""

    node: str
    in_tables: int
    """The last lsn that is in the tables; 0 if there is none."""
    files: int
    """Files that wait in the bucket."""
    events: int
    """Events in the files that wait."""
    lacking: int
    """Events that are in no table and not in the bucket, while later ones are."""
    oldest: float | None
    """When the first of them came, by the bucket's clock."""
    served_by: str | None
    """The incarnation that has said something of itself lately; several, if two gateways
    have its name."""


def states(bucket: Bucket, ledger: Ledger) -> list[NodeState]:
    """The states of all nodes that were ever met, by name.  Raises `BucketError`."""
    in_tables = ledger.committed
    last = in_tables.last()
    aside = _aside(ledger)
    there = known(ledger)
    waiting: dict[str, list[FoundFile]] = {}
    for one in _files(bucket, ""):
        file = one.file
        mine = waiting.setdefault(file.node, [])
        there.setdefault(file.node, Lsns()).add(file.first, file.last)
        if not (in_tables.covers(file) or one.name in aside):
            mine.append(one)
    missing: Counter[str] = Counter()
    for node, lsns in lacking(there).items():
        missing[node] += lsns.size
    found = []
    for node in sorted(waiting.keys() | last.keys()):
        files = waiting.get(node, [])
        found.append(
            NodeState(
                node,
                last.get(node, 0),
                len(files),
                sum(one.file.events for one in files),
                missing[node],
                min((one.since for one in files), default=None),
                _served(bucket, node),
            )
        )
    return found


def _served(bucket: Bucket, node: str) -> str | None:
    now = time.time()
    alive = [
        one.record.incarnation
        for one in node_record.read_all(bucket, node)
        if one.record is not None
        and not one.record.exact
        and abs(now - one.modified) <= node_record.SILENT_SECONDS
    ]
    return ", ".join(alive) or None


def forget(
    bucket: Bucket,
    ledger: Ledger,
    node: str,
    *,
    inbox: Collection[str] = (),
    archived: bool,
) -> int:
    """Take the last of a node's files out of the bucket; its last lsn.

    What its incarnations said of themselves stays: how far they had acknowledged, and who
    went on from whom, the audit asks for as long as there are tables.  Files in *inbox* are still in the hands of a job.  Objects go to the bucket's archive if
    *archived*.  Raises `Unknown`, `NotDrained`, also where the gateway runs, `BucketError`.
    """
    known = {one.node for one in states(bucket, ledger)}
    if node not in known:
        there = ", ".join(sorted(known)) or "none"
        raise Unknown(f"no node {node} has files or rows here; there is {there}")
    if (by := _served(bucket, node)) is not None:
        raise NotDrained(
            f"node {node} is served: its incarnation {by} has said so in the last"
            f" {node_record.SILENT_SECONDS:g} s; stop that gateway first"
        )
    _check_drained(bucket, ledger, node, inbox)
    last = ledger.committed.last().get(node, 0)
    for one in list(_files(bucket, node)):
        last = max(last, one.file.last)
        if archived:
            keep(bucket, one.name)
        bucket.remove(one.name)
    return last


def _check_drained(
    bucket: Bucket, ledger: Ledger, node: str, inbox: Collection[str]
) -> None:
    aside = _aside(ledger)
    waiting = [
        one.file
        for one in _files(bucket, node)
        if one.name in inbox
        or not (one.name in aside or ledger.committed.covers(one.file))
    ]
    if waiting:
        events = sum(file.last - file.first + 1 for file in waiting)
        raise NotDrained(
            f"the job is not done with {len(waiting)} files of node {node} with {events}"
            f" events, {waiting[0].name} first: let gateway spark run until it is"
        )


def _aside(ledger: Ledger) -> set[str]:
    """Names of files that were moved aside, and written down."""
    return {hole.file for hole in ledger.holes}


def _files(bucket: Bucket, node: str) -> Iterator[FoundFile]:
    """The files of one node, or of all if that is empty."""
    for one in bucket.list(f"events-{node}_" if node else "events-"):
        if (found := found_file(one.name, one.bytes, one.modified)) is not None:
            yield found
