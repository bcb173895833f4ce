"""Edges and a hub: `gateway demo --edge`, whole, as a user runs it."""

import pytest

from whole_demo import what_a_demo_says

_SECONDS = 900.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.timeout(_SECONDS),
]


def test_a_line_is_cut_and_an_edge_is_killed_and_no_event_is_lost(tmp_path):
    """Each event that an edge acknowledged is in the hub's tables once: the audit says so."""
    said = what_a_demo_says("--edge", tmp_path, _SECONDS)
    for word in (
        "the line of shop-17 is cut",
        "kill -9 shop-18",
        "the line of shop-17 is back",
        "16000 of 16000 acknowledged events found",
        "complete: 16,000 events",
    ):
        assert word in said
