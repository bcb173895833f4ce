"""What the Pravega tests share: blocks, and a state that is made durable at will."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from gateway.pravega.segments import Change, Segments
from gateway.pravega.wire import NEVER


def block(*events: bytes) -> bytes:
    """Events as they lie in blocks and segments."""
    return b"".join(struct.pack(">II", 0, len(event)) + event for event in events)


class Model:
    """`Segments` whose changes are remembered, and durable when told."""

    def __init__(self) -> None:
        self.state = Segments()
        self.bodies: list[bytes] = []
        self.stored_lsns: list[int] = []
        self.lsn = 1
        self.create("s")

    def keep(self, change: Change) -> Change:
        self.bodies.append(change.body)
        self.stored_lsns.append(self.lsn)
        list(self.state.stored(change.body, self.lsn))
        self.lsn += change.count
        return change

    def create(self, name: str) -> Change:
        return self.keep(self.state.create(name, 0))

    def append(
        self,
        data: bytes,
        number: int,
        *,
        name: str = "s",
        writer: bytes = b"w" * 16,
        **more: Any,
    ) -> Change:
        segment = self.state.segments.get(name)
        last = NEVER if segment is None else segment.number_of(writer)
        more = {"claimed": 1, "last": last} | more
        return self.keep(self.state.append(name, writer, number, data, 0, **more))

    def replayed(self, *, onto: Segments | None = None) -> Segments:
        """What a restart makes of the journal."""
        state = onto or Segments()
        for body, lsn in zip(self.bodies, self.stored_lsns, strict=True):
            list(state.replay(body, lsn, 0))
        return state


@pytest.fixture
def model() -> Model:
    """Segments with one, `s`, that is empty."""
    return Model()


@pytest.fixture(scope="session", name="block")
def _block() -> Callable[..., bytes]:
    """`block(*events)`."""
    return block
