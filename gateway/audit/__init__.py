"""The proof: is every acknowledged event exactly once in lake, spool and journal?

    report = audit(Directories.under(data_dir))
    assert report.complete

It only reads, and may do so while the gateway and the Spark job are at work.

    ranges   sets of lsns
    counts   how often each lsn was seen
    lake     the tables
    files    journal segments and spool files
    proof    all of them together
"""

from gateway.audit.lake import Problem
from gateway.audit.proof import Double, Hole, Node, Report, audit

__all__ = ["Double", "Hole", "Node", "Problem", "Report", "audit"]
