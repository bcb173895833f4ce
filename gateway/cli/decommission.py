"""`gateway decommission`: say that a directory of a node comes back no more."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gateway.cli import _data_dir
from gateway.cli import audit as auditing
from gateway.sdk.command import WrongUse, printable

if TYPE_CHECKING:
    from gateway.audit.report import Report
    from gateway.audit.sites import Site
    from gateway.store.node.lives import Unknown
    from gateway.store.objects.node_record import NodeRecord

HELP = """\
Say that nothing follows what a node's gateway has acknowledged, as it is gone for good.

A gateway that stopped in good order may have been started again while its bucket or hub was
away, so `gateway audit` waits for it to be heard of again: say here that it was not, and is
not any more.  So do days that are complete (`gateway table complete`).  What it is known to have acknowledged is asked for as before.  Say it where
the job is, or at a hub; it is kept there (arrivals/NODE_INCARNATION), and a gateway of that
data_dir hands it on, to its bucket or hub, when that is there.  Where none runs any more, the
hub is told at once; if it is away, say it again when it is back.

On the machine itself, after its gateway was stopped, it says that of its own directory, once
all of it is published.  A gateway that is started there again goes on nevertheless.

Example:
  gateway decommission gw-7 --config job.yaml
  gateway decommission shop-17 --reason "closed on May 3" --config /etc/gateway/hub.yaml

Exit status: 0 said; 2 wrong use, or nobody waits for it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.add_argument("name", metavar="NODE", help="which gateway is gone")
    parser.add_argument(
        "--reason", default="decommissioned", help="why, for whoever asks later"
    )
    parser.add_argument(
        "--incarnation",
        metavar="ID",
        default="",
        help="which, or the first characters of it; where a node had several directories",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    _data_dir.add_arguments(parser, several=True)


def run(args: argparse.Namespace) -> int:
    """Write it down; 0.  Raises `WrongUse`."""
    with _data_dir.readable():
        site, *others = [_data_dir.site(each) for each in _data_dir.each(args)]
        said = _own(site, args.name, args.reason)
        if said is None:
            report = auditing.report_of(args, site, others, node=args.name)
            ends = _waited_for(report, args.name, args.incarnation)
            records = [_word(site, one, args.reason) for one in ends]
        else:
            records = [said]
        for record in records:
            _keep(site, args.name, record)
        untold = _tell_hub(_data_dir.each(args)[0], site, args.name, records)
    found = [{"incarnation": one.incarnation, "lsn": one.lsn} for one in records]
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        for record in records:
            print(
                printable(
                    f"decommissioned: {args.name} (incarnation {record.incarnation}), which"
                    f" had acknowledged up to lsn {record.lsn}"
                )
            )
    if untold:
        print(printable(f"the hub is not told yet: {untold}"), file=sys.stderr)
    return 0


def _tell_hub(
    args: argparse.Namespace, site: Site, node: str, records: Iterable[NodeRecord]
) -> str:
    """Tell the hub, where files go to one and no gateway runs here; why it was not told."""
    import msgspec

    from gateway.forward import tell
    from gateway.store.system.disk import RealDisk
    from gateway.store.system.lock import is_locked

    config = _data_dir.config_of(args)
    if config is None or config.forward is None:
        return ""
    if is_locked(site.directories.journal_of(config.node)):
        return ""  # it does, within a minute
    said = [(node, one.incarnation, msgspec.json.encode(one)) for one in records]
    return tell(config.forward, config.node, said, RealDisk())


def _own(site: Site, node: str, reason: str) -> NodeRecord | None:
    """The record about this machine's own directory; None if it has none of that node.

    Raises `WrongUse` where the node runs, or has not published all.
    """
    from gateway.store.finder import spool_files
    from gateway.store.node import catalog, mark
    from gateway.store.node.incarnation import Incarnation
    from gateway.store.objects.node_record import MOST_EARLIER, NodeRecord
    from gateway.store.system.lock import is_locked
    from gateway.store.system.statefile import look

    places = site.directories
    journal = places.journal_of(node)
    if (this := catalog.look(journal).newest(Incarnation)) is None:
        return None
    if is_locked(journal):
        raise WrongUse(
            f"the gateway of node {node} runs on {places.root}: stop it first"
        )
    marked = look(places.state_of(node) / mark.NAME, mark.Mark) or mark.Mark()
    handed_on = site.bucket is not None or site.forwards
    waiting = spool_files(places.spool).get(node, []) if handed_on else []
    if waiting or not (marked.exact and marked.incarnation == this.id):
        raise WrongUse(
            f"not all that node {node} acknowledged here is handed on: let its gateway run"
            " until it is, and stop it in good order"
        )
    earlier = this.whole[-MOST_EARLIER:]
    return NodeRecord(
        this.id,
        this.since,
        max(marked.durable, this.since - 1),
        time.time(),
        "journal",
        exact=True,
        earlier=earlier,
        begins=tuple(this.began[each] for each in earlier),
        published=marked.published,
        decommissioned=reason,
    )


def _waited_for(report: Report, node: str, incarnation: str) -> list[Unknown]:
    """The ends that are known once nothing follows.  Raises `WrongUse`."""
    from gateway.store.node.lives import Reason

    ends = [one for one in report.unknown if not one.accepted]
    known = {one.incarnation for one in ends}
    quiet = (one for one in report.quiet if one.incarnation not in known)
    found = [
        one
        for one in (*ends, *quiet)
        if one.incarnation.startswith(incarnation)
        and (one.why.vouches or one.why in (Reason.ENDED, Reason.SILENT))
    ]
    if found:
        return found
    lost = next((one for one in ends if one.incarnation.startswith(incarnation)), None)
    if lost is not None:
        raise WrongUse(
            f"{lost}: gateway audit accept {node} {lost.last + 1}- accepts it"
        )
    raise WrongUse(f"nothing of node {node} is waited for")


def _word(site: Site, end: Unknown, reason: str) -> NodeRecord:
    """The last record of an incarnation, and that nothing follows."""
    import msgspec

    from gateway.store.objects import node_record

    heard = [*node_record.at_hub(site.directories.arrivals, end.node)]
    if site.bucket is not None:
        heard += node_record.read_all(site.bucket, end.node)
    said = [
        one for one in heard if one.record and one.record.incarnation == end.incarnation
    ]
    last = max(said, key=lambda one: one.modified, default=None)
    if last is None or last.record is None:
        known = node_record.NodeRecord(
            end.incarnation, 0, end.last, end.heard, end.ack or "journal"
        )
        heard_at = end.heard
    else:
        known, heard_at = last.record, last.modified
    return msgspec.structs.replace(known, heard=heard_at, decommissioned=reason)


def _keep(site: Site, node: str, record: NodeRecord) -> None:
    """Here, durably, and in the bucket, if that is there now."""
    import msgspec

    from gateway.store.objects.bucket import BucketError
    from gateway.store.objects.node_record import hear, name_of
    from gateway.store.system.disk import RealDisk

    hear(site.directories.arrivals, node, record, time.time(), RealDisk())
    if site.bucket is not None:
        with contextlib.suppress(BucketError):  # a gateway hands it on
            name = name_of(node, record.incarnation)
            site.bucket.replace(name, msgspec.json.encode(record))
