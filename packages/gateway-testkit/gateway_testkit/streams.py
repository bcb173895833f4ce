"""Byte streams for tests: cut into pieces, and damaged.  Needs hypothesis."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from hypothesis import strategies as st

__all__ = ["damaged", "sliced", "slices"]


def slices(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """*data* in pieces, which may be empty."""
    edges = [0, *sorted(cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@st.composite
def sliced(draw: st.DrawFn, source: st.SearchStrategy[bytes]) -> list[bytes]:
    """Some bytes of *source*, in pieces."""
    data = draw(source)
    return slices(data, draw(st.sets(st.integers(0, len(data)), max_size=12)))


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """*data* with a few places changed, dropped or doubled."""
    for _ in range(draw(st.integers(1, 4))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
        here = data[start:end]
        other = draw(st.binary(max_size=8) | st.sampled_from([b"", here + here]))
        data = data[:start] + other + data[min(end, start + 20) :]
    return data
