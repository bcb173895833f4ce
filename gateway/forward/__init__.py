"""The edge's side: this gateway's files go to another one, which has the tables.

    http.py          a connection, which blocks
    hub.py           what a hub has, and how a file gets there
    forwarder.py     which hub, when; tells how it goes

docs/forward.md is what is said; `gateway/protocols/forward` the other end.
"""

from gateway.forward.forwarder import Forwarder, HubState, tell

__all__ = ["Forwarder", "HubState", "tell"]
