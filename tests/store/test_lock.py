"""Waiting for a data directory that a daemon is about to leave."""

import threading

from gateway.store.system import lock as module
from gateway.store.system.lock import lock, wait_for


def test_nobody_has_it(tmp_path):
    """There is nothing to wait for, also before the first start."""
    assert wait_for(tmp_path / "new", 0.0)
    assert wait_for(tmp_path, 0.0)


def test_it_is_given_up_after_a_while(tmp_path):
    """Whoever waits no longer is told by `lock` who has it."""
    held = lock(tmp_path / "lock", "gateway gw")
    assert not wait_for(tmp_path, 0.0)
    held.release()
    assert wait_for(tmp_path, 0.0)


def test_it_becomes_free(tmp_path):
    """Then the wait is over."""
    held = lock(tmp_path / "lock", "gateway gw")
    looked = threading.Event()
    found: list[bool] = []

    def wait() -> None:
        looked.set()
        found.append(wait_for(tmp_path, 600.0))

    thread = threading.Thread(target=wait)
    thread.start()
    looked.wait()
    held.release()
    thread.join()
    assert found == [True]
    lock(tmp_path / "lock", "the next").release()
    assert module.is_locked(tmp_path) is False
