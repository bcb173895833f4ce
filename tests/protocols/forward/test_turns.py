"""Whose files are next at a hub: none waits for another one's backlog."""

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred

from gateway.protocols.forward.turns import Turns


class Threads:
    """Those of a hub, in which steps end when the test says so."""

    def __init__(self, most: int) -> None:
        self.turns = Turns(self._in_thread, most)
        self.running: dict[str, tuple[Callable[[], Any], Deferred[Any]]] = {}
        self.over: list[str] = []
        self.failed: list[str] = []

    def _in_thread(self, do: Callable[[], Any]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.running[do.__doc__ or ""] = do, done
        return done

    def take(self, whom: str, node: str, name: str, then: Any = lambda: None) -> None:
        def do() -> None:
            if "fails" in name:
                raise OSError(name)

        do.__doc__ = name
        done = self.turns.take(whom, node, do)
        done.addCallbacks(
            lambda _: (self.over.append(name), then()),
            lambda _: self.failed.append(name),
        )

    def end(self, name: str) -> None:
        do, done = self.running.pop(name)
        maybeDeferred(do).chainDeferred(done)


@pytest.fixture
def one() -> Threads:
    return Threads(1)


def test_a_backlog_goes_behind_whoever_comes(one):
    """An edge with many nodes, each with a step, has one before each of another's."""
    for number in range(4):
        one.take("large", f"node-{number}", f"large {number}")
    for number in range(2):
        one.take("small", "shop", f"small {number}")
    order = []
    while one.running:
        [name] = one.running
        order.append(name)
        one.end(name)
    assert order == ["large 0", "large 1", "small 0", "large 2", "small 1", "large 3"]
    assert one.over == order


def test_one_that_always_has_more_does_not_keep_others_out(one):
    """As soon as a step is over its next one comes: behind the others' all the same."""
    steps = iter(range(100))

    def more() -> None:
        one.take("busy", "a", f"busy {next(steps)}", more)

    more()
    for number in range(3):
        one.take(f"edge {number}", f"node-{number}", f"edge {number}")
    order = []
    for _ in range(6):
        [name] = one.running
        order.append(name)
        one.end(name)
    assert order == ["busy 0", "edge 0", "edge 1", "edge 2", "busy 1", "busy 2"]


def test_so_many_at_a_time_and_one_of_a_node():
    """What waits for a node's lock would hold a thread; another node's goes first."""
    threads = Threads(3)
    for number in range(3):
        threads.take(f"edge {number}", "same", f"same {number}")
    for number in range(3):
        threads.take("other", f"node-{number}", f"other {number}")
    assert set(threads.running) == {"same 0", "other 0", "other 1"}
    threads.end("same 0")
    assert set(threads.running) == {"same 1", "other 0", "other 1"}
    threads.end("other 1")
    assert set(threads.running) == {"same 1", "other 0", "other 2"}


def test_a_step_that_fails_is_over(one):
    """Whoever wanted it hears why, and the next one goes on."""
    one.take("a", "a", "fails")
    one.take("a", "a", "next")
    one.end("fails")
    one.end("next")
    assert (one.failed, one.over) == (["fails"], ["next"])
