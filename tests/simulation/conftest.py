"""What the simulation puts in the place of the real thing is put back after each test."""

from __future__ import annotations

import pytest

from gateway.store import lineage


@pytest.fixture(autouse=True)
def _tables_are_real_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """`simulation.life` has a daemon ask the simulation's Spark what its tables have."""
    monkeypatch.setattr(lineage, "in_tables", lineage.in_tables)
