"""An event's name is (node, incarnation, lsn): the tables of a node that was rebuilt."""

import json
import logging
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger, Ranges
from gateway.store.lsns import Lsns
from gateway.store.names import Life
from gateway.store.readers.lake import Accepted, End, accepted_folder, committed
from incarnations import A, B

pytestmark = pytest.mark.spark

Rows = Callable[..., list[dict[str, Any]]]


def told(rows: Rows, lake: Path) -> list[tuple[str | None, int, str]]:
    """Incarnation, lsn and message of all events."""
    found = rows(lake / "events", "incarnation", "lsn", "message")
    keys = ("incarnation", "lsn", "message")
    return sorted((tuple(row[key] for key in keys) for row in found), key=str)


def lines(first: int, count: int, word: str) -> list[bytes]:
    return [
        b'{"message":"%b %d"}' % (word.encode(), n) for n in range(first, first + count)
    ]


def test_a_rebuilt_node_loses_nothing(
    run_once, spool, config, table_rows, lake_events, caplog
):
    """Its disk is gone, and it gives lsns again: its events are new ones, under their own
    incarnation.
    """
    spool.put("gw", 1, lines(1, 10, "old"), incarnation=A)
    run_once()
    spool.put("gw", 1, lines(1, 10, "new"), incarnation=B)
    spool.put("gw", 11, lines(11, 5, "new"), incarnation=B)
    with caplog.at_level(logging.ERROR, "gateway.spark"):
        run_once()
    assert lake_events() == spool.produced
    assert told(table_rows, config.data_dir / "lake") == sorted(
        [(A, n, f"old {n}") for n in range(1, 11)]
        + [(B, n, f"new {n}") for n in range(1, 16)],
        key=str,
    )
    assert committed(config.data_dir / "lake") == {
        "gw": {A: Lsns([(1, 10)]), B: Lsns([(1, 15)])}
    }
    (line,) = [one for one in caplog.messages if "began anew" in one]
    assert B in line
    assert A in line
    assert spool.names() == []


def test_two_incarnations_in_one_batch(
    run_once, spool, config, table_rows, lake_events
):
    """The job was away while the machine was rebuilt: each event has its own name."""
    spool.put("gw", 1, lines(1, 10, "old"), incarnation=A)
    spool.put("gw", 11, lines(11, 10, "old"), incarnation=A)
    spool.put("gw", 5, lines(5, 10, "new"), incarnation=B)
    spool.put("gw-2", 5, lines(5, 3, "other"), incarnation="c" * 10)
    run_once()
    assert lake_events() == spool.produced
    assert told(table_rows, config.data_dir / "lake") == sorted(
        [(A, n, f"old {n}") for n in range(1, 21)]
        + [(B, n, f"new {n}") for n in range(5, 15)]
        + [("c" * 10, n, f"other {n}") for n in range(5, 8)],
        key=str,
    )


def test_what_was_accepted_goes_into_the_ledger(run_once, spool, config):
    """While the job runs, or when it starts; and what can not be read is set aside."""
    lake = config.data_dir / "lake"
    spool.put("gw", 1, lines(1, 10, "one"), incarnation=A)
    run_once()
    folder = accepted_folder(lake)
    folder.mkdir()
    hole = {"node": "gw", "incarnation": A, "first": 11, "last": None}
    hole |= {"reason": "the disk is gone", "who": "ops@example", "at": 1.5}
    (folder / "one.json").write_text(json.dumps(hole))
    (folder / "two.json").write_text("{")
    run_once()
    kept = Ledger.load(Lake(), lake / ".gateway" / "events.json")
    assert kept.accepted == (
        Accepted("gw", A, 11, None, "the disk is gone", "ops@example", 1.5),
    )
    assert [path.name for path in folder.iterdir()] == [".two.json.damaged"]
    spool.put("gw", 11, lines(11, 1, "one"), incarnation=A)
    run_once()
    later = Ledger.load(Lake(), lake / ".gateway" / "events.json")
    assert later.accepted == kept.accepted


def test_a_ledger_names_all_incarnations():
    """Of a container that gets a new disk with each release, too: who ended in good order has
    left nothing behind, whatever came later.
    """
    ledger = Ledger()
    lives = [Life("gw", f"{a}{b}" * 5) for a, b in product("abcdefghij", repeat=2)]
    for number, life in enumerate(lives):
        first = number * 10 + 1
        took = Ranges()
        took.add(life, first, first + 9)
        end = End(first + 9, 1.0, "spool", exact=True, found=2.0, since=first)
        ledger = ledger.after("q", number, took, {}).with_ends({life: end})
    assert [*ledger.committed.lives()] == lives
    assert ledger.committed.last() == {"gw": 1000}
    assert ledger.left_behind() == []
    lost = Life("gw", "lost" * 2 + "22")
    end = End(720, 1.0, "spool", exact=True, found=2.0, since=701)
    assert ledger.with_ends({lost: end}).left_behind() == [lost]


def test_how_incarnations_ended_outlives_batches(tmp_path):
    """It is in the ledger, as it was heard."""
    end = End(17, 1.0, "journal", exact=False, found=3.5, since=4)
    ledger = Ledger().with_ends({Life("gw", A): end})
    took = Ranges({"gw": {B: [(18, 20)]}})
    ledger = ledger.after("q", 0, took, {})
    ledger.save(Lake(), tmp_path / "events.json")
    assert Ledger.load(Lake(), tmp_path / "events.json") == ledger
    assert not ledger.accepts(Life("gw", A), end)
    reason = Accepted("gw", "", 10, 17, "gone", "me", 4.0)
    assert ledger.with_accepted([reason]).accepts(Life("gw", A), end)
