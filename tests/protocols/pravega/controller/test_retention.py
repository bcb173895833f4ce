"""Retention of streams: by time, by size, by what subscribers have read."""

from typing import Any

import pytest
from twisted.internet.task import Clock

from gateway.protocols.pravega import snapshot
from gateway.protocols.pravega.controller import rounds
from gateway.protocols.pravega.controller.names import segment
from making import Make
from pravega_messages import new

HOUR = 3600
KIB = 1 << 10
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
        self.service.append(segment("sc", "st", number), EVENT)

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
def world(stream, stream_info) -> World:
    return World(stream, stream_info)


def test_without_a_policy_all_is_kept(world):
    world.hours(100)
    assert world.kept() == 100


def test_by_time(world):
    """What is older goes within an hour; what is not stays, and so does the empty one."""
    world.policy(TIME, 10 * HOUR * 1000)
    world.hours(30)
    assert world.kept() in (11, 12)
    assert world.kept(1) == 0
    world.hours(11, writing=False)
    assert world.kept() == 0
    world.write()
    assert world.kept() == 1


@pytest.mark.parametrize("set_right", [True, False])
def test_a_start_with_a_clock_that_is_a_year_ahead(world, set_right):
    """Nothing is old by that for a day, and after it only if the clock was not set right
    since; our own is that of the start.
    """
    world.policy(TIME, 100 * HOUR * 1000)
    world.hours(3)
    ahead = 365 * 24 * HOUR
    world.service = world.service.restarted(later=ahead)
    world.state = world.service.container.state
    begun = world.service.clock.seconds()
    wall = begun + 24 * HOUR - (ahead if set_right else 0)
    world.service.controller._retention._wall_clock = lambda: wall
    world.hours(23, writing=False)
    assert world.kept() == 3
    world.hours(2, writing=False)
    assert world.kept() == (3 if set_right else 0)
    world.hours(80, writing=False)
    assert world.kept() == 0, "older than a hundred hours, however one counts"


def test_a_second_start_with_a_clock_that_is_a_year_ahead(world, make_service):
    """What was written since the first one proves nothing: the day counts from there on."""
    world.policy(TIME, 100 * HOUR * 1000)
    world.hours(3)
    ahead = 365 * 24 * HOUR
    for runs, later in enumerate((ahead, 1), 1):
        clock = Clock()
        clock.advance(world.service.clock.seconds() + later)
        state = snapshot.restore(snapshot.save(world.state))
        world.service = make_service(state=state, clock=clock)
        world.state = world.service.container.state
        world.service.controller._retention._wall_clock = clock.seconds
        world.hours(11)
        assert world.kept() == 3 + 11 * runs
    world.hours(2)
    assert world.kept() == 3 + 24
    world.hours(1)
    assert world.kept() == 25


def test_a_pause_keeps_nothing_longer(world):
    """What was written before one goes when it is old, though no mark lies between it and
    what was written after.
    """
    world.policy(TIME, 10 * HOUR * 1000)
    world.write()
    world.hours(0.5, writing=False)
    world.service.clock.advance(HOUR / 2)
    world.write()
    world.hours(9, writing=False)
    world.write()
    assert world.kept() == 3
    world.hours(2, writing=False)
    assert world.kept() == 1


def test_by_size(world):
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


def test_by_size_after_the_clock_was_set_back(world, stream_info):
    """The newest are kept all the same, though the last one seems to be the oldest."""
    world.policy(SIZE, 5 * KIB)
    world.hours(8)
    again = World(world.service.restarted(later=-6 * HOUR).peer(), stream_info)
    again.write()
    for _ in range(15):
        again.hours(1, writing=False)
        assert again.kept() >= 5
        again.write()
    assert again.kept() <= 7


def test_as_far_as_all_subscribers_have_read(world):
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


def test_a_group_that_begins_again(world):
    """What it has read before it was reset counts no more: it may read that again."""
    world.policy(TIME, 10 * HOUR * 1000)
    group = world.group("one")
    world.hours(5)
    world.has_read(group, 5 * KIB)
    assert world.stream.call("updateReaderGroup", group).generation == 1
    world.hours(20, writing=False)
    assert world.kept() == 5


def test_a_subscriber_that_never_comes_back(world):
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


@pytest.fixture
def by_default(make_service) -> Any:
    """A controller that truncates by time what has no policy."""
    return make_service(stream_retention=10 * HOUR)


def write_segments(service: Any, *names: str) -> None:
    """Segments of no stream, with an event each of now."""
    container = service.container
    for name in names:
        container.submit(container.state.create(name, container.now))
        service.append(name, EVENT)


def eleven_hours(service: Any) -> None:
    """They pass, a minute at a time."""
    for _ in range(11 * 60):
        service.clock.advance(60)


def test_a_default_for_streams_without_one(by_default):
    """With `stream_retention` they, and segments of no stream, are truncated by time;
    internal segments never are.
    """
    state = by_default.container.state
    names = "plant/hall/0.#epoch.0", "sc/_RGg/0.#epoch.0"
    write_segments(by_default, *names)
    eleven_hours(by_default)
    by_default.store()
    assert [state.find(name).start for name in names] == [KIB, 0]


def test_a_sealed_stream_is_let_go_as_well(world):
    """Retention goes on when nobody can write any more."""
    world.policy(TIME, 2 * HOUR * 1000)
    world.hours(3)
    assert world.stream.status("sealStream", world.info()) == 0
    world.hours(4, writing=False)
    assert world.kept() == 0


def test_one_that_fails_stops_no_other(by_default, monkeypatch, logged):
    """Nor the rounds that follow; the log tells it once."""
    state = by_default.container.state
    names = [f"plant/{name}/0.#epoch.0" for name in "abc"]
    write_segments(by_default, *names)
    truncate = state.truncate

    def fails(name: str, offset: int, now: int) -> Any:
        if name == names[1]:
            raise ValueError("the test says no")
        return truncate(name, offset, now)

    monkeypatch.setattr(state, "truncate", fails)
    eleven_hours(by_default)
    assert [state.find(name).start for name in names] == [KIB, 0, KIB]
    told = [each for each in logged if each.get("what") == "Retention"]
    assert [each["name"] for each in told] == [names[1]]
    monkeypatch.setattr(state, "truncate", truncate)
    by_default.clock.advance(60)
    assert state.find(names[1]).start == KIB


def test_a_round_that_fails_is_not_the_last(by_default, monkeypatch, logged):
    """Without knowing what all groups have read nothing is truncated; then it goes on."""
    name = "plant/a/0.#epoch.0"
    write_segments(by_default, name)

    def fails(*_: Any) -> Any:
        raise ValueError("the test says no")

    with monkeypatch.context() as patch:
        patch.setattr(rounds.Rounds, "_turn", fails)
        eleven_hours(by_default)
    assert not by_default.container.state.find(name).start
    by_default.clock.advance(60)
    assert by_default.container.state.find(name).start == KIB
    assert any(each.get("what") == "Retention" for each in logged)


def test_one_that_is_made_again_between_two_turns(by_default, monkeypatch):
    """A round in many turns: what it began with may be gone, and a new one be there,
    which is not truncated where the old one was.
    """
    monkeypatch.setattr(rounds, "_AT_ONCE", 1)
    state = by_default.container.state
    names = [f"plant/{name}/0.#epoch.0" for name in "abcd"]
    write_segments(by_default, *names)
    by_default.clock.advance(11 * HOUR)
    for name in names[2:]:
        by_default.container.submit(state.delete(name, by_default.container.now))
    write_segments(by_default, names[3])
    for _ in range(9):
        by_default.clock.advance(0)
    starts = [state.find(name).start for name in (*names[:2], names[3])]
    assert starts == [KIB, KIB, 0]


def cut_at(world: World, seconds: float) -> dict[int, int]:
    request = new(
        "GetSegmentsRequest", stream_info=world.info(), timestamp=int(seconds * 1000)
    )
    found = world.stream.call("getSegments", request).segments
    return {each.segment.number: each.offset for each in found}


def test_where_a_stream_was_at_a_time(world):
    """Nothing before the cut was written then or later, and all that was an hour earlier
    lies before it; a time of before all begins at the head, a later one at the end.
    """
    clock, written = world.service.clock, []
    for _ in range(24):
        world.hours(1)
        written.append(clock.seconds())
    for hour in range(1, 24):
        for moment in (written[hour] - 1, written[hour], written[hour] + 1):
            before = sum(each < moment for each in written)
            offset = cut_at(world, moment)[0]
            assert (before - 1) * KIB <= offset <= before * KIB, (hour, moment)
    assert cut_at(world, written[0] - 100) == {0: 0, 1: 0}
    assert cut_at(world, clock.seconds() + 10) == {0: 24 * KIB, 1: 0}
    assert cut_at(world, 0) == {0: 0, 1: 0}


def test_where_it_was_before_it_was_scaled(world):
    """Of each key range the segment of then; and such a cut can be truncated to."""
    clock = world.service.clock
    world.hours(3)
    before = clock.seconds() + 1
    world.hours(1, writing=False)
    sealed = new(
        "ScaleRequest", stream_info=world.info(), sealed=[0],
        ranges=[{"low": 0.0, "high": 0.25}, {"low": 0.25, "high": 0.5}],
    )  # fmt: skip
    assert world.stream.call("scale", sealed).status == 0
    world.service.store()
    left, right = (1 << 32) + 2, (1 << 32) + 3
    for _ in range(3):
        world.hours(1, writing=False)
        world.write(left)
        world.write(right)
    assert cut_at(world, before - 3 * HOUR)[1] == 0
    assert {*cut_at(world, before - 3 * HOUR)} == {0, 1}
    cut = cut_at(world, clock.seconds() + 10)
    assert cut == {1: 0, left: 3 * KIB, right: 3 * KIB}
    end = new("StreamCut", stream_info=world.info(), cut=cut)
    assert world.stream.status("truncateStream", end) == 0
    world.service.store()
    assert cut_at(world, before) == cut
