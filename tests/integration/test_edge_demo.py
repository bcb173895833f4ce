"""Edges and a hub: `gateway demo --edge`, whole, as a user runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deadlines import excerpt, run

_SECONDS = 900.0

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(_SECONDS)]


def test_a_line_is_cut_and_an_edge_is_killed_and_no_event_is_lost(
    tmp_path: Path,
) -> None:
    """Each event that an edge acknowledged is in the hub's tables once: the audit says so."""
    done = run(
        sys.executable, "-m", "gateway", "demo", "--edge",
        "--directory", tmp_path / "demo", "--events", "4000", "--rate", "400",
        seconds=_SECONDS,
    )  # fmt: skip
    logs = "\n".join(
        f"== {log.name}\n{excerpt(log)}"
        for log in sorted((tmp_path / "demo").glob("*.log"))
    )
    said = done.stdout
    assert done.returncode == 0, f"{said}\n{done.stderr}\n{logs}"
    for word in (
        "the line of shop-17 is cut",
        "kill -9 shop-18",
        "the line of shop-17 is back",
        "16000 of 16000 acknowledged events found",
        "complete: 16,000 events",
    ):
        assert word in said
