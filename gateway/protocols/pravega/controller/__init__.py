"""Pravega's controller: the gRPC service where clients make streams and find segments.

`Controller` is what it knows and decides, one per `Container`; `accept` makes what a
listener needs of it.  docs/pravega.md says what each call does.
"""

from gateway.protocols.pravega.controller.controller import Controller
from gateway.protocols.pravega.controller.server import accept

__all__ = ["Controller", "accept"]
