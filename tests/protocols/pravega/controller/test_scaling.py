"""Scaling, by the calls that clients make: other segments, and what readers are told."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Any, ClassVar

import pytest
from twisted.logger import capturedLogs

from gateway.protocols.pravega import snapshot
from gateway.protocols.pravega.controller import catalog as catalog_module
from gateway.protocols.pravega.controller import scaling as scaling_module
from gateway.protocols.pravega.controller.grpc import Code
from gateway.protocols.pravega.controller.names import segment
from gateway.protocols.pravega.errors import Sealed
from gateway.protocols.pravega.records import decode
from gateway.protocols.pravega.wire import NEVER
from pravega_messages import new

Make = Callable[..., Any]
E1, E2, E3 = 1 << 32, 2 << 32, 3 << 32
W = b"w" * 16
STARTED, PRECONDITION = 0, 2
COMMITTING, COMMITTED, ABORTED = 2, 3, 5
NO_TRANSACTION = 3
TIME = 1


def event(data: bytes) -> bytes:
    return struct.pack(">II", 0, len(data)) + data


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
        state = self.service.container.state
        last = state.find(name).number_of(W)
        change = state.append(
            name, W, max(last, 0) + 1, event(data), self.service.container.now,
            claimed=1, last=last if last != 0 else NEVER,
        )  # fmt: skip
        self.service.container.submit(change)
        self.service.store()

    def update(self, config: Any) -> int:
        found: int = self.peer.status("updateStream", config)
        return found


@pytest.fixture
def scaled(stream: Any) -> Scaled:
    return Scaled(stream)


def test_scale(scaled: Scaled) -> None:
    """The old segment is sealed, new ones share its keys; the answer has them, and the
    epoch in which it began; then it is done.
    """
    answer = scaled.scale([0], (0.25, 0.5), (0.0, 0.25))
    assert (answer.status, answer.epoch) == (STARTED, 0)
    assert [each.segment.number for each in answer.segments] == [E1 | 2, E1 | 3]
    assert scaled.current == [(E1 | 2, 0, 0.25), (E1 | 3, 0.25, 0.5), (1, 0.5, 1)]
    assert scaled.service.names == {
        "sc/st/0.#epoch.0",
        "sc/st/1.#epoch.0",
        "sc/st/2.#epoch.1",
        "sc/st/3.#epoch.1",
    }
    segments = scaled.service.container.state.segments
    assert segments["sc/st/0.#epoch.0"].closed
    assert not segments["sc/st/1.#epoch.0"].sealed
    for epoch, done in ((0, 1), (1, 2), (-1, 2)):
        request = new("ScaleStatusRequest", stream_info=scaled.info, epoch=epoch)
        assert scaled.peer.status("checkScale", request) == done


def test_what_readers_are_told(scaled: Scaled) -> None:
    """Successors with their predecessors, the segments of each epoch, from the head on."""
    scaled.write("sc/st/0.#epoch.0", b"zero")
    scaled.split()
    scaled.write("sc/st/3.#epoch.1", b"three")
    assert scaled.following(0) == {E1 | 2: [0], E1 | 3: [0]}
    assert scaled.following(1) == {}
    assert scaled.scale([E1 | 3, 1], (0.25, 1.0)).status == STARTED
    assert scaled.following(E1 | 3) == {E2 | 4: [E1 | 3, 1]}
    assert scaled.following(1) == {E2 | 4: [E1 | 3, 1]}
    assert scaled.head() == {0: 0, 1: 0}
    assert scaled.between() == [0, 1, E1 | 2, E1 | 3, E2 | 4]
    assert scaled.between([E1 | 2, E1 | 3, 1], [E1 | 2, E1 | 3, 1]) == [
        1, E1 | 2, E1 | 3,
    ]  # fmt: skip
    request = new("GetEpochSegmentsRequest", stream_info=scaled.info, epoch=1)
    found = scaled.peer.call("getEpochSegments", request).ranges
    assert [each.segment.number for each in found] == [1, E1 | 2, E1 | 3]
    for cut, valid in (
        ([0, 1], True),
        ([E1 | 2, E1 | 3, 1], True),
        ([0, E1 | 2, 1], False),
        ([E1 | 2, 1], False),
        ([0, 1, 99], False),
    ):
        asked = new("StreamCut", stream_info=scaled.info, cut=dict.fromkeys(cut, 0))
        assert scaled.peer.call("isStreamCutValid", asked).response is valid
    for number, valid in ((0, False), (E1 | 2, True), (E2 | 4, True), (E1 | 3, False)):
        id_ = new("SegmentId", stream_info=scaled.info, number=number)
        assert scaled.peer.call("isSegmentValid", id_).response is valid
    id_ = new("SegmentId", stream_info=scaled.info, number=99)
    told = scaled.peer.try_("getSegmentsImmediatelyFollowing", id_)
    assert (told.status, told.text) == (Code.NOT_FOUND, "sc/st has no segment 99")


@pytest.mark.parametrize(
    ("sealed", "ranges"),
    [
        ([], []),
        ([0], []),
        ([0], [(0, 0.4)]),
        ([0], [(0, 0.6)]),
        ([0], [(0, 0.3), (0.2, 0.5)]),
        ([0], [(0, 0.5), (0.5, 0.5)]),
        ([0], [(0.5, 0)]),
        ([0, 1], [(0, 0.5)]),
        ([0, 7], [(0, 0.5)]),
        ([0], [(0, float("nan")), (0, 0.5)]),
    ],
)
def test_ranges_that_do_not_fit(
    scaled: Scaled, sealed: list[int], ranges: list[tuple[float, float]]
) -> None:
    """Keys would have no segment, or two; or what is to be sealed is not there."""
    before = scaled.current
    assert scaled.scale(sealed, *ranges).status == PRECONDITION
    assert scaled.current == before
    assert len(scaled.service.names) == 2


def test_why_a_scaling_is_refused(scaled: Scaled) -> None:
    """Clients say `false` and no more: the log says why, once where it is asked again."""
    with capturedLogs() as events:
        for _ in range(3):
            scaled.scale([7], (0, 0.5))
        scaled.scale([0], (0, 0.4))
    assert [event["told"] for event in events if "told" in event] == [
        (
            "sc/st is not scaled: segment 7 is not active; those are 0, 1"
            " (epoch * 2^32 + number)"
        ),
        (
            "sc/st is not scaled: the new ranges cover [(0.0, 0.4)], and the segments that they"
            " replace [(0.0, 0.5)]"
        ),
    ]


def test_what_can_not_be_scaled(scaled: Scaled, stream_info: Make) -> None:
    """A sealed stream, one that is not there, and the clients' own."""
    scaled.peer.call("sealStream", scaled.info)
    assert scaled.scale([0], (0, 0.5)).status == PRECONDITION
    mark = stream_info("_MARKst")
    scaled.peer.call("getCurrentSegments", mark)
    request = new("ScaleRequest", stream_info=mark, sealed=[2], ranges=[{"high": 1.0}])
    assert scaled.peer.call("scale", request).status == PRECONDITION
    request.stream_info.stream = "none"
    assert scaled.peer.try_("scale", request).status == Code.NOT_FOUND


def test_no_room(make_service: Make, config: Make) -> None:
    """The limit is that of the segment store, and is named."""
    peer = make_service(segments=9).peer()
    peer.call("createScope", new("ScopeInfo", scope="sc"))
    assert peer.status("createStream", config("st", 2)) == 0
    told = peer.try_("updateStream", config("st", 8))
    assert told.status == Code.RESOURCE_EXHAUSTED
    assert "6 segments and 8 more, limit 9 (options.segments)" in told.text
    assert Scaled(peer).current == [(0, 0, 0.5), (1, 0.5, 1)]


def test_an_update_scales(scaled: Scaled, config: Make) -> None:
    """To the number that the policy asks for; one by rate asks for a least number; and
    what asks for nothing else changes nothing.
    """
    assert scaled.update(config("st", 3)) == 0
    assert [low for _, low, _ in scaled.current] == [0, 1 / 3, 2 / 3]
    assert scaled.update(config("st", 1)) == 0
    assert scaled.current == [(E2 | 5, 0, 1)]
    rate = config("st", 2)
    rate.scaling.kind, rate.scaling.target_rate = 2, 100
    assert scaled.update(rate) == 0
    assert len(scaled.current) == 2
    rate.scaling.segments = 1
    assert scaled.update(rate) == 0
    assert len(scaled.current) == 2
    before = scaled.service.names
    assert scaled.update(config("st", 2, "tag")) == 0
    assert scaled.service.names == before


def test_after_a_restart(scaled: Scaled) -> None:
    """All of a scaling is there or nothing, wherever the journal ends."""
    scaled.write("sc/st/0.#epoch.0", b"before")
    begin = len(scaled.service.journal.stored)
    scaled.split()
    end = len(scaled.service.journal.stored)
    for changes in range(begin, end + 1):
        again = scaled.on(scaled.service.restarted(changes=changes).peer())
        if again.current == [(0, 0, 0.5), (1, 0.5, 1)]:
            assert again.service.names == {"sc/st/0.#epoch.0", "sc/st/1.#epoch.0"}
            again.split()
        assert again.current == scaled.current
        assert again.following(0) == scaled.following(0)
        assert again.service.names == scaled.service.names
    assert end == begin + 1


def test_an_update_that_a_kill_interrupts(scaled: Scaled, config: Make) -> None:
    """All of it is done or nothing, so what is asked for then is done, be it the same or
    what was before; one that is refused for want of room changes nothing.
    """
    begin = len(scaled.service.journal.stored)
    assert scaled.update(config("st", 3, "tag")) == 0
    for changes in range(begin, len(scaled.service.journal.stored) + 1):
        for count in (3, 2):
            again = scaled.on(scaled.service.restarted(changes=changes).peer())
            assert again.configured in ((2, []), (3, ["tag"]))
            assert again.configured[0] == len(again.current)
            assert again.update(config("st", count)) == 0
            assert again.configured == (count, [])
            assert len(again.current) == count
    for _ in range(2):
        refused = scaled.peer.try_("updateStream", config("st", 20_000))
        assert refused.status == Code.INVALID_ARGUMENT
    assert scaled.configured == (3, ["tag"])


def test_a_snapshot_has_it(scaled: Scaled, make_service: Make) -> None:
    """Epochs are in tables, as all that the controller knows."""
    scaled.split()
    state = snapshot.restore(snapshot.save(scaled.service.container.state))
    again = scaled.on(make_service(state=state).peer())
    assert again.current == scaled.current
    assert again.between() == scaled.between()


def test_a_segment_that_was_never_written_to_stays_for_its_readers(
    scaled: Scaled,
) -> None:
    """Readers stand on it until their group has a checkpoint, however often the gateway
    tidies up: it goes when what took its place is truncated, or is before a cut."""
    scaled.split()
    assert scaled.scale([E1 | 2, E1 | 3], (0, 0.5)).status == STARTED
    for _ in range(3):
        scaled.service.clock.advance(61)
        scaled.service.store()
    empty = {"sc/st/0.#epoch.0", "sc/st/2.#epoch.1", "sc/st/3.#epoch.1"}
    assert empty < scaled.service.names
    assert scaled.head() == {0: 0, 1: 0}
    scaled.write("sc/st/4.#epoch.2", b"four")
    assert scaled.truncate({1: 0, E2 | 4: 12}) == 0
    assert scaled.service.names == {"sc/st/1.#epoch.0", "sc/st/4.#epoch.2"}


def test_a_cut_behind_what_was_never_written_to(scaled: Scaled) -> None:
    """What is before a cut goes, also where no byte is."""
    scaled.split()
    cut = {1: 0, E1 | 2: 0, E1 | 3: 0}
    assert scaled.truncate(cut) == 0
    assert scaled.head() == cut
    assert "sc/st/0.#epoch.0" not in scaled.service.names


def test_truncate_over_epochs(scaled: Scaled) -> None:
    """What lies before the cut goes, its segments too; the head is the cut, and a
    segment that is empty is there as long as its successor follows another one.
    """
    scaled.write("sc/st/0.#epoch.0", b"zero")
    scaled.split()
    scaled.write("sc/st/2.#epoch.1", b"two")
    scaled.write("sc/st/3.#epoch.1", b"three")
    assert scaled.truncate({E1 | 2: 5, E1 | 3: 0, 1: 0}) == 0
    assert scaled.head() == {E1 | 2: 5, E1 | 3: 0, 1: 0}
    assert "sc/st/0.#epoch.0" not in scaled.service.names
    assert scaled.following(0) == {E1 | 2: [0], E1 | 3: [0]}
    assert scaled.between() == [1, E1 | 2, E1 | 3]
    assert scaled.truncate({0: 0, 1: 0}) == 0
    assert scaled.head() == {E1 | 2: 5, E1 | 3: 0, 1: 0}
    assert scaled.scale([E1 | 2, E1 | 3], (0, 0.5)).status == STARTED
    assert scaled.truncate({E1 | 2: 11, E1 | 3: 0, 1: 0}) == 0
    assert scaled.head() == {E1 | 2: 11, E1 | 3: 0, 1: 0}
    assert scaled.truncate({E2 | 4: 0, 1: 0}) == 0
    assert scaled.head() == {E2 | 4: 0, 1: 0}
    assert scaled.service.names == {"sc/st/1.#epoch.0", "sc/st/4.#epoch.2"}
    assert scaled.truncate({E2 | 4: 1, 1: 0}) == 1


def test_retention_goes_over_epochs(scaled: Scaled, config: Make) -> None:
    """Old segments go with what was in them, within a round or two; others stay."""
    policy = config("st", 0)
    policy.retention.kind, policy.retention.param = TIME, 3_600_000
    assert scaled.update(policy) == 0
    scaled.write("sc/st/0.#epoch.0", b"old")
    scaled.split()
    for _ in range(30):
        scaled.service.clock.advance(60)
        scaled.service.store()
    scaled.write("sc/st/2.#epoch.1", b"new")
    assert scaled.head() == {0: 0, 1: 0}
    for _ in range(33):
        scaled.service.clock.advance(60)
        scaled.service.store()
    assert scaled.head() == {E1 | 2: 0, E1 | 3: 0, 1: 0}
    assert "sc/st/0.#epoch.0" not in scaled.service.names


def test_what_a_group_has_read_of_earlier_epochs(scaled: Scaled, config: Make) -> None:
    """A subscriber that is in the newest epoch has read the ones before to their ends."""
    policy = config("st", 0)
    policy.retention.kind, policy.retention.param = TIME, 1
    policy.retention.max = 2**63 - 1
    assert scaled.update(policy) == 0
    begin = new("StreamCut", stream_info=scaled.info, cut={0: 0, 1: 0})
    group = new(
        "ReaderGroupConfiguration", scope="sc", name="g", retention=2, id="1",
        begin=[begin],
    )  # fmt: skip
    scaled.peer.call("createReaderGroup", group)
    scaled.write("sc/st/0.#epoch.0", b"zero")
    scaled.split()
    scaled.write("sc/st/2.#epoch.1", b"two")

    def rounds() -> None:
        for _ in range(3):
            scaled.service.clock.advance(60)
            scaled.service.store()

    rounds()
    assert scaled.head() == {0: 0, 1: 0}
    cut = new("StreamCut", stream_info=scaled.info, cut={E1 | 2: 0, E1 | 3: 0, 1: 0})
    told = new("SubscriberStreamCut", subscriber="sc/g", id="1", stream_cut=cut)
    assert scaled.peer.status("updateSubscriberStreamCut", told) == 0
    rounds()
    assert scaled.head() == {E1 | 2: 0, E1 | 3: 0, 1: 0}
    assert "sc/st/0.#epoch.0" not in scaled.service.names


def test_history_does_not_grow_for_ever(
    scaled: Scaled, config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of replaced segments without data is forgotten, the oldest first,
    but not while a transaction began with them.
    """
    monkeypatch.setattr(catalog_module, "_BEHIND", 10)
    request = new("CreateTxnRequest", stream_info=scaled.info, lease=600_000)

    def scale_often() -> int:
        for _ in range(10):
            for count in (3, 2):
                assert scaled.update(config("st", count)) == 0
            cut = {number: 0 for number, _, _ in scaled.current}
            assert scaled.truncate(cut) == 0
        asked = new("GetEpochSegmentsRequest", stream_info=scaled.info, epoch=0)
        code = scaled.peer.try_("getEpochSegments", asked).status
        assert code is not None
        return code

    txn = scaled.peer.call("createTransaction", request).txn
    assert scale_often() == Code.OK
    ended = new("TxnRequest", stream_info=scaled.info, txn=txn)
    assert scaled.peer.status("abortTransaction", ended) == 0
    assert scale_often() == Code.OK
    scaled.service.clock.advance(61)
    scaled.service.store()
    assert scale_often() == Code.NOT_FOUND
    record = scaled.service.container.state.table("_system/streams").get(b"sc/st").value
    assert len(record) < 2000
    assert len(scaled.service.names) == 2


def test_numbers_are_never_given_again(scaled: Scaled, config: Make) -> None:
    """Not those of a scaled stream that was deleted, and none that a client took."""
    state, now = scaled.service.container.state, scaled.service.container.now
    scaled.service.container.submit(state.create("sc/st/2.#epoch.1", now))
    scaled.service.store()
    scaled.split()
    assert [number for number, _, _ in scaled.current] == [E1 | 3, E1 | 4, 1]
    scaled.peer.call("sealStream", scaled.info)
    assert scaled.peer.status("deleteStream", scaled.info) == 0
    assert scaled.peer.status("createStream", config("st", 1)) == 0
    assert scaled.current == [(5, 0, 1)]
    assert scaled.following(E1 | 3) == {}


# -- transactions -------------------------------------------------------------------------


def begun(scaled: Scaled) -> Any:
    request = new("CreateTxnRequest", stream_info=scaled.info, lease=600_000)
    return scaled.peer.call("createTransaction", request)


def staged(name: str, txn: Any) -> str:
    return f"{name}#transaction.{txn.high:016x}{txn.low:016x}"


def test_a_transaction_of_its_epoch(scaled: Scaled) -> None:
    """Its id has the epoch; it has the segments of that, also when they were replaced."""
    scaled.split()
    made = begun(scaled)
    assert made.txn.high >> 32 == 1
    assert [each.segment.number for each in made.ranges] == [E1 | 2, E1 | 3, 1]
    assert staged("sc/st/2.#epoch.1", made.txn) in scaled.service.names
    assert scaled.scale([E1 | 2], (0, 0.25)).status == STARTED
    request = new("GetEpochSegmentsRequest", stream_info=scaled.info, epoch=1)
    found = scaled.peer.call("getEpochSegments", request).ranges
    assert {each.segment.number for each in found} == {1, E1 | 2, E1 | 3}


def test_a_commit_over_epochs(scaled: Scaled) -> None:
    """What was replaced since gets segments of its own, which end with the commit; those
    of today go on behind them; one that was not replaced gets its events itself.  All in
    one change, wherever the journal ends: a moment after the commit, which is not forgotten.
    """
    txn = begun(scaled).txn
    scaled.service.append(staged("sc/st/0.#epoch.0", txn), event(b"zero"))
    scaled.service.append(staged("sc/st/1.#epoch.0", txn), event(b"one"))
    scaled.split()
    before = len(scaled.service.journal.stored)
    request = new("TxnRequest", stream_info=scaled.info, txn=txn)
    assert scaled.peer.status("commitTransaction", request) == 0
    assert scaled.peer.status("commitTransaction", request) == 0
    assert scaled.peer.status("checkTransactionState", request) == COMMITTING
    assert scaled.peer.status("abortTransaction", request) == NO_TRANSACTION
    committing = len(scaled.service.journal.stored)
    with pytest.raises(Sealed):
        scaled.service.append(staged("sc/st/0.#epoch.0", txn), event(b"late"))
    merge_what_waits(scaled)
    assert scaled.peer.status("checkTransactionState", request) == COMMITTED
    assert scaled.current == [(E3 | 5, 0, 0.25), (E3 | 6, 0.25, 0.5), (1, 0.5, 1)]
    assert scaled.following(E1 | 2) == {E2 | 4: [E1 | 2, E1 | 3]}
    assert scaled.following(E2 | 4) == {E3 | 5: [E2 | 4], E3 | 6: [E2 | 4]}
    state = scaled.service.container.state
    assert state.find("sc/st/4.#epoch.2").readable == len(event(b"zero"))
    assert state.find("sc/st/4.#epoch.2").closed
    assert state.find("sc/st/1.#epoch.0").readable == len(event(b"one"))
    assert not [name for name in scaled.service.names if "#transaction" in name]
    [commit] = [
        each.batch
        for each in scaled.service.journal.stored[before:]
        if each.batch.count
    ]
    assert commit.count == 2
    for changes in range(before, len(scaled.service.journal.stored) + 1):
        again = scaled.on(scaled.service.restarted(changes=changes).peer())
        if changes < committing:
            assert again.peer.status("commitTransaction", request) == 0
        for name in (each for each in again.service.names if "#transaction" in each):
            assert again.service.container.state.find(name).sealed
        merge_what_waits(again)
        assert again.peer.status("checkTransactionState", request) == COMMITTED
        assert again.current == scaled.current
        assert again.service.names == scaled.service.names
        assert again.service.container.state.find("sc/st/4.#epoch.2").length == 12


@pytest.mark.parametrize("harm", ["seal", "delete"])
def test_a_commit_over_segments_that_somebody_has_ended(
    scaled: Scaled, harm: str
) -> None:
    """What is committed gets through, to a segment in the place of that; so the stream can
    be sealed and deleted.
    """
    txn = begun(scaled).txn
    scaled.service.append(staged("sc/st/0.#epoch.0", txn), event(b"zero"))
    scaled.service.append(staged("sc/st/1.#epoch.0", txn), event(b"one"))
    scaled.split()
    request = new("TxnRequest", stream_info=scaled.info, txn=txn)
    assert scaled.peer.status("commitTransaction", request) == 0
    container = scaled.service.container
    container.submit(getattr(container.state, harm)("sc/st/1.#epoch.0", 0))
    scaled.service.store()
    merge_what_waits(scaled)
    assert scaled.peer.status("checkTransactionState", request) == COMMITTED
    [(number, _, _)] = [each for each in scaled.current if each[2] == 1]
    [behind] = scaled.following(1).keys()
    assert number != 1
    assert list(scaled.following(behind)) == [each for each, _, _ in scaled.current]
    assert container.state.find(segment("sc", "st", behind)).length == len(
        event(b"zero") + event(b"one")
    )
    assert scaled.peer.status("sealStream", scaled.info) == 0
    assert scaled.peer.status("deleteStream", scaled.info) == 0


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


@pytest.fixture
def writers(scaled: Scaled) -> Writers:
    return Writers(scaled)


def test_overlapping_transactions(scaled: Scaled, writers: Writers) -> None:
    """Those that were open when the stream was scaled take two epochs each; none that
    began later takes any, though there is always one from before the last commit.
    """
    pending = [writers.begin(b"a", b"b", b"c") for _ in range(2)]
    scaled.split()
    epochs = []
    for _ in range(20):
        writers.write(b"a", b"b", b"c")
        writers.commit(pending.pop(0))
        pending.append(writers.begin(b"a", b"b", b"c"))
        epochs.append(pending[-1].high >> 32)
    assert epochs == [3, *19 * [5]]
    writers.check()
    assert len(writers.written[b"a"]) == 60


@pytest.mark.parametrize("count", [1, 6, 50])
def test_commits_of_one_moment_share_their_epochs(
    scaled: Scaled, writers: Writers, count: int
) -> None:
    """However many transactions were open when the stream was scaled: readers stand still
    before two epochs.  One that began afterwards and is committed in between keeps its
    place behind them."""
    pending = [writers.begin(b"a", b"b", b"c") for _ in range(count)]
    scaled.split()
    later = writers.begin(b"a", b"c")
    writers.commit(*pending, later)
    assert begun(scaled).txn.high >> 32 == 3
    assert len(writers.written[b"a"]) == 2 * count + 2
    writers.check()


def test_commits_do_not_wait_for_ever(scaled: Scaled, writers: Writers) -> None:
    """Where they keep coming, the first ones are merged after five seconds."""
    pending = [writers.begin(b"a", b"b") for _ in range(20)]
    scaled.split()
    requests = [new("TxnRequest", stream_info=scaled.info, txn=txn) for txn in pending]
    for number, request in enumerate(requests):
        assert scaled.peer.status("commitTransaction", request) == 0
        merged = scaled.peer.status("checkTransactionState", requests[0]) == COMMITTED
        assert merged == (number >= 10)
        scaled.service.clock.advance(0.5)
        scaled.service.store()


def test_whose_rows_they_are_that_several_commit(
    scaled: Scaled, writers: Writers
) -> None:
    """Rows of one change are of one origin: of the connection that has committed them all,
    or of none, where several have."""
    other = scaled.on(scaled.service.peer())
    for peers in ((scaled, scaled), (scaled, other)):
        txns = [writers.begin(b"a") for _ in peers]
        (number, _, high), *_ = scaled.current
        halves = (0, high / 2), (high / 2, high)
        assert scaled.scale([number], *halves).status == STARTED
        for peer, txn in zip(peers, txns, strict=True):
            request = new("TxnRequest", stream_info=scaled.info, txn=txn)
            assert peer.peer.status("commitTransaction", request) == 0
        merge_what_waits(scaled)
        [*_, last] = [one for one in scaled.service.journal.stored if one.batch.count]
        alone = len(set(peers)) == 1
        session = scaled.peer.connection.origin.session
        assert (last.batch.origin.session == session) == alone


def test_a_stream_that_is_sealed_has_what_was_committed(
    scaled: Scaled, writers: Writers
) -> None:
    """Before it is sealed what waits is merged; what is open is aborted."""
    done, left = writers.begin(b"a", b"b"), writers.begin(b"a")
    scaled.split()
    request = new("TxnRequest", stream_info=scaled.info, txn=done)
    assert scaled.peer.status("commitTransaction", request) == 0
    scaled.peer.call("sealStream", scaled.info)
    assert scaled.peer.status("checkTransactionState", request) == COMMITTED
    request = new("TxnRequest", stream_info=scaled.info, txn=left)
    assert scaled.peer.status("checkTransactionState", request) == ABORTED


def test_a_commit_that_needs_no_epochs(scaled: Scaled, writers: Writers) -> None:
    """Of what was split nothing was written to; or one segment has all keys now."""
    other, both = writers.begin(b"c"), writers.begin(b"a", b"c")
    empty = writers.begin()
    scaled.split()
    before = scaled.current
    writers.commit(other)
    writers.commit(empty)
    assert scaled.current == before
    assert scaled.scale([number for number, _, _ in before], (0, 1)).status == STARTED
    before = scaled.current
    writers.commit(both)
    assert scaled.current == before
    writers.check()


@pytest.mark.parametrize("seed", range(6))
def test_order_over_any_scalings(
    scaled: Scaled, writers: Writers, config: Make, seed: int
) -> None:
    """Whatever is scaled, begun and committed: events of a key are read once, in order."""
    random = Random(seed)
    pending: list[Any] = []
    for _ in range(150):
        keys = random.sample(sorted(Writers.KEYS), random.randrange(4))
        match random.randrange(8):
            case 0:
                assert scaled.update(config("st", random.randrange(1, 6))) == 0
            case 1:
                number, low, high = random.choice(scaled.current)
                middle = random.uniform(low, high)
                answer = scaled.scale([number], (low, middle), (middle, high))
                assert answer.status == STARTED
            case 2 | 3 | 4:
                writers.write(*keys)
            case 5 | 6:
                pending.append(writers.begin(*keys))
            case _ if pending:
                writers.commit(pending.pop(random.randrange(len(pending))))
        current = scaled.current
        edges = [0.0, *(high for _, _, high in current)]
        assert edges == [*(low for _, low, _ in current), 1.0]
    for txn in pending:
        writers.commit(txn)
    writers.check()


def test_a_history_that_is_too_long(
    scaled: Scaled, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that would make it so is refused and changes nothing; without the
    transaction, truncation makes room.
    """
    monkeypatch.setattr(scaling_module, "_STREAM_SEGMENTS", 6)
    monkeypatch.setattr(catalog_module, "_BEHIND", 0)
    writers.write(b"a")
    txn = writers.begin(b"a")
    scaled.split()
    before, names = scaled.current, scaled.service.names
    request = new("TxnRequest", stream_info=scaled.info, txn=txn)
    told = scaled.peer.try_("commitTransaction", request)
    assert told.status == Code.INVALID_ARGUMENT
    assert told.text == (
        "a stream of 7 segments, those of earlier epochs included (truncate it), limit 6"
    )
    assert (scaled.current, scaled.service.names) == (before, names)
    assert scaled.peer.status("checkTransactionState", request) == 1
    assert scaled.peer.status("abortTransaction", request) == 0
    scaled.service.clock.advance(61)
    request = new("ScaleRequest", stream_info=scaled.info, sealed=[1])
    for low, high in pairwise((0.5, 0.6, 0.8, 1)):
        request.ranges.add(low=low, high=high)
    told = scaled.peer.try_("scale", request)
    assert told.status == Code.INVALID_ARGUMENT
    assert "a stream of 7 segments" in told.text
    assert scaled.truncate({number: 0 for number, _, _ in before}) == 0
    assert scaled.peer.call("scale", request).status == STARTED


def test_an_abort_over_epochs(scaled: Scaled) -> None:
    """Nothing of it is left, and nothing of the stream changes."""
    txn = begun(scaled).txn
    scaled.split()
    before = scaled.current
    request = new("TxnRequest", stream_info=scaled.info, txn=txn)
    assert scaled.peer.status("abortTransaction", request) == 0
    scaled.service.clock.advance(31)
    scaled.service.store()
    assert scaled.current == before
    assert not [name for name in scaled.service.names if "#transaction" in name]


def test_a_scaled_stream_is_deleted_whole(scaled: Scaled) -> None:
    """With the segments of all epochs, and of its transactions."""
    begun(scaled)
    scaled.split()
    begun(scaled)
    scaled.peer.call("sealStream", scaled.info)
    assert scaled.peer.status("deleteStream", scaled.info) == 0
    assert scaled.service.names == set()
