"""Automatic scaling: what splits segments, what merges them, and what does neither."""

from typing import Any

import pytest

from gateway.protocols.pravega.controller.names import segment
from pravega_messages import new

from .scaled import event

BY_BYTES, BY_EVENTS = 1, 2


class Written:
    """A stream with a policy by rate, minute by minute."""

    def __init__(self, peer: Any) -> None:
        self.peer, self.service = peer, peer.service
        self.info = new("StreamInfo", scope="sc", stream="st")

    def policy(self, kind: int, target: int, factor: int = 2, least: int = 1) -> None:
        config = new("StreamConfig", stream_info=self.info)
        config.scaling.kind, config.scaling.target_rate = kind, target
        config.scaling.scale_factor, config.scaling.segments = factor, least
        assert self.peer.status("updateStream", config) == 0

    @property
    def ranges(self) -> list[tuple[float, float]]:
        found = self.peer.call("getCurrentSegments", self.info).ranges
        return [(each.low, each.high) for each in found]

    def minutes(self, count: int, *rates: float, size: int = 0) -> None:
        """Events a second into each segment that there is, in order of keys."""
        for _ in range(count):
            found = self.peer.call("getCurrentSegments", self.info).ranges
            for each, rate in zip(found, rates, strict=False):
                self._write(each.segment.number, int(rate * 60), size)
            self.service.clock.advance(60)
            self.service.store()

    def _write(self, id_: int, count: int, size: int) -> None:
        if not count:
            return
        self.service.append(segment("sc", "st", id_), event(bytes(size)), events=count)


@pytest.fixture
def written(stream) -> Written:
    """Two segments, of the keys below and above a half."""
    return Written(stream)


def test_a_segment_is_split_by_events(written):
    """After two minutes of far too many, into as many as the rate asks for; the other
    stays.
    """
    written.policy(BY_EVENTS, 10, factor=4)
    written.minutes(2, 60, 1)
    assert written.ranges == [(0, 0.5), (0.5, 1)]
    written.minutes(1, 60, 1)
    assert written.ranges == [
        (0, 0.125), (0.125, 0.25), (0.25, 0.375), (0.375, 0.5), (0.5, 1),
    ]  # fmt: skip


def test_a_segment_is_split_by_bytes(written):
    """In KiB a second; at least into two."""
    written.policy(BY_BYTES, 1, factor=1)
    written.minutes(12, 0, 1 / 60, size=70_000)
    assert written.ranges == [(0, 0.5), (0.5, 0.75), (0.75, 1)]


@pytest.mark.parametrize(("rate", "minutes"), [(21, 6), (11, 11)])
def test_slightly_too_much_takes_longer(written, rate, minutes):
    """Twice the target for five minutes, or more than it for ten."""
    written.policy(BY_EVENTS, 10, least=2)
    written.minutes(minutes - 1, rate, 1)
    assert len(written.ranges) == 2
    written.minutes(1, rate, 1)
    assert len(written.ranges) == 3


def test_neighbours_are_merged(written):
    """After ten minutes of little, two at a time, down to the policy's least number."""
    written.policy(BY_EVENTS, 10, least=4)
    assert len(written.ranges) == 4
    written.policy(BY_EVENTS, 10, least=2)
    written.minutes(10, 1, 1, 8, 1)
    assert len(written.ranges) == 4
    written.minutes(1, 1, 1, 8, 1)
    assert written.ranges == [(0, 0.5), (0.5, 0.75), (0.75, 1)]
    written.minutes(30, 1, 1, 1)
    assert len(written.ranges) == 2


def test_what_is_right_stays(written):
    """A rate at the target, and one policy that asks for a fixed number."""
    written.policy(BY_EVENTS, 10)
    written.minutes(30, 9, 9)
    assert written.ranges == [(0, 0.5), (0.5, 1)]
    written.policy(0, 0, least=2)
    written.minutes(30, 1000, 0)
    assert written.ranges == [(0, 0.5), (0.5, 1)]


def test_one_busy_key_is_set_apart_and_no_more(written):
    """Its segment is split until it has few of the keys, and then stays, however long."""
    written.policy(BY_EVENTS, 10, factor=8)
    for _ in range(70):
        busy = [1000 * (low <= 0.3 < high) for low, high in written.ranges]
        written.minutes(1, *busy)
    assert 2**-16 <= min(high - low for low, high in written.ranges) < 2**-12


def test_a_sealed_stream_stays(written):
    """Whatever it was written to before."""
    written.policy(BY_EVENTS, 10)
    written.minutes(2, 100, 100)
    written.peer.call("sealStream", written.info)
    written.minutes(5)
    assert len(written.service.names) == 2


def test_no_room_for_more(make_service, config, logged):
    """A stream that would be split has no room: the log says so once, with the limit,
    and it is split when there is.
    """
    service = make_service(segments=7)
    peer = service.peer()
    peer.call("createScope", new("ScopeInfo", scope="sc"))
    for name in ("other", "st"):
        assert peer.status("createStream", config(name, 1)) == 0
    written = Written(peer)
    written.policy(BY_EVENTS, 10)
    written.minutes(4, 1000)
    assert written.ranges == [(0, 1)]
    [told] = [each for each in logged if each.get("what") == "Scaling"]
    assert told["name"] == "sc/st"
    assert "limit 7 (options.segments)" in str(told["why"])
    other = new("StreamInfo", scope="sc", stream="other")
    peer.call("sealStream", other)
    peer.call("deleteStream", other)
    written.minutes(1, 1000)
    assert len(written.ranges) == 2
