"""Housekeeping beside the batches: its tasks want the same days."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from gateway.spark.commit.lakedisk import Lake
from gateway.spark.commit.ledger import Ledger
from gateway.spark.commit.partition import alone
from gateway.spark.later import compact
from gateway.spark.run.housekeeping import Housekeeping

DAY = 86400.0


class Clock:
    """A removal clock."""

    ahead_seconds = 0.0
    now = 100 * DAY

    def __call__(self) -> float:
        return self.now


def test_expiry_waits_while_days_are_compacted(tmp_path, monkeypatch):
    """It would fail, which is told, and be tried again ten minutes later."""
    lake, clock = tmp_path / "lake", Clock()
    began, go_on = threading.Event(), threading.Event()
    expired: list[object] = []

    def compacting(*_: object, **__: object) -> Iterator[object]:
        with alone(lake):
            began.set()
            go_on.wait(10)
            yield "a day"

    def expiring(before: object, _: object) -> Iterator[object]:
        with alone(lake):
            expired.append(before)
            yield "a day"

    monkeypatch.setattr(compact, "compact", compacting)
    retention = SimpleNamespace(events=DAY, quarantine=None, stats=None)
    config = SimpleNamespace(
        data_dir=tmp_path,
        spark=SimpleNamespace(retention=retention, compact=True, tables={}),
    )
    kind: Any = SimpleNamespace(abilities={"compact"})
    sink: Any = SimpleNamespace(expire=expiring, ledger=Ledger())
    spark: Any = SimpleNamespace(newSession=None)
    house = Housekeeping(
        config,
        spark,
        kind,
        sink,
        Lake(),
        clock,
        open_day=False,  # type: ignore[arg-type]
    )
    house._compactor._filler = None  # type: ignore[union-attr]
    while not began.wait(0.01):
        house.tend()
    assert len(expired) == 1
    clock.now += DAY
    house.tend()
    house._expiry.join()
    assert (len(expired), house.expiry_problem) == (1, None)
    go_on.set()
    house._compactor.join()  # type: ignore[union-attr]
    house.tend()
    house._expiry.join()
    assert (len(expired), house.expiry_problem) == (2, None)
