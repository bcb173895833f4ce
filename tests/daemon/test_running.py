"""What a daemon says of itself while it can not go on, and as it stops."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.daemon.running import Running
from gateway.store.journal import Journal
from memory_daemon import listener

BEATS = listener("beats", "lumberjack", 5044)


def test_it_is_not_ready_while_the_journal_takes_nothing(start, monkeypatch):
    """A balancer sends elsewhere what would wait here; ready again once that is over."""
    running = start(BEATS).running
    assert running.status().ready
    with monkeypatch.context() as full:
        full.setattr(Journal, "why_full", "the disk is full")
        assert running.status().not_ready_reason == "the disk is full"
    assert running.status().ready


def test_it_is_not_ready_once_it_stops(start):
    """From its first step on: the admin port stays open until all is published."""
    running = start(BEATS).running
    seen: list[str | None] = []

    def stop() -> None:
        seen.append(running.status().not_ready_reason)
        raise EOFError

    running.opened.live.stop = stop  # type: ignore[method-assign]
    with pytest.raises(EOFError):
        running.stop().send(None)
    assert seen == ["stopping"]


@pytest.mark.parametrize(
    ("published", "said"),
    [
        (20, "Stopped: everything acknowledged (lsn {lsn}) is published"),
        (15, "Stopped: {waiting} acknowledged events (up to lsn {lsn}) wait in the "),
    ],
)
def test_its_last_word_says_whether_all_is_published(logged, published, said):
    """Whoever takes the disk away goes by that."""
    stopped: Any = Running.__new__(Running)
    stopped.opened = SimpleNamespace(
        storage=SimpleNamespace(
            journal=SimpleNamespace(durable_lsn=20),
            spool=SimpleNamespace(published_lsn=published, uploads=None),
        )
    )
    stopped._tell_stopped()
    [last] = logged
    assert last["log_format"].startswith(said)
    assert (last["lsn"], last["waiting"]) == (20, 20 - published)
