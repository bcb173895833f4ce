"""Pravega's state over crashes, on a journal, a spool and checkpoints that are real but
for their disk: a transaction is in the files whole and once, or can still be ended.
"""

import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import Clock

from gateway.event import Batch, Stored
from gateway.protocols.pravega.container import Container
from gateway.protocols.pravega.records import decode
from gateway.protocols.pravega.segments import Change
from gateway.store.checkpoint import Checkpoint
from gateway.store.digests import NOTHING
from gateway.store.opening import Start, open_node
from gateway.store.spool import parse_file_name
from gateway.store.system.machine import Machine

W = b"w" * 16
OPEN = "#transaction.0000000000000000000000000000000a"
ABORTED = "#transaction.0000000000000000000000000000000b"
COMMITTED = [b"s1", b"s2", b"t1", b"t2"]


class Daemon:
    """One life: the parts that keep what was acknowledged, and Pravega's segments."""

    def __init__(self, crash: Any, disk: Any) -> None:
        self.crash, self.disk = crash, disk
        opened = open_node(
            Start(
                "gw",
                crash.directories,
                Machine(disk, clock=crash.clock),
                {"pravega": decode},
                remembering=True,
                compression="none",
            )
        )
        assert opened.losses == []
        self.opened = opened
        self.log, self.publisher = opened.log, opened.publisher
        self.sealed = list(opened.unpublished)
        self.clock = Clock()
        self.container = Container(self, self.clock)  # type: ignore[arg-type]
        self.checkpoint = Checkpoint(
            crash.directories.state_of("gw"),
            {"pravega": self.container},
            disk,
            self.clock,
            maybeDeferred,
            opened.publisher.remove,
        )
        self.checkpoint.recover(opened.segments, self.sealed)
        self.state = self.container.state
        self.checkpoint.start()

    def submit(self, batch: Batch) -> Deferred[Stored]:
        """A journal whose every batch is a commit of its own."""
        return succeed(Stored(batch, self.log.commit([batch])))

    def do(self, change: Change) -> None:
        self.container.submit(change)
        self.clock.advance(0)

    def append(self, name: str, *events: bytes) -> None:
        """A block; the writer's number is the length of the segment behind it."""
        data = b"".join(struct.pack(">II", 0, len(each)) + each for each in events)
        number, last = len(data), self.state.find(name).number_of(W)
        number += max(last, 0)
        self.do(self.state.append(name, W, number, data, 0, claimed=1, last=last))
        self.disk.mark((name, number))

    def end(self, *, commit: bool, which: str = OPEN) -> None:
        """As a controller does, also after a crash: what is open is ended."""
        names = [name for name in ("s", "t") if name + which in self.state.segments]
        if commit and names:
            self.do(self.state.merge([(name, name + which) for name in names], 0))
        elif not commit:
            for name in names:
                self.do(self.state.delete(name + which, 0))

    def publish(self) -> None:
        self.opened.marker.write(self.opened.mark(self.log.next_lsn - 1), now=True)
        sealed = self.log.seal()
        self.sealed += [sealed] if sealed else []
        while self.sealed:
            self.publisher.publish(self.sealed[0])
            self.checkpoint.published(self.sealed.pop(0))
        self.clock.advance(60)

    @property
    def rows(self) -> list[bytes]:
        """All that Spark will ever read."""
        lines: list[bytes] = []
        for name in self.disk.names(self.crash.spool):
            if parse_file_name(name):
                *inside, end = self.disk.read(self.crash.spool / name).split(b"\n")
                assert len(end) == len(f"end {NOTHING}"), "a torn file is public"
                lines += inside
        return [line.partition(b" ")[2] for line in lines]


def live(daemon: Daemon, publish: Callable[[], None]) -> None:
    """Two transactions over two segments; one is committed, one is not."""
    state = daemon.state
    for name in ("s", "t"):
        daemon.do(state.create(name, 0))
        for which in (OPEN, ABORTED):
            daemon.do(state.create(name + which, 0))
    daemon.append("s" + OPEN, b"s1")
    publish()
    daemon.append("s", b"plain")
    daemon.append("t" + ABORTED, b"never")
    daemon.append("t" + OPEN, b"t1", b"t2")
    publish()
    daemon.append("s" + OPEN, b"s2")
    daemon.end(commit=True)
    daemon.disk.mark("committed")
    publish()
    daemon.end(commit=False, which=ABORTED)
    daemon.append("t", b"last")
    publish()


def check(crash: Any, disk: Any) -> None:
    marks = disk.marks
    known = {mark for mark in marks if type(mark) is tuple}
    daemon = Daemon(crash, disk)
    left = [name for name in ("s", "t") if name + OPEN in daemon.state.segments]
    for name, number in known:
        segment = daemon.state.segments.get(name)
        if segment is not None:
            assert segment.number_of(W) >= number
            assert segment.readable >= number
        else:
            assert name.endswith((OPEN, ABORTED))
    if "committed" in marks:
        assert not left
    daemon.publish()
    rows = Counter(daemon.rows)
    merged = daemon.state.was_merged("s" + OPEN)
    assert [rows[each] for each in COMMITTED] == [int(merged)] * 4
    if any(name.endswith(OPEN) for name, _ in known):
        assert left or merged
    daemon.end(commit=True)
    daemon.end(commit=False, which=ABORTED)
    daemon.publish()
    rows = Counter(daemon.rows)
    assert max(rows.values(), default=0) <= 1
    assert rows[b"never"] == 0
    written = {name for name, _ in known}
    assert rows[b"s1"] >= ("s" + OPEN in written)
    assert rows[b"plain"] >= ("s" in written)
    assert daemon.state.staged_bytes == 0
    again = Daemon(crash, disk)
    assert again.state.number == daemon.state.number
    assert again.rows == daemon.rows
    assert disk.wrong == []


@pytest.mark.usefixtures("quick_files")
@pytest.mark.parametrize("publishing", [True, False])
def test_no_crash_tears_a_transaction(crash, publishing):
    """Kill -9 and power cuts after every step of a life with transactions, whether
    files and checkpoints are made on the way or everything is in the journal.
    """
    disk = crash.new_disk(remembers=True)
    daemon = Daemon(crash, disk)
    live(daemon, daemon.publish if publishing else lambda: None)
    count = 0
    crashed = crash.crashed(disk, most=12, every=crash.step)
    for count, (story, left) in enumerate(crashed, 1):  # noqa: B007
        try:
            check(crash, left)
        except Exception as why:
            pytest.fail(f"{story}: {type(why).__name__}: {why}")
    assert count > 50 // crash.step
