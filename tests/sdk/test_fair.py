"""Clients take turns, however much one of them has put."""

import pytest

from gateway.sdk.fair import FairQueue


@pytest.fixture
def queue() -> FairQueue[str]:
    """One client has three items, another one, which came later."""
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "a3"):
        queue.put("a", item)
    queue.put("b", "b1")
    return queue


def rest(queue: FairQueue[str]) -> list[str]:
    taken = []
    while queue:
        taken.append(queue.take())
    return taken


def test_one_item_of_each_client_in_its_turn(queue):
    """And those of each in the order in which it put them, each once."""
    queue.put("a", "a2")
    assert rest(queue) == ["a1", "b1", "a2", "a3"]
    with pytest.raises(KeyError):
        queue.take()


def test_what_is_put_first_is_the_next_of_its_client(queue):
    """Whether it is new or waits already; other clients have their turn as before."""
    queue.put("a", "a3", first=True)
    queue.put("b", "b0", first=True)
    assert rest(queue) == ["a3", "b0", "a1", "b1", "a2"]


def test_what_is_removed_is_not_taken(queue):
    """One item, or all of a client; who has nothing left is not in the queue."""
    queue.remove("a", "a1")
    queue.remove("b", "b1")
    queue.remove("b", "b1")
    assert "b" not in queue
    assert list(queue.take_all("a")) == ["a2", "a3"]
    assert not queue
