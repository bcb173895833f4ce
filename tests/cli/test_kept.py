"""Segments that are published and stay: what looks into the journal counts once."""

import json
from collections.abc import Callable
from typing import Any

Run = Callable[..., tuple[int, str, str]]


def look(gateway: Run) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(gateway("audit", "--json")[1])
    return report


def test_audit_counts_a_kept_event_where_it_is_going(system, gateway):
    """An event is in the spool or in the lake, not in the journal and not doubled."""
    node = system.node(remembers=True)
    node.remember()
    path = node.publish(count=3)
    node.store(count=2)
    node.remember()
    report = look(gateway)
    assert report["complete"]
    [found] = report["nodes"]
    assert (found["in_lake"], found["in_spool"], found["in_journal"]) == (0, 3, 2)
    node.take(path)
    report = look(gateway)
    assert report["complete"]
    [found] = report["nodes"]
    assert (found["in_lake"], found["in_spool"], found["in_journal"]) == (3, 0, 2)


def test_a_kept_segment_does_not_hide_a_lost_file(system, gateway):
    """Nobody publishes it again, so its events are missing though they lie there."""
    node = system.node(remembers=True)
    path = node.publish(count=3)
    path.unlink()
    report = look(gateway)
    assert not report["complete"]
    [hole] = report["nodes"][0]["holes"]
    assert (hole["first"], hole["last"]) == (1, 3)
    assert path.name in hole["note"]


def test_a_file_that_a_crash_left_hidden_is_still_to_come(system, gateway):
    """The next start makes it public; until then the journal has its events."""
    node = system.node(remembers=True)
    path = node.publish(count=3)
    path.rename(path.with_name(f".{path.name}"))
    report = look(gateway)
    assert report["complete"]
    assert report["nodes"][0]["in_journal"] == 3


def test_spool_ls_shows_what_waits(system, gateway):
    """Kept segments and metadata are not waiting; the events of others are."""
    node = system.node(remembers=True)
    node.publish(count=3)
    node.remember()
    node.seal()
    assert [e["where"] for e in json.loads(gateway("spool", "ls", "--json")[1])] == [
        "spool"
    ]
    node.remember()
    node.store(count=2)
    entries = json.loads(gateway("spool", "ls", "--json")[1])
    assert [(e["where"], e["first"], e["events"]) for e in entries] == [
        ("spool", 1, 3),
        ("journal", 4, 2),
    ]


def test_spool_cat_prints_each_event_once(system, gateway):
    """From a lsn on, through files and journal, though a segment has them as well."""
    node = system.node(remembers=True)
    node.publish(b"1", b"2")
    node.remember()
    node.store(b"3")
    status, out, _ = gateway("spool", "cat", "--lsn", "1", "-n", "9")
    assert status == 0
    lsns = [json.loads(line)["lsn"] for line in out.splitlines()]
    assert lsns == [1, 2, 3]


def test_acknowledged_ids_are_searched_past_metadata(system, gateway, tmp_path):
    """A batch without events is no event with an id."""
    node = system.node(remembers=True)
    node.remember(b'{"event":{"id":"x"}}')
    node.publish(b'{"event":{"id":"a"}}')
    node.store(b'{"event":{"id":"b"}}')
    said = tmp_path / "acknowledged"
    said.write_text("a\nb\n")
    status, out, _ = gateway("audit", "--acknowledged", str(said), "--json")
    report = json.loads(out)
    assert status == 0, report
