"""Commits of transactions whose stream was scaled since they began: epochs that they share."""

from itertools import pairwise

import pytest

from gateway.protocols.pravega.controller import catalog as catalog_module
from gateway.protocols.pravega.controller import scaling as scaling_module
from gateway.protocols.pravega.controller.grpc import Code
from gateway.protocols.pravega.controller.names import segment
from gateway.protocols.pravega.errors import Sealed
from pravega_messages import new

from .scaled import E1, E2, E3, STARTED, Writers, begun, event, merge_what_waits, staged

COMMITTING, COMMITTED, ABORTED = 2, 3, 5
NO_TRANSACTION = 3


@pytest.fixture
def writers(scaled) -> Writers:
    return Writers(scaled)


def test_a_transaction_of_its_epoch(scaled):
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


def test_a_commit_over_epochs(scaled):
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
def test_a_commit_over_segments_that_somebody_has_ended(scaled, harm):
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


def test_overlapping_transactions(scaled, writers):
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
def test_commits_of_one_moment_share_their_epochs(scaled, writers, count):
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


def test_commits_do_not_wait_for_ever(scaled, writers):
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


def test_whose_rows_they_are_that_several_commit(scaled, writers):
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


def test_a_stream_that_is_sealed_has_what_was_committed(scaled, writers):
    """Before it is sealed what waits is merged; what is open is aborted."""
    done, left = writers.begin(b"a", b"b"), writers.begin(b"a")
    scaled.split()
    request = new("TxnRequest", stream_info=scaled.info, txn=done)
    assert scaled.peer.status("commitTransaction", request) == 0
    scaled.peer.call("sealStream", scaled.info)
    assert scaled.peer.status("checkTransactionState", request) == COMMITTED
    request = new("TxnRequest", stream_info=scaled.info, txn=left)
    assert scaled.peer.status("checkTransactionState", request) == ABORTED


def test_a_commit_that_needs_no_epochs(scaled, writers):
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


def test_a_history_that_is_too_long(scaled, writers, monkeypatch):
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


def test_an_abort_over_epochs(scaled):
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
