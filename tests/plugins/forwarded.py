"""Files that an edge has, and forwards."""

import hashlib
import io

import pyarrow.parquet as pq

from gateway.event import Rows
from gateway.sdk.arrivals import Announced
from gateway.store.digests import EVENTS_KEY
from gateway.store.names import file_name, parse_file_name
from incarnations import A
from spools import spool_file

__all__ = ["Sent", "announced"]


class Sent:
    """One of them, with its bytes."""

    def __init__(
        self,
        first: int,
        count: int = 3,
        *,
        by: str = A,
        node: str = "edge",
        text: str = "event",
    ) -> None:
        payloads = [f"{text} {first + at}".encode() for at in range(count)]
        self.data = spool_file(node, first, [Rows(payloads)], incarnation=by)
        self.name = file_name(node, by, first, first + count - 1)
        named = parse_file_name(self.name)
        assert named is not None
        self.named = named
        self.file = announced(self.data, self.name)


def announced(data: bytes, name: str) -> Announced:
    """What is said of a file with these bytes."""
    events = "0" * 64
    try:
        said = pq.read_metadata(io.BytesIO(data)).metadata or {}
        events = said.get(EVENTS_KEY, events.encode()).decode()
    except Exception:
        pass  # it is to be no file
    return Announced(name, len(data), hashlib.sha256(data).hexdigest(), events)
