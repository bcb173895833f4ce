"""Every call to the disk fails once, and nothing that was promised is broken by it."""

import contextlib
import errno
import itertools
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import pytest

from gateway.sdk.interfaces import NotStored
from gateway.store.journal import Journal
from gateway.store.journal import journal as journal_module
from gateway_testkit.disk import Fault, RecordingDisk
from gateway_testkit.reactor import QueuedReactor
from samples import some_of
from sections import journal_settings

FAULTS: dict[str, dict[str, Any]] = {
    "full": {"number": errno.ENOSPC},
    "full in the middle of a write": {"number": errno.ENOSPC, "short": True},
    "broken": {"number": errno.EIO},
    "broken for three calls": {"number": errno.EIO, "times": 3},
}
TRIES = 5
STEP = some_of(1, 3)
"""`make test` lets one call in so many fail, of each kind of fault others."""


def each_fault(kind: str, *, least: int) -> Iterator[Fault]:
    """The first call fails, then the second, … until there is no such call."""
    for nth in itertools.count(1 + [*FAULTS].index(kind) % STEP, STEP):
        fault = Fault(nth, **FAULTS[kind])
        yield fault
        if not fault.failed:
            assert nth > least
            return


def work(gateway: Any) -> None:
    gateway.commit(1, 2, size=300)
    gateway.to_spool(2)
    gateway.commit(1)
    gateway.to_spool(3, 1)


def work_with_metadata(gateway: Any) -> None:
    gateway.commit(0, 2)
    gateway.commit(0)
    gateway.roll()
    gateway.commit(0)
    gateway.publish()
    gateway.save()
    gateway.roll()
    gateway.to_spool(1, 0)
    gateway.save()
    gateway.commit(0)


def fail_then_crash(
    crash: Any,
    kind: str,
    what: Callable[[Any], None],
    *,
    most: int,
    every: int,
    remembers: bool = False,
) -> int:
    """*what* is done on a disk that fails at each of its calls in turn; then the power
    goes at some step.  How many states were looked at.
    """
    every *= crash.share
    states = 0
    seen: set[Hashable] = set()
    for fault in each_fault(kind, least=40):
        disk = crash.new_disk(remembers=remembers)
        gateway = crash.Gateway(disk, tries=TRIES)
        disk.fault = fault
        what(gateway)
        disk.fault = None
        turn = fault.nth % every
        states += crash.check_all(
            crash.crashed(disk, most=most, every=every, begin=turn, seen=seen)
        )
        states += crash.check_all([(f"the end, with {fault.failed}", disk)])
    return states


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize(
    ("what", "most", "every"), [(work, 6, 4), (work_with_metadata, 5, 8)]
)
def test_the_disk_fails_anywhere_and_then_the_power_too(
    crash, quick_files, kind, what, most, every
):
    """Tried again it works, and a crash at any step from then on loses nothing.  What no
    checkpoint could save the journal keeps, until a later one does.
    """
    remembers = what is work_with_metadata
    states = fail_then_crash(
        crash, kind, what, most=most, every=every, remembers=remembers
    )
    assert states > 1000 // crash.share // STEP


def start_then_crash(
    crash: Any, disk: RecordingDisk, fault: Fault, turn: int, seen: set[Hashable]
) -> None:
    """Start where the last life was killed; what is left is good, wherever it crashes."""
    again = RecordingDisk.after_kill(disk.moments[-1])
    again.fault = fault
    with contextlib.suppress(OSError):
        crash.Gateway(again).publish()
    again.fault = None
    check_some(crash, again, turn, seen)
    crash.check_all([(f"the end, with {fault.failed}", again)])


def check_some(crash: Any, disk: RecordingDisk, turn: int, seen: set[Hashable]) -> None:
    """What crashes after steps of the last life leave; each *turn* has others."""
    every = 2 * crash.share
    crash.check_all(
        crash.crashed(disk, most=4, every=every, begin=turn % every, seen=seen)
    )


def unfinished(gateway: Any) -> None:
    gateway.commit(1, 2)
    gateway.roll()
    gateway.commit(2)
    gateway.publisher.publish(gateway.sealed.pop())
    gateway.roll()
    gateway.commit(3)


def unfinished_with_metadata(gateway: Any) -> None:
    gateway.to_spool(1, 0)
    gateway.save()
    gateway.to_spool(0, 2)
    gateway.commit(0)
    gateway.roll()
    gateway.commit(0, 3)


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("life", [unfinished, unfinished_with_metadata])
def test_a_start_fails_or_succeeds_but_never_harms(crash, quick_files, kind, life):
    """What fails while a start recovers, restores and saves is found as good by the next."""
    seen: set[Hashable] = set()
    for turn, fault in enumerate(each_fault(kind, least=20)):
        disk = crash.new_disk(remembers=life is unfinished_with_metadata)
        life(crash.Gateway(disk))
        start_then_crash(crash, disk, fault, turn, seen)


class Running:
    """The journal with its thread, on a disk that fails; the test is its reactor."""

    def __init__(self, crash: Any, fault: Fault) -> None:
        self.crash = crash
        self.disk = crash.new_disk()
        self.gateway = crash.Gateway(self.disk, tries=TRIES)
        self.disk.fault = fault
        self.reactor = QueuedReactor()
        self.run = self.reactor.run
        self.fatal: list[str] = []
        self.acknowledged = 0
        self.journal = Journal(
            self.gateway.log,
            reactor=self.reactor,
            **journal_settings(commit_interval=0.0, roll_events=4, roll_interval=1e6),
            on_sealed=self.gateway.sealed.append,
            on_fatal=self.fatal.append,
        )
        self.journal.start()

    def submit(self, *counts: int) -> None:
        for count in counts:
            batch = self.gateway.senders.batch(count)
            done = self.journal.submit(batch)
            done.addCallback(self.stored).addErrback(lambda why: why.trap(NotStored))

    def stored(self, stored: Any) -> None:
        """An acknowledgement: a power cut right now must not take the batch."""
        self.acknowledged += 1
        self.gateway.senders.acknowledge(stored)

    def stop(self) -> None:
        self.reactor.wait(self.journal.stop())


@pytest.fixture
def at_once(monkeypatch) -> None:
    """A failed commit is tried again without waiting."""
    monkeypatch.setattr(journal_module, "_RETRY_SECONDS", 0.0)


@pytest.mark.parametrize("kind", ["full", "full in the middle of a write", "broken"])
def test_the_journal_acknowledges_only_what_a_power_cut_leaves(
    crash, quick_files, at_once, kind
):
    """Whatever call fails, all is acknowledged in the end, and never too early."""
    seen: set[Hashable] = set()
    for turn, fault in enumerate(each_fault(kind, least=9)):
        running = Running(crash, fault)
        running.submit(1, 2)
        running.run(lambda r=running: r.acknowledged == 2)
        running.submit(3, 1, 2)
        running.run(lambda r=running: r.acknowledged == 5)
        running.stop()
        assert not running.fatal
        running.disk.fault = None
        check_some(crash, running.disk, turn, seen)
        running.gateway.publish()
        crash.check_all([(f"the end, with {fault.failed}", running.disk)])


@pytest.mark.parametrize("nth", range(1, 7))
def test_two_syncs_that_fail_in_a_row_are_the_end(crash, quick_files, at_once, nth):
    """Wherever the first fails: of a header, a directory or a group of batches."""
    calls = frozenset({"sync", "sync_directory"})
    running = Running(crash, Fault(nth, times=10**9, calls=calls))
    running.submit(1, 2)
    running.run(lambda: bool(running.acknowledged == 2 or running.fatal))
    running.submit(3, 1)
    running.run(lambda: bool(running.acknowledged == 4 or running.fatal))
    running.submit(2)
    running.run(lambda: bool(running.fatal))
    assert "Input/output error" in running.fatal[0]
    running.journal.stop()
    running.disk.fault = None
    every = crash.share
    crash.check_all(crash.crashed(running.disk, most=8, every=every, begin=nth % every))


def test_a_failed_write_and_a_failed_sync_are_not_two_failed_syncs(crash, at_once):
    """A full disk and then one bad sync end nothing: the next attempt succeeds."""

    class ThenASync(Fault):
        def strikes(self, call: str) -> bool:
            if len(self.failed) != 1:
                return super().strikes(call)
            self.number = errno.EIO
            return call == "sync"

    fault = ThenASync(2, errno.ENOSPC, calls=frozenset({"write"}))
    running = Running(crash, fault)
    running.submit(1)
    running.run(lambda: running.acknowledged == 1)
    assert [each.partition(" ")[0] for each in fault.failed] == ["write", "sync"]
    assert not running.fatal
    running.stop()


def test_a_full_disk_is_never_the_end(crash, quick_files, at_once):
    """File systems that say so at the sync are waited for like those that say so at
    the write."""
    calls = frozenset({"sync"})
    running = Running(crash, Fault(3, errno.ENOSPC, times=9, calls=calls))
    running.submit(1)
    running.run(lambda: running.acknowledged == 1)
    running.submit(2)
    running.run(lambda: running.acknowledged == 2)
    assert not running.fatal
    running.stop()
    running.disk.fault = None
    crash.check_all(crash.crashed(running.disk, most=8))
