"""Watermarks, of what writers note: never ahead of any that still writes."""

from typing import Any

import pytest

from gateway.protocols.pravega.controller import watermarks
from gateway.protocols.pravega.controller.epochs import Part
from gateway.protocols.pravega.controller.watermarks import decoded, encoded
from pravega_messages import new

from .scaled import E1, E2, E3, STARTED, Scaled, event, payloads, staged

BAD_TIME, BAD_POSITION, INTERNAL = 1, 2, 3


class Timed:
    """Writers of `sc/st`, which has two segments, and its marks."""

    def __init__(self, peer: Any) -> None:
        self.peer, self.service = peer, peer.service
        self.info = new("StreamInfo", scope="sc", stream="st")

    def noted(self, writer: str, time: int, cut: dict[int, int]) -> Any:
        position = {"stream_info": self.info, "cut": cut}
        return new(
            "TimestampFromWriter", writer=writer, position=position, timestamp=time
        )

    def note(self, writer: str, time: int, **position: int) -> int:
        cut = {int(name[1:]): offset for name, offset in position.items()}
        request = self.noted(writer, time, cut)
        found: int = self.peer.status("noteTimestampFromWriter", request)
        return found

    def remove(self, writer: str) -> int:
        request = new("RemoveWriterRequest", writer=writer, stream_info=self.info)
        found: int = self.peer.status("removeWriter", request)
        return found

    def wait(self, seconds: float = 10) -> list[tuple[int, dict[int, int]]]:
        """The marks that there are then."""
        for _ in range(round(seconds / 10)):
            self.service.clock.advance(10)
            self.service.store()
        return self.marks

    @property
    def marks(self) -> list[tuple[int, dict[int, int]]]:
        state, of_marks = self.service.container.state, "sc/_MARKst/"
        [name] = [one for one in state.segments if one.startswith(of_marks)] or [None]
        segment = state.segments.get(name)
        if segment is None or segment.kept is None:
            return []
        return [decoded(each) for each in payloads(bytes(segment.kept.data))]


@pytest.fixture
def timed(stream) -> Timed:
    return Timed(stream)


def test_the_bytes_of_a_mark():
    """As Java's serializers write them, object in object."""
    made = encoded(1, 2, {Part(E1 | 3, 0.25, 1.0): 7}, "sc", "st")
    inner = bytes.fromhex("00000100 00000018 0000000100000003 3fd0000000000000")
    inner += bytes.fromhex("3ff0000000000000") + (7).to_bytes(8)
    body = (1).to_bytes(8) + (2).to_bytes(8) + b"\x01" + inner
    body += b"\x00\x02sc\x00\x02st"
    assert made == bytes.fromhex("00000100") + len(body).to_bytes(4) + body


@pytest.mark.parametrize("count", [0, 1, 127, 128, 16383, 16384])
def test_marks_are_read_back(count):
    """By the next run, with as many segments as there are."""
    cut = {Part(n, n / (count + 1), (n + 1) / (count + 1)): n * 3 for n in range(count)}
    lower, ids = decoded(encoded(-5, 9, cut, "sc", "st"))
    assert (lower, ids) == (-5, {part.id: offset for part, offset in cut.items()})


def test_one_writer(timed):
    """A mark each ten seconds, if time goes on: its time, and where it was."""
    assert timed.note("a", 100, _0=10, _1=20) == 0
    assert timed.wait() == [(100, {0: 10, 1: 20})]
    assert timed.wait(30) == [(100, {0: 10, 1: 20})]
    assert timed.note("a", 200, _0=15, _1=20) == 0
    assert timed.wait()[1:] == [(200, {0: 15, 1: 20})]


def test_the_slowest_of_all_counts(timed):
    """The time of the last one, and the furthest place of all."""
    timed.note("a", 100, _0=10, _1=20)
    timed.note("b", 50, _0=5, _1=30)
    assert timed.wait() == [(50, {0: 10, 1: 30})]
    timed.note("a", 300, _0=11, _1=31)
    assert len(timed.wait()) == 1
    timed.note("b", 200, _0=12, _1=30)
    assert timed.wait()[1:] == [(200, {0: 12, 1: 31})]


def test_time_and_place_go_forward(timed):
    """Of each writer; what is no place, or of no stream, is said to be so."""
    assert timed.note("a", 100, _0=10, _1=20) == 0
    assert timed.note("a", 99, _0=10, _1=20) == BAD_TIME
    assert timed.note("a", 100, _0=9, _1=20) == BAD_POSITION
    assert timed.note("b", 1, _7=9) == BAD_POSITION
    assert timed.note("b", 1) == BAD_POSITION
    assert timed.note("b", 1, _0=1) == 0
    told = timed.peer.try_("noteTimestampFromWriter", timed.noted("w" * 256, 1, {0: 1}))
    assert told.text == "a writer's name of 256 characters, limit 255"
    timed.info.stream = "none"
    assert timed.note("a", 100, _0=10) == INTERNAL
    assert timed.remove("a") == 2


def test_a_removed_writer_counts_until_it_is_overtaken(timed):
    """What it wrote last is marked; then the others go on without it."""
    timed.note("a", 100, _0=10, _1=20)
    timed.note("b", 50, _0=5, _1=30)
    assert timed.remove("b") == 0
    assert timed.remove("c") == 1
    assert timed.wait() == [(50, {0: 10, 1: 30})]
    assert timed.wait()[1:] == [(100, {0: 10, 1: 30})]
    assert timed.remove("b") == 1


def test_a_silent_writer_is_left_behind(timed, config):
    """After the stream's timeout, or two minutes where it has none."""
    timed.note("b", 50, _0=5, _1=30)
    for seconds in range(0, 120, 10):
        timed.note("a", 100 + seconds, _0=10, _1=20)
        assert {lower for lower, _ in timed.wait()} == {50}
    timed.note("a", 300, _0=10, _1=20)
    assert [lower for lower, _ in timed.wait()] == [50, 300]
    fast = config("st", 0)
    fast.timestamp_timeout = 15_000
    assert timed.peer.status("updateStream", fast) == 0
    timed.note("b", 400, _0=5, _1=30)
    timed.wait(20)
    timed.note("a", 500, _0=10, _1=20)
    assert timed.wait()[-1][0] == 500


def test_over_epochs(timed):
    """A place in the newest epoch is behind all of those before; what nobody has told
    of begins there.
    """
    timed.note("a", 100, _0=10, _1=20)
    request = new(
        "ScaleRequest", stream_info=timed.info, sealed=[0],
        ranges=[{"low": 0, "high": 0.25}, {"low": 0.25, "high": 0.5}],
    )  # fmt: skip
    assert timed.peer.call("scale", request).status == 0
    assert timed.wait() == [(100, {0: 10, 1: 20})]
    timed.note("a", 200, **{"_1": 25, "_0": 11, f"_{E1 | 2}": 3})
    assert timed.wait()[1:] == [(200, {1: 25, E1 | 2: 3, E1 | 3: 0})]


def test_writers_in_three_epochs(timed):
    """A place is behind what was replaced, though that itself was since."""
    scaled = Scaled(timed.peer)
    scaled.split()
    assert scaled.scale([E1 | 2, E1 | 3], (0, 0.5)).status == STARTED
    assert scaled.scale([E2 | 4], (0, 0.25), (0.25, 0.5)).status == STARTED
    for writer, number in (("a", E2 | 4), ("b", E3 | 5), ("c", E1 | 3)):
        timed.note(writer, 100, **{"_1": 1, f"_{number}": 9})
    assert timed.wait() == [(100, {1: 1, E3 | 5: 9, E3 | 6: 0})]


def commit(timed: Timed, writer: str, time: int, **events: int) -> Any:
    """A transaction of some small events in each of these segments."""
    made = timed.peer.call(
        "createTransaction",
        new("CreateTxnRequest", stream_info=timed.info, lease=600_000),
    )
    for name, count in events.items():
        data = event(b"x") * count
        place = staged(f"sc/st/{name[1:]}.#epoch.0", made.txn)
        timed.service.append(place, data)
    request = new(
        "TxnRequest",
        stream_info=timed.info,
        txn=made.txn,
        writer=writer,
        timestamp=time,
    )
    assert timed.peer.status("commitTransaction", request) == 0
    return request


def test_a_commit_tells_the_time(timed):
    """Of its writer, with the place behind its events; one without a time, as Java's and
    Python's clients send it, tells nothing."""
    commit(timed, "a", 100, _0=2)
    assert timed.wait() == [(100, {0: 18, 1: 0})]
    commit(timed, "a", 200, _0=1, _1=3)
    assert timed.wait()[1:] == [(200, {0: 27, 1: 27})]
    for none in (0, -(2**63)):
        commit(timed, "b", none, _1=1)
    commit(timed, "", 250, _1=1)
    commit(timed, "a", 300)
    assert timed.wait()[2:] == [(300, {0: 27, 1: 54})]


def test_a_commit_that_waits_tells_the_time_when_it_is_there(timed):
    """Not before its events are in the stream; and behind them, in the segments that they
    came to."""
    made = timed.peer.call(
        "createTransaction",
        new("CreateTxnRequest", stream_info=timed.info, lease=600_000),
    )
    timed.service.append(staged("sc/st/0.#epoch.0", made.txn), event(b"x"))
    Scaled(timed.peer).split()
    timed.service.clock.advance(9.5)
    request = new(
        "TxnRequest", stream_info=timed.info, txn=made.txn, writer="a", timestamp=100
    )
    assert timed.peer.status("commitTransaction", request) == 0
    timed.service.clock.advance(0.5)
    timed.service.store()
    assert timed.marks == []
    assert timed.wait() == [(100, {1: 0, 2 << 32 | 4: 9})]


def test_too_many_offsets_let_a_commit_through(timed, monkeypatch):
    """Its events are there, and its time is not; and what was noted still counts once."""
    monkeypatch.setattr(watermarks, "_MOST_OFFSETS", 3)
    timed.note("a", 50, _0=1, _1=1)
    committed = commit(timed, "b", 100, _0=1)
    assert timed.peer.status("checkTransactionState", committed) == 3
    assert timed.wait() == [(50, {0: 1, 1: 1})]
    monkeypatch.setattr(watermarks, "_MOST_OFFSETS", 4)
    commit(timed, "b", 100, _0=1)
    timed.note("a", 200, _0=1, _1=1)
    assert timed.wait()[1:] == [(100, {0: 18, 1: 1})]


def test_after_a_restart(timed):
    """No mark before all that still write have noted again, or their timeout is over;
    and none that is not later than the last one, in time and place.
    """
    timed.note("a", 100, _0=10, _1=20)
    timed.note("b", 50, _0=5, _1=30)
    timed.wait()
    again = Timed(timed.service.restarted().peer())
    again.note("a", 200, _0=8, _1=20)
    assert len(again.wait(110)) == 1
    again.note("a", 200, _0=8, _1=20)
    again.note("b", 45, _0=6, _1=31)
    assert len(again.wait(20)) == 1
    again.note("b", 60, _0=6, _1=31)
    assert again.wait()[1:] == [(60, {0: 10, 1: 31})]


def test_old_marks_go(timed, monkeypatch):
    """Half of them, when they are many: what is left begins with a whole one."""
    monkeypatch.setattr(watermarks, "_MARK_BYTES", 1000)
    for time in range(1, 40):
        timed.note("a", time, _0=time, _1=time)
        timed.wait()
    assert [lower for lower, _ in timed.marks] == [*range(40 - len(timed.marks), 40)]
    assert 4 <= len(timed.marks) < 10
    kept = timed.service.container.state.find("sc/_MARKst/0.#epoch.0").kept
    assert kept is not None
    assert len(kept.data) <= 1000


@pytest.mark.parametrize("most", [100, 200])
def test_marks_that_are_large(timed, monkeypatch, most):
    """The old ones go, be the last more than half of them, and the newest is there."""
    monkeypatch.setattr(watermarks, "_MARK_BYTES", most)
    for time in range(1, 5):
        timed.note("a", time, _0=time, _1=time)
        assert timed.wait()[-1] == (time, {0: time, 1: time})
        assert len(timed.marks) == 1


def test_no_room_no_marks(make_service, config):
    """They go when there is room; nothing else fails for want of it."""
    service = make_service(internal_bytes=100)
    peer = service.peer()
    peer.call("createScope", new("ScopeInfo", scope="sc"))
    peer.call("createStream", config("st", 2))
    timed = Timed(peer)
    assert timed.note("a", 1, _0=1, _1=1) == 0
    assert timed.wait() == []


def test_a_stream_that_ends(timed, monkeypatch):
    """What its writers noted is forgotten, and makes room for others."""
    monkeypatch.setattr(watermarks, "_MOST_OFFSETS", 4)
    timed.note("a", 1, _0=1, _1=1)
    timed.note("b", 1, _0=1, _1=1)
    told = timed.peer.try_("noteTimestampFromWriter", timed.noted("c", 0, {0: 1}))
    assert "5 offsets noted by writers, limit 4" in told.text
    timed.peer.call("sealStream", timed.info)
    timed.wait()
    assert timed.note("c", 1, _0=1) == INTERNAL
    other = new("StreamConfig", stream_info={"scope": "sc", "stream": "other"})
    assert timed.peer.status("createStream", other) == 0
    timed.info.stream = "other"
    number = timed.peer.call("getCurrentSegments", timed.info).ranges[0].segment.number
    assert timed.note("c", 1, **{f"_{number}": 1}) == 0


def test_a_stream_that_is_made_again(timed, config):
    """What was noted of one of this name, deleted a moment ago, is nothing to it."""
    timed.note("a", 100, _0=10, _1=20)
    timed.wait()
    timed.peer.call("sealStream", timed.info)
    timed.peer.call("deleteStream", timed.info)
    assert timed.peer.status("createStream", config("st", 1)) == 0
    assert timed.note("a", 50, _2=1) == 0
    assert timed.wait() == [(50, {2: 1})]
