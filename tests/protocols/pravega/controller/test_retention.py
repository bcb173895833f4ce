"""Retention of streams: by time, by size, by what subscribers have read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.protocols.pravega.controller.messages import decode, new
from gateway.protocols.pravega.controller.names import segment

Make = Callable[..., Any]

HOUR = 3600
KIB = 1 << 10
W = b"w" * 16
TIME, SIZE = 1, 2
EVENT = (KIB - 8).to_bytes(8) + bytes(KIB - 8)


class World:
    """A stream of two segments, written to by the hour."""

    def __init__(self, stream: Any, stream_info: Make) -> None:
        self.stream = stream
        self.service = stream.service
        self.state = self.service.container.state
        self.info = stream_info
        self.numbers: dict[int, int] = {}

    def policy(self, kind: int, param: int, most: int = 0) -> None:
        config = new("StreamConfig", stream_info=self.info())
        config.retention.kind, config.retention.param = kind, param
        config.retention.max = most or (1 << 63) - 1
        config.scaling.segments = 2
        assert self.stream.status("updateStream", config) == 0

    def write(self, number: int = 0) -> None:
        name = segment("sc", "st", number)
        last = self.state.find(name).number_of(W)
        change = self.state.append(
            name, W, max(last, 0) + 1, EVENT, self.service.container.now, claimed=1,
            last=last,
        )  # fmt: skip
        self.service.container.submit(change)
        self.service.store()

    def hours(self, count: float, *, writing: bool = True) -> None:
        """An event in the first segment at each, after the look at its beginning."""
        for _ in range(int(count)):
            for _ in range(60):
                self.service.clock.advance(60)
            self.service.store()
            if writing:
                self.write()

    def kept(self, number: int = 0) -> int:
        """Events that the segment has."""
        found = self.state.find(segment("sc", "st", number))
        return (found.length - found.start) // KIB

    def group(self, name: str) -> Any:
        begin = new("StreamCut", stream_info=self.info(), cut={0: 0, 1: 0})
        made = new(
            "ReaderGroupConfiguration", scope="sc", name=name, retention=2,
            id="11111111-1111-1111-1111-111111111111", begin=[begin],
        )  # fmt: skip
        self.stream.call("createReaderGroup", made)
        return made

    def has_read(self, group: Any, offset: int) -> None:
        cut = new("StreamCut", stream_info=self.info(), cut={0: offset, 1: 0})
        told = new(
            "SubscriberStreamCut", subscriber=f"sc/{group.name}", id=group.id,
            generation=0, stream_cut=cut,
        )  # fmt: skip
        assert self.stream.status("updateSubscriberStreamCut", told) == 0


@pytest.fixture
def world(stream: Any, stream_info: Make) -> World:
    return World(stream, stream_info)


def test_without_a_policy_all_is_kept(world: World) -> None:
    """For ever."""
    world.hours(100)
    assert world.kept() == 100


def test_by_time(world: World) -> None:
    """What is older goes within an hour; what is not stays, and so does the empty one."""
    world.policy(TIME, 10 * HOUR * 1000)
    world.hours(30)
    assert world.kept() in (11, 12)
    assert world.kept(1) == 0
    world.hours(11, writing=False)
    assert world.kept() == 0
    world.write()
    assert world.kept() == 1


def test_by_size(world: World) -> None:
    """The newest are kept, of all segments together."""
    world.policy(SIZE, 10 * KIB)
    for _ in range(10):
        world.hours(1)
        world.write(1)
    world.hours(1, writing=False)
    assert 10 <= world.kept() + world.kept(1) <= 12
    assert abs(world.kept() - world.kept(1)) <= 1
    world.policy(SIZE, 1000 * KIB)
    world.hours(5)
    assert world.kept() >= 10


def test_as_far_as_all_subscribers_have_read(world: World) -> None:
    """No more goes than all groups have read that tell so, whatever is due."""
    world.policy(TIME, HOUR * 1000)
    one, other = world.group("one"), world.group("other")
    world.hours(20)
    assert world.kept() == 20
    world.has_read(one, 15 * KIB)
    world.hours(1, writing=False)
    assert world.kept() == 20
    world.has_read(other, 5 * KIB)
    world.hours(1, writing=False)
    assert world.kept() == 15
    delete = new("ReaderGroupInfo", scope="sc", name="other", id=other.id)
    assert world.stream.status("deleteReaderGroup", delete) == 0
    world.hours(1, writing=False)
    assert world.kept() == 5


def test_a_subscriber_that_never_comes_back(world: World) -> None:
    """What is older than the policy's maximum goes, read or not; what is younger than
    its minimum stays, though all have read it.
    """
    world.policy(TIME, 5 * HOUR * 1000, 10 * HOUR * 1000)
    group = world.group("one")
    world.hours(30)
    assert world.kept() in (11, 12)
    world.has_read(group, 30 * KIB)
    world.hours(1, writing=False)
    assert 4 <= world.kept() <= 6


def test_a_default_for_streams_without_one(make_service: Make) -> None:
    """With `stream_retention` they, and segments of no stream, are truncated by time;
    internal segments never are.
    """
    service = make_service(stream_retention=10 * HOUR)
    state = service.container.state
    names = "plant/hall/0.#epoch.0", "sc/_RGg/0.#epoch.0"
    for name in names:
        service.container.submit(state.create(name, service.container.now))
        change = state.append(
            name, W, 1, EVENT, service.container.now, claimed=1, last=-(1 << 63)
        )
        service.container.submit(change)
    service.store()
    for _ in range(11 * 60):
        service.clock.advance(60)
    service.store()
    assert [state.find(name).start for name in names] == [KIB, 0]


def test_a_sealed_stream_is_let_go_as_well(world: World) -> None:
    """Retention goes on when nobody can write any more."""
    world.policy(TIME, 2 * HOUR * 1000)
    world.hours(3)
    assert world.stream.status("sealStream", world.info()) == 0
    world.hours(4, writing=False)
    assert world.kept() == 0


def test_the_policy_is_given_back(world: World) -> None:
    """As it was set."""
    world.policy(TIME, 5, 7)
    found = world.stream.call("getStreamConfiguration", world.info())
    policy = decode("StreamConfig", found.SerializeToString()).retention
    assert (policy.kind, policy.param, policy.max) == (TIME, 5, 7)
