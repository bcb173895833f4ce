"""The container: what outlives connections, what comes back after a restart, and what a service
lends its parts.
"""

import gc
import os
import sys
import threading
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock

from deadlines import eventually
from gateway.event import Batch, Origin, Stored
from gateway.protocols.pravega import protocol, snapshot
from gateway.protocols.pravega.controller.access import of_segment
from gateway.protocols.pravega.errors import Need
from gateway.protocols.pravega.segments import Segments
from gateway.protocols.pravega.wire import NEVER, Hello, SetupAppend
from gateway.protocols.pravega.wire_segments import (
    CreateTransientSegment,
)
from gateway.sdk.interfaces import NotStored
from gateway.testing import ManualJournal
from gateway.testing.plugins import lend, listener_of

from .blocks import bare
from .conftest import W, X


def test_idle_writers_expire(make_store):
    """A writer that does nothing for the retention is forgotten, within twice of it."""
    store = make_store(writer_retention=100.0)
    store.container.start()
    peer = store.peer()
    peer.setup(writer=W)
    peer.setup(writer=X)
    peer.ask(bare(b"", 1), bare(b"", 1, writer=X))
    store.clock.advance(60)
    peer.ask(bare(b"", 2))
    store.clock.advance(60)
    store.store()
    peer.ask(bare(b"", 3))
    assert store.peer().setup(writer=X) == 1
    store.clock.advance(100)
    store.store()
    assert store.peer().setup(writer=X) == NEVER
    assert store.peer().setup(writer=W) == 3
    peer.ask(bare(b"", 2, writer=X))
    assert "options.writer_retention" in peer.refused
    store.container.stop()
    assert not store.clock.getDelayedCalls()


def test_nobody_is_forgotten_in_the_middle_of_a_snapshot(make_store):
    """All segments change then: each would have to be encoded first, in one turn.  They
    are as soon as it is made, though the next one is asked for.
    """
    store = make_store(writer_retention=100.0)
    store.container.start()
    state = store.container.state
    begun = state.writers_forgotten_at
    store.container.submit(state.create("not stored yet", 0))
    got: list[bytes] = []
    store.container.snapshot().addCallback(got.append)
    store.clock.advance(150)
    assert not store.clock.getDelayedCalls()
    assert not got
    assert state.writers_forgotten_at == begun
    store.container.snapshot().addCallback(got.append)
    store.store()
    assert snapshot.restore(got[0]).writers_forgotten_at == begun
    assert state.writers_forgotten_at > begun
    store.store()
    assert snapshot.restore(got[1]).writers_forgotten_at > begun
    store.container.stop()
    assert not store.clock.getDelayedCalls()


def test_retention_counts_over_restarts(make_store):
    """A gateway that restarts often forgets writers all the same."""
    store = make_store(writer_retention=100.0)
    store.container.start()
    store.clock.advance(100)
    store.store()
    state = snapshot.restore(snapshot.save(store.container.state))
    again = make_store(writer_retention=100.0, state=state)
    again.clock.advance(150)
    again.container.start()
    [call] = again.clock.getDelayedCalls()
    assert call.getTime() - again.clock.seconds() == 50


@pytest.mark.parametrize("later", [365 * 86400.0, -86400.0])
def test_a_start_with_a_wrong_clock_forgets_nobody(make_store, later):
    """What a writer sends again, that nobody acknowledged, would be there twice; its time
    counts from that start on, also where the clock was ahead before and is right now.
    """
    store = make_store(writer_retention=100.0)
    store.clock.advance(2 * 86400.0)
    store.container.start()
    peer = store.peer()
    peer.setup(writer=X)
    peer.ask(bare(b"", 1, writer=X))
    store.clock.advance(100)
    store.store()
    state = snapshot.restore(snapshot.save(store.container.state))
    again = make_store(writer_retention=100.0, state=state)
    again.clock.advance(store.clock.seconds() + later)
    again.container.start()
    again.clock.advance(50)
    again.store()
    assert again.peer().setup(writer=X) == 1
    again.clock.advance(50)
    again.store()
    assert again.peer().setup(writer=X) == NEVER


def test_a_snapshot_of_what_was_not_stored_fails(store):
    """Nobody waits for ever for a state that will never be durable."""
    store.peer().setup()
    store.container.submit(store.container.state.create("t", 0))
    failures: list[Any] = []
    store.container.snapshot().addErrback(failures.append)
    store.journal.refuse("stopping")
    store.clock.advance(0)
    store.container.snapshot().addErrback(failures.append)
    assert [bool(failure.check(NotStored)) for failure in failures] == [True, True]


def test_it_begins_with_a_snapshot(store, make_store):
    """What `snapshot` gave makes another container the same, before any replay."""
    store.peer().setup()
    got: list[bytes] = []
    store.container.stop()
    store.container.snapshot().addCallback(got.append)
    store.clock.advance(0)
    again = make_store(state=Segments())
    again.container.restore(got[0])
    assert snapshot.save(again.container.state) == snapshot.save(store.container.state)


def test_snapshot_waits_for_the_disk(writer, store):
    """It is given when all that is in it is durable, and holds nothing that came later."""
    writer.send(bare(b"abc", 1))
    got: list[bytes] = []
    store.container.snapshot().addCallback(got.append)
    store.clock.advance(0)
    assert got == []
    writer.send(bare(b"def", 2))
    store.journal.store()
    store.clock.advance(0)
    [data] = got
    state = snapshot.restore(data)
    assert state.find("s").length == 3
    store.store()
    again = type(store)(state=state)
    for stored in store.journal.stored:
        again.container.replay(stored)
    assert again.container.state.find("s").length == 6
    assert again.peer().setup() == 2


def test_what_is_rebuilt_has_what_is_durable(writer, store, make_store):
    """Of a snapshot and what came since; the container itself goes on with all of it."""
    writer.ask(bare(b"abc", 1))
    before = snapshot.save(store.container.state)
    writer.ask(bare(b"def", 2))
    stored = list(store.journal.stored)
    writer.send(bare(b"ghi", 3))
    rebuilt = store.container.rebuilt
    for data, batches in ((None, stored), (before, stored), (before, stored[-1:])):
        again = make_store(state=snapshot.restore(rebuilt(data, batches)))
        assert again.container.state.find("s").length == 6
        assert again.peer().setup() == 2
    assert store.container.state.find("s").length == 9
    store.store()
    assert store.peer().setup() == 3


def test_replay_takes_only_its_own(store):
    """Batches of other protocols in the journal are none of its business."""
    origin = Origin("lumberjack", "l", "s", "p")
    store.container.replay(Stored(Batch(origin, 0, 1, b"anything", 1), 1))
    assert store.container.state.number == 1


def many_transients(store: Any) -> Any:
    peer = store.peer()
    for number in range(500):
        peer.ask(CreateTransientSegment(number, W, "s"))
    assert len(store.container.state.segments) == 501
    return peer


def test_large_events_without_end_take_many_turns_to_clear(store):
    """Who leaves 500 behind holds nobody up; they are gone in the end."""
    many_transients(store).connection.lose()
    assert 0 < len(store.journal.pending) <= 64
    store.store()
    store.store()
    assert set(store.container.state.segments) == {"s"}


@pytest.mark.parametrize("crash", [False, True])
def test_a_stop_while_large_events_are_cleared(store, crash):
    """The next start clears the rest, in many turns as well, and serves meanwhile."""
    many_transients(store).connection.lose()
    store.journal.store_all()
    if not crash:
        store.container.stop()
        store.store()
        assert len(store.container.state.segments) > 400
    again = store.restarted()
    assert 0 < len(again.journal.pending) <= 64
    assert again.peer().setup() == NEVER
    again.store()
    assert set(again.container.state.segments) == {"s"}


def test_segments_cost_the_collector_nothing(store):
    """With 100 000 of them a full collection would hold everybody up."""
    many_transients(store)
    gc.collect()
    for segment in store.container.state.segments.values():
        parts = [getattr(segment, name) for name in segment.__struct_fields__]
        if sys.version_info >= (3, 14):  # it looks at every dict, whatever is in it
            parts = [part for part in parts if not isinstance(part, dict)]
        assert not any(map(gc.is_tracked, [segment, *parts]))


def test_a_lost_change_ends_everything(store):
    """What was decided on top of a change that is not stored is not stored either."""
    peer, other = store.peer(), store.peer()
    peer.setup()
    other.setup(writer=X)
    peer.send(bare(b"a", 1))
    other.send(bare(b"b", 1, writer=X))
    store.journal.refuse("disk gone")
    assert peer.connection.closed
    assert other.connection.closed
    store.store()
    assert peer.got == other.got == []
    assert store.container.broken == "disk gone"
    last = store.peer(hello=False)
    last.send(Hello(17, 5))
    assert last.refused


class Stopping(ManualJournal):
    """A journal that takes nothing any more, and says so at once."""

    stopping = False

    def submit(self, batch: Batch) -> Deferred[Stored]:
        if self.stopping:
            return fail(NotStored("the gateway is stopping"))
        return super().submit(batch)


def test_a_journal_that_stops(make_store):
    """A change that is refused on the spot closes its connection on the spot."""
    store = make_store()
    store.container.journal = journal = Stopping()
    peer = store.peer()
    peer.send(SetupAppend(1, W, "s"))
    journal.stopping = True
    peer.send(bare(b"a", 1), bare(b"b", 2))
    assert peer.connection.closed
    assert len(peer.got) == 1


class _Reactor(Clock):
    """Its turn is at once, in whichever thread."""

    def callFromThread(self, call: Any, *args: Any) -> None:
        call(*args)


def test_a_few_reads_at_a_time(tmp_path, monkeypatch):
    """On a machine with two cores two threads read, and no third; each read has its turn."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    service = protocol.service(lend(protocol, tmp_path, reactor=_Reactor()))
    both = threading.Barrier(2, timeout=60)
    threads: set[str] = set()

    def fetch(_: str, offset: int, *__: int) -> bytes:
        both.wait()
        threads.add(threading.current_thread().name)
        return b"%d" % offset

    service.history.fetch = fetch
    service.start()
    got: list[bytes] = []
    for offset in range(6):
        service.history.read("s", offset, 1, 1, 6).addCallback(got.append)
    service.close()
    eventually(lambda: len(got) == 6, "all reads")
    assert len(threads) == 2
    assert sorted(got) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_reload_brings_other_rules(tmp_path):
    """All listeners have the same; without any left, those that were stay in force."""

    def listeners(*rules: dict[str, Any]) -> list[Any]:
        options = {"users": {"ann": "secret"}, "access": list(rules)}
        return [listener_of(protocol, tmp_path, options, {})]

    mine = listeners({"principals": ["ann"], "read": ["shop/*"]})
    service = protocol.service(lend(protocol, tmp_path, mine, reactor=_Reactor()))
    what = of_segment("shop/orders/0")

    def allowed() -> list[str]:
        access = service.controller.access
        return [need.value for need in Need if access.allows("ann", need, what)]

    assert allowed() == ["read", "see", "use"]
    mine[:] = listeners({"principals": ["ann"], "write": ["shop/orders"]})
    service.reload()
    assert allowed() == ["write", "see", "use"]
    mine.clear()
    service.reload()
    assert allowed() == ["write", "see", "use"]
    assert service.controller.access.denial("ann", Need.READ, what) is not None
    [statistics] = service.statistics()
    assert statistics.by_name["denied"] == {
        "read": 1, "write": 0, "manage": 0, "see": 0, "use": 0, "groups": 0
    }  # fmt: skip
