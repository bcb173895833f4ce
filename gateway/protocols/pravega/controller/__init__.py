"""Pravega's controller: the gRPC service where clients create streams and find segments.

`Controller` answers the calls, one per `Container`; `ControllerAccept` makes the server
side of a listener on top of it.  docs/pravega.md says what each call does.
"""

from gateway.protocols.pravega.controller.controller import Controller
from gateway.protocols.pravega.controller.server import ControllerAccept

__all__ = ["Controller", "ControllerAccept"]
