"""The edge's side: this gateway's files go to another one, which has the tables.

    files.py         what there is to send, and what becomes of what was sent; blocks
    connection.py    one connection: what is said when
    forwarder.py     connects, again and again, and tells how it goes

docs/forward-v0.md is what goes over the line; `gateway/protocols/forward` the other end.
"""

from gateway.forward.files import ForwardedFiles
from gateway.forward.forwarder import Forwarder, Hub

__all__ = ["ForwardedFiles", "Forwarder", "Hub"]
