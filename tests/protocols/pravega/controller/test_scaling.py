"""Scaling, by the calls that clients make: other segments, and what readers are told."""

import pytest
from twisted.logger import capturedLogs

from gateway.protocols.pravega.controller import catalog as catalog_module
from gateway.protocols.pravega.controller.grpc import Code
from pravega_messages import new

from .scaled import E1, E2, STARTED, Scaled, begun

PRECONDITION = 2
TIME = 1


def test_scale(scaled):
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


def test_what_readers_are_told(scaled):
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
    for number, valid in ((0, False), (E1 | 2, True), (E2 | 4, True), (E1 | 3, False)):
        id_ = new("SegmentId", stream_info=scaled.info, number=number)
        assert scaled.peer.call("isSegmentValid", id_).response is valid
    id_ = new("SegmentId", stream_info=scaled.info, number=99)
    for call in ("getSegmentsImmediatelyFollowing", "getSegmentsImmediatlyFollowing"):
        told = scaled.peer.try_(call, id_)
        assert (told.status, told.text) == (Code.NOT_FOUND, "sc/st has no segment 99")
    request.epoch = 3
    assert scaled.peer.try_("getEpochSegments", request).status == Code.NOT_FOUND


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
def test_ranges_that_do_not_fit(scaled, sealed, ranges):
    """Keys would have no segment, or two; or what is to be sealed is not there."""
    before = scaled.current
    assert scaled.scale(sealed, *ranges).status == PRECONDITION
    assert scaled.current == before
    assert len(scaled.service.names) == 2


def test_why_a_scaling_is_refused(scaled):
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


def test_what_can_not_be_scaled(scaled, stream_info, config):
    """A sealed stream, one that is not there, and the clients' own, be it by an update."""
    scaled.peer.call("sealStream", scaled.info)
    assert scaled.scale([0], (0, 0.5)).status == PRECONDITION
    mark = stream_info("_MARKst")
    scaled.peer.call("getCurrentSegments", mark)
    request = new("ScaleRequest", stream_info=mark, sealed=[2], ranges=[{"high": 1.0}])
    assert scaled.peer.call("scale", request).status == PRECONDITION
    for call, name in (("updateStream", "_MARKst"), ("createStream", "_RGg")):
        told = scaled.peer.try_(call, config(name, 2))
        assert (
            told.text
            == f"{name}: it is a stream of readers' own, which has one segment"
        )
    request.stream_info.stream = "none"
    assert scaled.peer.try_("scale", request).status == Code.NOT_FOUND


def test_no_room(make_service, config):
    """The limit is that of the segment store, and is named."""
    peer = make_service(segments=9).peer()
    peer.call("createScope", new("ScopeInfo", scope="sc"))
    assert peer.status("createStream", config("st", 2)) == 0
    told = peer.try_("updateStream", config("st", 8))
    assert told.status == Code.RESOURCE_EXHAUSTED
    assert "6 segments and 8 more, limit 9 (options.segments)" in told.text
    assert Scaled(peer).current == [(0, 0, 0.5), (1, 0.5, 1)]


def test_an_update_scales(scaled, config):
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


def test_after_a_restart(scaled):
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


def test_an_update_that_a_kill_interrupts(scaled, config):
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


def test_a_segment_that_was_never_written_to_stays_for_its_readers(scaled):
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


def test_a_cut_behind_what_was_never_written_to(scaled):
    """What is before a cut goes, also where no byte is."""
    scaled.split()
    cut = {1: 0, E1 | 2: 0, E1 | 3: 0}
    assert scaled.truncate(cut) == 0
    assert scaled.head() == cut
    assert "sc/st/0.#epoch.0" not in scaled.service.names


def test_truncate_over_epochs(scaled):
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


def test_retention_goes_over_epochs(scaled, config):
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


def test_what_a_group_has_read_of_earlier_epochs(scaled, config):
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


def test_history_does_not_grow_for_ever(scaled, config, monkeypatch):
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


def test_numbers_are_never_given_again(scaled, config):
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


def test_a_scaled_stream_is_deleted_whole(scaled):
    """With the segments of all epochs, and of its transactions."""
    begun(scaled)
    scaled.split()
    begun(scaled)
    scaled.peer.call("sealStream", scaled.info)
    assert scaled.peer.status("deleteStream", scaled.info) == 0
    assert scaled.service.names == set()
