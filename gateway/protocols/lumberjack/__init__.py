"""Lumberjack, versions 1 and 2: what Beats, logstash-forwarder and their kin speak.

`accept` makes what a listener needs, `decode` turns a stored batch into rows; the
other way round, `client` is a writer.  docs/lumberjack.md says what is accepted, what
is refused and what becomes of events that are not fine.
"""

from gateway.protocols.lumberjack.events import decode
from gateway.protocols.lumberjack.server import accept

__all__ = ["accept", "decode"]
