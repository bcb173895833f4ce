"""Pravega: what its clients speak to a segment store, in today's wire (version 17) and
in that of its first proposal, the seed's.

`accept` makes what a listener needs of a `Container`, which a daemon has one of;
`decode` turns a stored batch into rows.  docs/pravega.md says what is accepted, what is
refused, and what is stored where.
"""

from gateway.protocols.pravega.container import Container, Reader
from gateway.protocols.pravega.records import decode
from gateway.protocols.pravega.server import accept

__all__ = ["Container", "Reader", "accept", "decode"]
