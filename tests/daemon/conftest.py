"""Starts a daemon whose network is in memory."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred

from gateway import config
from gateway.daemon.service import Gateway
from gateway.net import bind
from gateway.store.system.disk import RealDisk
from memory_daemon import Daemon, Reactor, Terminal


@pytest.fixture
def start(tmp_path, monkeypatch) -> Iterator[Callable[..., Daemon]]:
    """Start a daemon with these listeners, and other keys."""
    monkeypatch.setattr(bind, "_tune", lambda _: None)
    started: list[Daemon] = []

    def start(*listeners: dict[str, Any], ready: bool = True, **more: Any) -> Daemon:
        daemon = Daemon(None, Reactor(), tmp_path / "gateway.yaml")  # type: ignore[arg-type]
        daemon.write(*listeners, **more)
        gateway = daemon.gateway = Gateway(
            config.load(daemon.file),
            daemon.reactor,
            RealDisk(),
            Terminal(),  # type: ignore[arg-type]
            lambda: config.load(daemon.file),
            in_thread=maybeDeferred,
        )
        gateway.privilegedStartService()
        started.append(daemon)
        if ready:
            gateway.reloads.begin()
            gateway.daemon.serve()
        return daemon

    yield start
    for daemon in started:
        done: Deferred[None] = Deferred.fromCoroutine(
            daemon.running.opened.listeners.stop()
        )
        assert done.called
