"""What a Pravega service lends its parts."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from deadlines import eventually
from gateway.protocols.pravega import protocol
from gateway.testing.plugins import lend


class _Reactor(Clock):
    """Its turn is at once, in whichever thread."""

    def callFromThread(self, call: Any, *args: Any) -> None:
        call(*args)


def test_a_few_reads_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
