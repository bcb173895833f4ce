"""Transactions by the calls that clients make; `test_transactions` has the merging."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.protocols.pravega.controller.grpc import Code
from gateway.protocols.pravega.events import STEP_EVENTS
from pravega_messages import decode, new

from .conftest import basic
from .scaled import event

OPEN, COMMITTED, ABORTED = 1, 3, 5


class Txn:
    """One transaction of `sc/st`, as its client sees it."""

    def __init__(self, peer: Any, lease: int = 10_000) -> None:
        self.peer = peer
        self.info = new("StreamInfo", scope="sc", stream="st")
        request = new("CreateTxnRequest", stream_info=self.info, lease=lease)
        self.made = peer.call("createTransaction", request)
        self.id = self.made.txn

    @property
    def request(self) -> Any:
        return new("TxnRequest", stream_info=self.info, txn=self.id)

    def on(self, peer: Any) -> Txn:
        """The same, after a restart."""
        again = object.__new__(Txn)
        again.peer, again.info, again.id = peer, self.info, self.id
        return again

    def segment(self, number: int) -> str:
        return (
            f"sc/st/{number}.#epoch.0#transaction.{self.id.high:016x}{self.id.low:016x}"
        )

    def write(self, number: int, *events: bytes) -> None:
        data = b"".join(map(event, events))
        self.peer.service.append(self.segment(number), data)

    def commit(self) -> int:
        found: int = self.peer.status("commitTransaction", self.request)
        return found

    def abort(self) -> int:
        found: int = self.peer.status("abortTransaction", self.request)
        return found

    def state(self) -> int:
        found: int = self.peer.status("checkTransactionState", self.request)
        return found

    def ping(self, lease: int = 10_000) -> int:
        request = new("PingTxnRequest", stream_info=self.info, txn=self.id, lease=lease)
        found: int = self.peer.status("pingTransaction", request)
        return found

    def pass_time(self, seconds: float) -> None:
        self.peer.service.clock.advance(seconds)
        self.peer.service.store()


@pytest.fixture
def txn(stream) -> Txn:
    """A transaction of `sc/st`, which has two segments."""
    return Txn(stream)


def length(peer: Any, number: int) -> int:
    found: int = peer.service.container.state.find(f"sc/st/{number}.#epoch.0").readable
    return found


def test_begin(txn):
    """It has a segment for each of the stream's; its id holds the epoch, and no sign
    that would get lost in Rust.
    """
    there = txn.peer.service.names
    assert {txn.segment(0), txn.segment(1)} <= there
    assert [each.segment.number for each in txn.made.ranges] == [0, 1]
    assert txn.id.high >> 32 == 0
    assert txn.id.low >= 0
    assert txn.state() == OPEN


def test_commit(txn):
    """All events of all segments, in one change; and it is durable when it is said."""
    txn.write(0, b"one", b"two")
    txn.write(1, b"three")
    service = txn.peer.service
    before = len(service.journal.stored)
    answer = txn.peer.send("commitTransaction", txn.request.SerializeToString())
    assert answer.status is None
    assert (length(txn.peer, 0), length(txn.peer, 1)) == (0, 0)
    service.store()
    txn.peer.exchange()
    assert answer.message == b""
    assert (length(txn.peer, 0), length(txn.peer, 1)) == (22, 13)
    [merged] = [
        each.batch for each in service.journal.stored[before:] if each.batch.count
    ]
    assert merged.count == 3
    assert txn.peer.connection.counted == 3
    assert service.names == {"sc/st/0.#epoch.0", "sc/st/1.#epoch.0"}
    assert txn.state() == COMMITTED


def test_a_commit_while_events_are_counted(txn):
    """It takes turns until what came last is counted, and then all of it is merged."""
    # Of two sizes, so that they are walked one by one.
    txn.write(0, *(b"", b"x") * (2 * STEP_EVENTS))
    peer = txn.peer
    peer.connection.stepwise = True
    answer = peer.send("commitTransaction", txn.request.SerializeToString())
    while peer.connection.turn_due:
        assert txn.segment(0) in peer.service.names
        peer.connection.take_turn()
    assert peer.connection.turns >= 2
    peer.service.store()
    peer.exchange()
    assert decode("Status", answer.message).status == 0
    assert peer.connection.counted == 4 * STEP_EVENTS


def test_each_name_on_one_connection_has_its_own_rows(make_service, config):
    """Callers behind a proxy share a connection: rows say who has committed them; a name
    that is proved comes before that of a certificate.  None do if the port has another
    protocol's name, whose batches would not come back after a restart.
    """
    service = make_service(users={"ann": "x", "bob": "y"})
    ann, bob = ({"authorization": basic(*who)} for who in (("ann", "x"), ("bob", "y")))
    for protocol, certificate in (
        ("pravega", None), ("pravega", "CN=proxy"), ("other", None),
    ):  # fmt: skip
        peer = service.peer()
        origin = peer.connection.origin
        origin.protocol, origin.principal = protocol, certificate
        peer.headers = ann
        peer.call("createScope", new("ScopeInfo", scope="sc"))
        peer.call("createStream", config("st", 2))
        for headers, name in ((ann, "ann"), (bob, "bob"), (ann, "ann")):
            peer.headers = headers
            txn = Txn(peer)
            txn.write(0, b"one")
            assert txn.commit() == 0
            rows = [each.batch for each in service.journal.stored if each.batch.count]
            last, ours = rows[-1].origin, protocol == "pravega"
            assert (last.protocol, last.principal) == (
                "pravega",
                name if ours else None,
            )
            assert (last.session == origin.session) == ours


def test_commit_again(txn):
    """A client that asks twice hears the same, and nothing is stored twice."""
    txn.write(0, b"one")
    assert [txn.commit(), txn.commit()] == [0, 0]
    assert length(txn.peer, 0) == 11
    assert txn.ping() == 5
    assert txn.abort() == 3
    assert txn.state() == COMMITTED


def test_abort(txn):
    """Nothing is appended any more; a while later its segments are gone."""
    txn.write(0, b"one")
    assert [txn.abort(), txn.abort()] == [0, 0]
    segments = txn.peer.service.container.state.segments
    assert segments[txn.segment(0)].closed
    assert txn.state() == ABORTED
    assert txn.commit() == 3
    assert txn.ping() == 6
    txn.pass_time(31)
    assert txn.segment(0) not in segments
    assert txn.peer.service.container.state.staged_bytes == 0
    assert (length(txn.peer, 0), txn.state()) == (0, ABORTED)


def test_a_lease_runs_out(txn):
    """Unless the client pings in time, with another lease if it likes."""
    txn.pass_time(9)
    assert txn.ping(20_000) == 0
    txn.pass_time(19)
    assert txn.state() == OPEN
    txn.pass_time(2)
    assert txn.state() == ABORTED
    assert txn.commit() == 3


@pytest.mark.parametrize("lease", [0, -1, 600_001])
def test_leases(txn, lease):
    """Ten minutes at most; too long a one changes nothing."""
    assert txn.ping(lease) == 1
    request = new("CreateTxnRequest", stream_info=txn.info, lease=lease)
    answer = txn.peer.try_("createTransaction", request)
    assert answer.status == Code.INVALID_ARGUMENT
    assert txn.state() == OPEN


def test_an_old_one(txn):
    """After a day no ping keeps it alive."""
    for _ in range(145):
        assert txn.ping(600_000) in (0, 2)
        txn.pass_time(599)
    assert txn.ping() == 2
    txn.pass_time(2)
    assert txn.state() == ABORTED


def test_no_such_transaction(txn, stream_info):
    """Neither of an unknown id, nor of an unknown stream."""
    txn.id.low += 1
    assert txn.commit() == 3
    assert txn.abort() == 3
    asked = txn.peer.try_("checkTransactionState", txn.request)
    assert asked.status == Code.NOT_FOUND
    txn.info.stream = "none"
    assert txn.commit() == 2
    request = new("PingTxnRequest", stream_info=txn.info, txn=txn.id, lease=1)
    assert txn.peer.try_("pingTransaction", request).status == Code.NOT_FOUND


def test_a_sealed_stream(txn):
    """Sealing aborts what is open, and nothing is begun any more."""
    txn.peer.call("sealStream", txn.info)
    assert txn.state() == ABORTED
    request = new("CreateTxnRequest", stream_info=txn.info, lease=1000)
    answer = txn.peer.try_("createTransaction", request)
    assert answer.status == Code.FAILED_PRECONDITION


def test_a_deleted_stream(txn):
    """Nothing is left of its transactions, not even timers; those of other streams, which may
    be a hundred thousand, are not looked at.
    """

    class Unread(dict[Any, Any]):
        def items(self) -> Any:
            raise AssertionError

    second = Txn(txn.peer)
    txn.commit()
    catalog = txn.peer.service.controller._catalog
    catalog.transactions = Unread(catalog.transactions)
    txn.peer.call("sealStream", txn.info)
    txn.peer.call("deleteStream", txn.info)
    assert txn.peer.service.names == set()
    assert second.commit() == 2
    txn.pass_time(60)


def test_a_segment_sealed_by_somebody_else(txn):
    """The commit fails as a whole: nothing of it is there."""
    txn.write(0, b"one")
    txn.write(1, b"two")
    container = txn.peer.service.container
    container.submit(container.state.seal("sc/st/1.#epoch.0", 0))
    assert txn.commit() == 1
    assert length(txn.peer, 0) == 0
    assert txn.state() == OPEN


def test_completed(txn):
    """Those that have ended, and how, be it without an event."""
    other, third = Txn(txn.peer), Txn(txn.peer)
    assert (txn.commit(), other.abort()) == (0, 0)
    request = new("ListCompletedTxnRequest", stream_info=txn.info)
    found = txn.peer.call("listCompletedTransactions", request).response
    assert {(each.txn.low, each.status) for each in found} == {
        (txn.id.low, 0),
        (other.id.low, 1),
    }
    assert third.state() == OPEN


def test_how_they_ended_is_forgotten(txn):
    """After an hour, when others are begun."""
    txn.commit()
    txn.pass_time(3599)
    Txn(txn.peer)
    assert txn.state() == COMMITTED
    txn.pass_time(2)
    Txn(txn.peer)
    asked = txn.peer.try_("checkTransactionState", txn.request)
    assert asked.status == Code.NOT_FOUND


def test_too_many_segments(make_service, config):
    """A transaction's count as all others."""
    peer = make_service(segments=7).peer()
    peer.call("createScope", new("ScopeInfo", scope="sc"))
    peer.call("createStream", config("st", 1))
    Txn(peer)
    Txn(peer)
    request = new(
        "CreateTxnRequest",
        stream_info=new("StreamInfo", scope="sc", stream="st"),
        lease=1000,
    )
    answer = peer.try_("createTransaction", request)
    assert answer.status == Code.RESOURCE_EXHAUSTED
    assert "options.segments" in answer.text


# -- restarts ---------------------------------------------------------------------------


def test_a_restart_keeps_them(txn):
    """Open ones have their whole lease again, and then none; ended ones stay ended."""
    done, gone, left = (Txn(txn.peer) for _ in range(3))
    txn.write(0, b"one")
    done.write(0, b"two")
    done.commit()
    gone.abort()
    again = txn.peer.service.restarted().peer()
    assert done.on(again).state() == COMMITTED
    assert gone.on(again).state() == ABORTED
    assert gone.segment(0) not in again.service.names
    after = txn.on(again)
    after.pass_time(9)
    assert after.state() == OPEN
    assert after.commit() == 0
    assert length(again, 0) == 22
    after.pass_time(2)
    assert left.on(again).state() == ABORTED


def test_a_crash_at_any_change(txn):
    """All of its events are there, or none; and it knows which."""
    txn.write(0, b"one")
    txn.write(1, b"two")
    txn.commit()
    stored = txn.peer.service.journal.stored
    seen = set()
    for changes in range(len(stored) + 1):
        again = txn.peer.service.restarted(changes=changes).peer()
        state = again.service.container.state
        if "sc/st/1.#epoch.0" not in state.segments:
            continue
        answer = again.try_("checkTransactionState", txn.request)
        lengths = length(again, 0), length(again, 1)
        merged = lengths == (11, 11)
        assert merged or lengths == (0, 0)
        known = answer.message[-1] if answer.status == 0 else None
        seen.add((known, merged))
    assert seen == {
        (None, False),
        (ABORTED, False),  # none of its segments was made: nobody heard of it
        (OPEN, False),
        (COMMITTED, True),
    }
