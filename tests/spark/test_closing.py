"""A ledger keeps its size, however often gateways start."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.spark.commit import closing
from gateway.spark.commit.closing import MOST_OPEN, Closing
from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Broken, Ledger, Ranges
from gateway.store.lsns import Lsns
from gateway.store.names import Life, SpoolFile
from gateway.store.node.incarnation import Record, derived
from gateway.store.readers import lake as stored
from gateway_testkit.bucket import MemoryBucket

_ALL = 250_000
"""Bytes of a commit's words."""


def life(node: str, number: int) -> Life:
    return Life(node, derived(node, str(number)))


def started(
    ledger: Ledger, closing: Closing, starts: int, *, nodes: int = 1, first: int = 0
) -> tuple[Ledger, int]:
    """A ledger after each node began so often and gave ten events each time, a batch for
    each start; and the most bytes that it had.
    """
    most = 0
    for number in range(first, first + starts):
        took, records = Ranges(), {}
        for at in range(nodes):
            mine = life(f"gw-{at}", number)
            begin = 1 + 10 * number
            took.add(mine, begin, begin + 9)
            before = life(f"gw-{at}", number - 1).incarnation if number else ""
            records[mine] = Record(begin, before)
        ledger = closing.close(ledger.after("q", number, took, records))
        if len(ledger.records) > MOST_OPEN - 10:
            most = max(most, len(ledger.text()))
    return ledger, most


@pytest.fixture
def lake(tmp_path) -> Path:
    return tmp_path / "lake"


def saved(ledger: Ledger, lake: Path) -> None:
    (lake / stored.INTERNAL).mkdir(parents=True, exist_ok=True)
    ledger.save(Lake(), lake / stored.INTERNAL / "events.json")


@pytest.mark.parametrize(("starts", "nodes"), [(10_080, 1), (60, 200)])
def test_a_commit_is_no_larger_for_more_starts(lake, starts, nodes):
    """A pod that restarts each minute for a week; 200 nodes that do so daily: in a year that
    are 73,000 incarnations.  What each gave is known all the same."""
    closing = Closing(lake, Lake())
    ledger, most = started(Ledger(), closing, starts, nodes=nodes)
    assert most < _ALL
    closed = ledger.committed.closed
    assert len(closed.by) > 9 * MOST_OPEN
    assert len([*ledger.committed.open()]) + len(closed.by) == starts * nodes
    assert len(ledger.committed) == 10 * starts * nodes
    assert ledger.committed.covers(SpoolFile(*life("gw-0", 3), 31, 40))
    assert not ledger.committed.covers(SpoolFile(*life("gw-0", 3), 31, 41))
    assert ledger.committed.by_node()["gw-0"] == Lsns([(1, 10 * starts)])
    saved(ledger, lake)
    again = closing.whole(Ledger.load(Lake(), lake / stored.INTERNAL / "events.json"))
    assert again.committed == ledger.committed
    found = stored.committed(lake)
    assert sum(len(lives) for lives in found.values()) == starts * nodes
    records = stored.records(lake)
    assert sum(len(lives) for lives in records.values()) == starts * nodes


def test_a_file_that_comes_late_reopens_its_incarnation(lake):
    """Above the end, which somebody vouched for: what comes is in the ledger beside it, and
    goes with the next thousand."""
    closing = Closing(lake, Lake())
    ledger, _ = started(Ledger(), closing, MOST_OPEN + 1)
    early = life("gw-0", 3)
    assert early in ledger.committed.closed.by
    late = SpoolFile(*early, 41, 45)
    ledger = ledger.after("q", 2000, Ranges.of([late, late._replace(first=38)]), {})
    assert ledger.committed.of_life(early) == Lsns([(31, 45)])
    assert dict(ledger.committed.open())[early] == Lsns([(41, 45)])
    ledger, _ = started(ledger, closing, MOST_OPEN, first=MOST_OPEN + 1)
    assert early not in dict(ledger.committed.open())
    assert ledger.committed.of_life(early) == Lsns([(31, 45)])
    assert sum(ledger.committed.closed.files.values()) + sum(
        lsns.size for _, lsns in ledger.committed.open()
    ) == len(ledger.committed)


def test_only_who_has_ended_is_closed(lake):
    """Whoever has no successor stays, and who lacks events below its end, and who is
    derived."""
    closing = Closing(lake, Lake())
    ledger, _ = started(Ledger(), closing, 20)
    gap = Ranges()
    gap.add(life("gw-1", 1), 1, 8)
    gap.add(life("gw-1", 2), 11, 20)
    gap.add(life("gw-2", 1), 1, 10)
    gap.add(life("gw-2", 2), 11, 20)
    records = {
        life("gw-1", 1): Record(1),
        life("gw-1", 2): Record(11, life("gw-1", 1).incarnation),
        life("gw-2", 1): Record(1, "", "a" * 10),
        life("gw-2", 2): Record(11, life("gw-2", 1).incarnation),
    }
    ledger = ledger.after("q", 21, gap, records)
    ended = ledger.ended()
    assert ended == [life("gw-0", number) for number in range(19)]


@pytest.mark.parametrize("how", ["missing", "changed"])
def test_a_missing_file_stops_the_job(lake, how):
    """By its name, and what to do; and the audit says so, too."""
    closing = Closing(lake, Lake())
    ledger, _ = started(Ledger(), closing, MOST_OPEN + 1)
    saved(ledger, lake)
    [name] = ledger.committed.closed.files
    path = stored.closed_path(lake, name)
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b"31", b"32", 1))
    with pytest.raises(Broken, match=rf"{name}.*Put it back from a"):
        closing.whole(Ledger.load(Lake(), lake / stored.INTERNAL / "events.json"))
    with pytest.raises((OSError, ValueError)):
        stored.committed(lake)


def test_a_job_on_an_empty_disk_has_them_from_the_bucket(lake, tmp_path):
    """Its tables are elsewhere, and so is its ledger."""
    bucket: Any = MemoryBucket()
    first = Closing(lake, Lake(), bucket)
    ledger, _ = started(Ledger(), first, MOST_OPEN + 1)
    words = ledger.text()
    other = Closing(tmp_path / "other", Lake(), bucket)
    again = other.whole(Ledger.parse(words, "a commit"))
    assert again.committed == ledger.committed
    bucket.objects.clear()
    assert other.whole(Ledger.parse(words, "a commit")) == again


def test_a_ledger_of_the_last_format_is_read(lake):
    """Once; what is written is form 1."""
    path = lake / stored.INTERNAL / "events.json"
    ledger = Ledger().after("q", 0, Ranges({"gw": {"a" * 10: [(1, 9)]}}), {})
    saved(ledger, lake)
    plain = json.loads(path.read_text())
    assert plain.pop("form") == 1
    del plain["closed"]
    path.write_text(json.dumps({"format": 3, **plain}))
    assert closing.load(lake, Lake()).committed == ledger.committed
    assert stored.committed(lake) == {"gw": {"a" * 10: Lsns([(1, 9)])}}
