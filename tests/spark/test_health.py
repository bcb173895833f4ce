"""What the job leaves word of."""

from __future__ import annotations

import json
from pathlib import Path

from gateway.spark.health import Health
from gateway.spark.ledger import Ledger, Ranges
from gateway.spark.sinks import Committed
from gateway.store.lake import health_path


def test_batches_and_whether_one_is_under_way(tmp_path: Path) -> None:
    """The last twenty; `busy` at once, all else every five seconds."""
    now = [1000.0]
    health = Health(tmp_path, lambda: now[0], lambda: now[0])

    def told() -> dict[str, object]:
        found: dict[str, object] = json.loads(health_path(tmp_path).read_text())
        return found

    health.say(state="running")
    for batch in range(30):
        health.committed(Committed(batch, rows=batch, files=1), 0.25)
    health.beat(Ledger(), list, busy=True)
    assert told()["busy"] is True
    recent = told()["recent"]
    assert isinstance(recent, list)
    assert [one["rows"] for one in recent] == list(range(10, 30))
    assert recent[-1] == {"at": 1000.0, "seconds": 0.25, "rows": 29, "files": 1}
    for second in range(1, 5):
        now[0] += 1
        health.beat(Ledger(), list, busy=second % 2 == 0)
        assert told()["busy"] is (second % 2 == 0)
        assert told()["at"] == 1000 + second
    ledger = Ledger(committed=Ranges({"gw": [(1, 9)]}))
    now[0] += 1
    health.beat(ledger, list, busy=False)
    assert told()["committed_lsn"] == {"gw": 9}


def test_a_clock_that_is_set_back(tmp_path: Path) -> None:
    """By an hour: the job goes on leaving word, or it would be taken for dead so long."""
    now, steady = [1_000_000.0], [50.0]
    health = Health(tmp_path, lambda: now[0], lambda: steady[0])
    health.beat(Ledger(), list)
    now[0] -= 3600
    for _ in range(2):
        steady[0] += 3
        now[0] += 3
        health.beat(Ledger(), list)
    assert json.loads(health_path(tmp_path).read_text())["at"] == now[0]
