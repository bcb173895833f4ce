"""A histogram of our own counts as prometheus_client's does."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from gateway.admin.histogram import BulkHistogram

BOUNDS = (0.25, 1, 2.5)


@given(st.lists(st.lists(st.floats(-1, 4) | st.sampled_from(BOUNDS))))
def test_it_says_what_the_library_says(groups):
    """Letter for letter, values at the edge of a bucket included."""
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    bulk = BulkHistogram("a_seconds", "Text.", BOUNDS)
    ours.register(bulk)
    histogram = Histogram("a_seconds", "Text.", buckets=BOUNDS, registry=theirs)
    for group in groups:
        values = [round(one, 3) for one in group]
        bulk.observe(values)
        for one in values:
            histogram.observe(one)
    mine, other = (generate_latest(each).decode() for each in (ours, theirs))
    assert _without_sum(mine) == _without_sum(other)


def _without_sum(text: str) -> list[str]:
    # Additions in another order end in another last digit.
    return [line for line in text.splitlines() if not line.startswith("a_seconds_sum")]


def test_the_sum():
    """… of all values there were."""
    bulk = BulkHistogram("a_seconds", "Text.", BOUNDS)
    bulk.observe([0.5, 1.5])
    bulk.observe([2.0])
    [family] = bulk.collect()
    [total] = [one.value for one in family.samples if one.name == "a_seconds_sum"]
    assert total == 4.0
