"""The journal and the spool in every state that a crash may leave them in."""

from collections.abc import Callable
from typing import Any

import pytest

from gateway.store.node import catalog
from gateway.store.spool import published
from gateway.store.spool.mending import Entry
from gateway_testkit.crashes import crashes
from gateway_testkit.disk import Fault

Scenario = Callable[[Any], None]


def keeping_up(gateway: Any) -> None:
    """Each segment is published before the next is begun."""
    gateway.commit(1, 3)
    gateway.to_spool(2, size=3000)
    gateway.commit(2)
    gateway.to_spool(1, 1)
    gateway.commit(2)


def over_longer_ones(gateway: Any) -> None:
    """New segments are written over the files of old ones, which are longer."""
    gateway.commit(2, 2, size=400)
    gateway.to_spool(3, size=400)
    gateway.commit(1)
    gateway.commit(1, 2)
    gateway.to_spool(1)
    gateway.log.begin()
    gateway.commit(2)
    gateway.commit(1)


def falling_behind(gateway: Any) -> None:
    """Segments wait while the journal goes on; Spark takes what is there."""
    for _ in range(3):
        gateway.commit(1, 2)
        gateway.commit(3)
        gateway.roll()
    gateway.publish()
    gateway.take(keep=True)
    gateway.to_spool(1)
    gateway.take(keep=False)


def side_by_side(gateway: Any) -> None:
    """One segment is published while the next is written, and Spark keeps reading."""
    for turn in range(4):
        gateway.commit(1, 2)
        gateway.roll()
        gateway.commit(2)
        gateway.publish()
        if turn % 2:
            gateway.take(keep=turn == 1)
    gateway.roll()


def a_failed_sync(gateway: Any) -> None:
    """Each sync of the journal's records fails once, and Spark takes the files."""
    for nth in (2, 1, 3):
        gateway.disk.fault = Fault(nth, calls=frozenset({"sync"}))
        gateway.commit(1, 2)
        gateway.to_spool(3, 1)
    gateway.disk.fault = None
    gateway.take(keep=True)
    gateway.commit(1)


def a_full_disk(gateway: Any) -> None:
    """Writes end in the middle and are taken back, then the segment is sealed."""
    gateway.commit(2)
    for _ in range(2):
        gateway.disk.fault = Fault(1, 28, calls=frozenset({"write"}), short=True)
        gateway.commit(1, 2, size=300)
        gateway.roll()
        gateway.commit(1)
    gateway.publish()


def metadata(gateway: Any) -> None:
    """Batches without events, alone in a segment and among others."""
    gateway.commit(0)
    gateway.commit(0, 0)
    gateway.roll()
    gateway.commit(0)
    gateway.roll()
    gateway.commit(0, 2, 0)
    gateway.publish()
    gateway.roll()
    gateway.commit(1)
    gateway.commit(0)
    gateway.publish()
    gateway.save()
    gateway.roll()
    gateway.commit(0)


def saving_seldom(gateway: Any) -> None:
    """Published segments wait for a checkpoint while others come, and go together."""
    for turn in range(3):
        gateway.commit(1, 0)
        gateway.roll()
        gateway.commit(0)
        gateway.publish()
        if turn == 1:
            gateway.take(keep=True)
    gateway.commit(2)
    gateway.roll()
    gateway.save()
    gateway.publish()
    gateway.to_spool(0)
    gateway.save()


def metadata_and_failed_syncs(gateway: Any) -> None:
    """Groups of both kinds whose sync fails, in segments of both kinds."""
    for group in ((0,), (0, 1), (1, 0, 0), (0, 0)):
        gateway.commit(0)
        gateway.disk.fault = Fault(1, calls=frozenset({"sync"}))
        gateway.commit(*group)
    gateway.to_spool()
    gateway.disk.fault = Fault(1, calls=frozenset({"sync"}))
    gateway.save()
    gateway.disk.fault = None
    gateway.commit(1)


def metadata_at_one_lsn(gateway: Any) -> None:
    """Segments that all begin with the same lsn, of which the first goes early."""
    gateway.to_spool(0)
    gateway.commit(0)
    gateway.save()
    gateway.commit(0)
    gateway.roll()
    gateway.to_spool(0)
    gateway.save()
    gateway.commit(0, 1)


SCENARIOS = [
    keeping_up,
    over_longer_ones,
    falling_behind,
    side_by_side,
    a_failed_sync,
    a_full_disk,
]
REMEMBERING = [
    keeping_up,
    over_longer_ones,
    a_failed_sync,
    metadata,
    metadata_at_one_lsn,
    saving_seldom,
    metadata_and_failed_syncs,
]
EACH = pytest.mark.parametrize(
    ("scenario", "remembers"),
    [(one, False) for one in SCENARIOS] + [(one, True) for one in REMEMBERING],
)
"""A gateway without a memory, and one that has to remember what was acknowledged."""


def run(crash: Any, scenario: Scenario, *, remembers: bool = False) -> Any:
    disk = crash.new_disk(remembers=remembers)
    scenario(crash.Gateway(disk, tries=3))
    return disk


@EACH
def test_no_crash_loses_or_doubles_anything(crash, quick_files, scenario, remembers):
    """After any crash all that was acknowledged is published once, and whole; and is
    remembered, with events or without, whatever is left of journal and state files.
    """
    disk = run(crash, scenario, remembers=remembers)
    begin = crash.step - 1 if remembers else 0
    crashed = crash.crashed(disk, most=32, every=crash.step, begin=begin)
    assert crash.check_all(crashed) > (250 if remembers else 300) // crash.step


def test_the_same_with_real_files(crash):
    """It holds for Parquet as it is written, in its many small pieces."""
    crashed = crash.crashed(run(crash, keeping_up), most=16, every=crash.step)
    assert crash.check_all(crashed) > 250 // crash.step


@pytest.mark.slow
@EACH
def test_no_crash_in_a_recovery_does_either(crash, quick_files, scenario, remembers):
    """The same holds when the next start, which restores, replays and saves, and what
    follows is cut short as well.
    """
    disk = run(crash, scenario, remembers=remembers)
    states = crash.check_all(crash.second_lives(disk, most=1 if remembers else 2))
    assert states > (300 if remembers else 500) // crash.share


@pytest.fixture
def short_catalog(monkeypatch) -> None:
    """It is shortened to two entries, of those that may go."""
    monkeypatch.setattr(published, "_KEEP", 2)
    monkeypatch.setattr(catalog, "_SPARE", 0)


@pytest.mark.usefixtures("quick_files", "short_catalog")
def test_the_catalog_forgets_only_what_can_not_come_back(crash):
    """Shortening the catalog makes no removed segment look unpublished."""

    def long(gateway: Any) -> None:
        for _ in range(6):
            gateway.commit(1)
            gateway.roll()
        gateway.publish()

    disk = run(crash, long)
    assert len(catalog.look(crash.journal, disk).all(Entry)) < 6
    crashed = crash.crashed(disk, most=16, every=crash.step)
    assert crash.check_all(crashed) > 300 // crash.step


@pytest.mark.usefixtures("quick_files", "short_catalog")
def test_the_catalog_knows_what_waits_for_a_checkpoint(crash):
    """However many segments are published and kept: none is published again."""

    def long(gateway: Any) -> None:
        for turn in range(11):
            gateway.to_spool(1)
            if turn == 7:
                gateway.save()

    disk = run(crash, long, remembers=True)
    assert len(catalog.look(crash.journal, disk).all(Entry)) < 8
    states = crash.check_all(crash.crashed(disk, most=16, every=crash.share))
    assert states > 300 // crash.share


def test_a_power_cut_keeps_what_was_synced_and_no_more(crash):
    """The double itself: unsynced bytes and names come and go, synced ones stay."""
    disk = crash.new_disk()
    path = crash.journal / "file"
    file = disk.create(path)
    file.write([b"synced"])
    file.sync()
    found = {d.exists(path) for _, d in crashes(disk.moments[-1])}
    assert found == {True, False}
    disk.sync_directory(crash.journal)
    file.write([b"risky"])
    found = {d.read(path) for _, d in crashes(disk.moments[-1])}
    assert {b"synced", b"syncedrisky", b"syncedr", b"synced" + bytes(5)} <= found
    assert all(content.startswith(b"synced") for content in found)
    disk.fault = Fault(1, calls=frozenset({"sync"}))
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    disk.open(path).sync()
    found = {d.read(path) for _, d in crashes(disk.moments[-1])}
    assert {b"synced", b"syncedrisky"} <= found
