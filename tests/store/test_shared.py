"""What one thread changes and others look through."""

from gateway.store.system.shared import SharedDeque, SharedDict


def test_a_snapshot_stays_as_it_was():
    """Whoever goes through one sees neither what comes nor what goes meanwhile."""
    there, queue = SharedDict({1: "a", 2: "b"}), SharedDeque(["a", "b"], 3)
    for key in there.snapshot():
        del there[key]
        there[key + 10] = "c"
    for one in queue.snapshot():
        queue.append(one * 2)
    assert there.snapshot() == {11: "c", 12: "c"}
    assert queue.snapshot() == ["b", "aa", "bb"]
