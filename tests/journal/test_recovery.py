"""What a start makes of the journal that it finds."""

from __future__ import annotations

from pathlib import Path

from gateway.disk import RealDisk
from gateway.journal import Recovered, recover


def test_nothing_is_a_journal_too(directory: Path) -> None:
    """The very first start finds an empty directory, and begins with lsn 1."""
    assert recover(directory, RealDisk()) == Recovered([], 1, [])
