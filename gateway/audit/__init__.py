"""The audit, read only: is every acknowledged event in lake, spool or journal, once?

    report = audit(Directories.under(data_dir))
    assert report.complete

The gateway and the Spark job may be at work meanwhile.

    counts   how often each lsn was seen
    sites    where one audit looks: directories, buckets, tables, gateways
    lake     the tables
    sinks    the tables of each kind of sink
    remote   tables in object storage
    variant  strings out of a VARIANT
    files    journal segments and spool files
    bucket   those that are in a bucket
    consumed what consumers have read, where no job of ours takes files
    look     all of them, as one look finds them
    judge    what it found, against what each node has to have
    proof    looks until nothing has moved meanwhile, and what is known of faults
    payloads the payloads, by the digests of their files
    content  events that their sender sent twice
    acknowledged  those that senders had acknowledged
    verify   spool files alone: what `gateway spool verify` does
    chain    the files, by the links between them
    report   what was found
"""

from gateway.audit.lake import Problem
from gateway.audit.proof import audit
from gateway.audit.report import Double, Hole, Life, Node, Report

__all__ = ["Double", "Hole", "Life", "Node", "Problem", "Report", "audit"]
