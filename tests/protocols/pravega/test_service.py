"""What a Pravega service lends its parts."""

import os
import threading
from typing import Any

from twisted.internet.task import Clock

from deadlines import eventually
from gateway.protocols.pravega import protocol
from gateway.protocols.pravega.controller.access import of_segment
from gateway.protocols.pravega.errors import Need
from gateway.testing.plugins import lend, listener_of


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
