"""A stream that is scaled while it is written to, for tests: who scales it, and who writes."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, ClassVar

from gateway.protocols.pravega.controller.names import segment
from gateway.protocols.pravega.records import decode
from pravega_messages import new

E1, E2, E3 = 1 << 32, 2 << 32, 3 << 32
STARTED = 0


def event(data: bytes) -> bytes:
    return struct.pack(">II", 0, len(data)) + data


def payloads(data: bytes) -> Iterator[bytes]:
    """What is in each of these whole events."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(">II", data, at)
        assert kind == 0
        at += 8 + size
        yield data[at - size : at]


class Scaled:
    """The stream `sc/st`, which begins with two segments, and who scales it."""

    def __init__(self, peer: Any) -> None:
        self.peer = peer
        self.service = peer.service
        self.info = new("StreamInfo", scope="sc", stream="st")

    def on(self, peer: Any) -> Scaled:
        return Scaled(peer)

    def scale(self, sealed: list[int], *ranges: tuple[float, float]) -> Any:
        request = new(
            "ScaleRequest",
            stream_info=self.info,
            sealed=sealed,
            ranges=[{"low": low, "high": high} for low, high in ranges],
        )
        return self.peer.call("scale", request)

    def split(self) -> None:
        """The first segment, of keys below a half, becomes two."""
        assert self.scale([0], (0, 0.25), (0.25, 0.5)).status == STARTED

    @property
    def current(self) -> list[tuple[int, float, float]]:
        found = self.peer.call("getCurrentSegments", self.info).ranges
        return [(each.segment.number, each.low, each.high) for each in found]

    @property
    def configured(self) -> tuple[int, list[str]]:
        found = self.peer.call("getStreamConfiguration", self.info)
        return found.scaling.segments, list(found.tags.tag)

    def following(self, number: int) -> dict[int, list[int]]:
        id_ = new("SegmentId", stream_info=self.info, number=number)
        found = self.peer.call("getSegmentsImmediatelyFollowing", id_).segments
        return {each.segment.segment.number: list(each.value) for each in found}

    def head(self) -> dict[int, int]:
        request = new("GetSegmentsRequest", stream_info=self.info)
        found = self.peer.call("getSegments", request).segments
        return {each.segment.number: each.offset for each in found}

    def between(self, begin: Any = (), end: Any = ()) -> list[int]:
        request = new("StreamCutRange", stream_info=self.info)
        request.begin.update(dict.fromkeys(begin, 0))
        request.end.update(dict.fromkeys(end, 0))
        found = self.peer.call("getSegmentsBetween", request).segments
        return [each.number for each in found]

    def truncate(self, cut: dict[int, int]) -> int:
        request = new("StreamCut", stream_info=self.info, cut=cut)
        found: int = self.peer.status("truncateStream", request)
        return found

    def write(self, name: str, data: bytes) -> None:
        self.service.append(name, event(data))

    def update(self, config: Any) -> int:
        found: int = self.peer.status("updateStream", config)
        return found


def begun(scaled: Scaled) -> Any:
    request = new("CreateTxnRequest", stream_info=scaled.info, lease=600_000)
    return scaled.peer.call("createTransaction", request)


def staged(name: str, txn: Any) -> str:
    return f"{name}#transaction.{txn.high:016x}{txn.low:016x}"


def merge_what_waits(scaled: Scaled) -> None:
    """The moment for which a commit waits for others passes."""
    scaled.service.clock.advance(1.0)
    scaled.service.store()


class Writers:
    """Transactions and events of three keys, and what readers must find."""

    KEYS: ClassVar = {b"a": 0.1, b"b": 0.3, b"c": 0.8}

    def __init__(self, scaled: Scaled) -> None:
        self.scaled = scaled
        self.written: dict[bytes, list[bytes]] = {key: [] for key in self.KEYS}
        self.staged: dict[int, dict[bytes, list[bytes]]] = {}
        self._count = 0

    def _event(self, key: bytes) -> bytes:
        self._count += 1
        return key + b"%d" % self._count

    def _segment(self, key: bytes, ranges: list[tuple[int, float, float]]) -> int:
        [found] = [id_ for id_, low, high in ranges if low <= self.KEYS[key] < high]
        return found

    def write(self, *keys: bytes) -> None:
        """An event of each key, without a transaction."""
        for key in keys:
            data = self._event(key)
            number = self._segment(key, self.scaled.current)
            self.scaled.write(segment("sc", "st", number), data)
            self.written[key].append(data)

    def begin(self, *keys: bytes) -> Any:
        """A transaction with two events of each of these keys."""
        made = begun(self.scaled)
        ranges = [(each.segment.number, each.low, each.high) for each in made.ranges]
        events = self.staged[made.txn.low] = {key: [] for key in keys}
        for key in 2 * keys:
            events[key].append(self._event(key))
            number = self._segment(key, ranges)
            name = staged(segment("sc", "st", number), made.txn)
            self.scaled.write(name, events[key][-1])
        return made.txn

    def commit(self, *txns: Any) -> None:
        """One after the other, in the same moment."""
        for txn in txns:
            request = new("TxnRequest", stream_info=self.scaled.info, txn=txn)
            assert self.scaled.peer.status("commitTransaction", request) == 0
            for key, events in self.staged.pop(txn.low).items():
                self.written[key] += events
        merge_what_waits(self.scaled)

    def check(self) -> None:
        """Readers find all events once, those of a key in order, whoever is slow."""
        rows: defaultdict[str | None, list[bytes]] = defaultdict(list)
        for stored in self.scaled.service.journal.stored:
            found = decode(stored.batch.body)
            for place, payload in enumerate(found.each()):
                rows[found.channels.get(place, found.channel)].append(payload)
        for first in (0, -1):
            seen: dict[bytes, list[bytes]] = {key: [] for key in self.KEYS}
            for number in self._in_turn(first):
                for payload in rows[segment("sc", "st", number)]:
                    seen[payload[:1]].append(payload)
            assert seen == self.written

    def _in_turn(self, first: int) -> Iterator[int]:
        """The segments: each when all those that it follows have been read."""
        ready, done = sorted(self.scaled.head()), set[int]()
        while ready:
            done.add(number := ready.pop(first))
            yield number
            for each, follows in self.scaled.following(number).items():
                if done.issuperset(follows):
                    ready.append(each)
