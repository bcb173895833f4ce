"""Append blocks as a writer sends them, and what a segment holds then."""

from typing import Any

from gateway.protocols.pravega.frames import frame
from gateway.protocols.pravega.wire import AppendBlock, AppendBlockEnd

from .conftest import W


def bare(
    data: bytes, last: int, events: int = 1, request: int = 9, writer: bytes = W
) -> AppendBlockEnd:
    return AppendBlockEnd(writer, len(data), data, events, last, request)


def blocked(data: bytes, tail: bytes, size: int, last: int, events: int) -> list[Any]:
    """The two messages of a block: its area, and its end."""
    return [AppendBlock(W, data), AppendBlockEnd(W, size, tail, events, last, 9)]


def partial(data: bytes) -> bytes:
    return frame(-2, data)


def padding(size: int) -> bytes:
    return frame(-1, bytes(size))


def content(store: Any, name: str = "s") -> bytes:
    found = store.container.recent.read(name, 0, 1 << 24)
    return b"" if found is None else found
