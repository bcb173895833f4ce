"""The outbox: files of pushes become pushes, once, and are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock

from gateway.protocols.pomelo.push.folder import Folder
from gateway.protocols.pomelo.push.outbox import Outbox
from gateway.protocols.pomelo.registry import Registry

LINE = b'{"route":"r","body":{},"uid":"a"}\n'


class OneThread(Clock):
    """A reactor whose threads are done before it looks."""

    def getThreadPool(self) -> OneThread:
        return self

    def callInThreadWithCallback(
        self, then: Callable[[bool, Any], None], work: Callable[[], Any]
    ) -> None:
        then(True, work())

    def callFromThread(self, call: Callable[..., None], *arguments: Any) -> None:
        call(*arguments)


def test_what_became_of_files_and_rows(folder: Folder, put: Any) -> None:
    """Files that were pushed or set aside, rows that were pushes or were not."""
    registry, reactor = Registry(), OneThread()
    running = Outbox(folder, registry, reactor)
    running.start()
    put("a.json", LINE * 300 + b'{"route":"","body":{}}\n')
    put("b.json", b"{")
    put("c.json", LINE)
    reactor.pump([0.2, 0, 0.2])
    running.stop()
    assert registry.outcomes == {"sent": 0, "dropped": 0, "nobody": 301, "refused": 1}
    assert (running.files, running.set_aside) == (2, 1)
    assert (running.rows, running.refused) == (302, 1)
    assert reactor.getDelayedCalls() == []
