"""What the tests of all protocols share: streams in pieces, and an eager journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import strategies as st

from gateway.testing import ManualJournal
from gateway.testing.streams import sliced, slices


@pytest.fixture(scope="session", name="slices")
def _slices() -> Callable[[bytes, Iterable[int]], list[bytes]]:
    """`slices(data, cuts)`: the pieces between these places."""
    return slices


@pytest.fixture(scope="session", name="sliced")
def _sliced() -> Callable[[st.SearchStrategy[bytes]], st.SearchStrategy[list[bytes]]]:
    """`sliced(source)`: what *source* draws, in any slicing."""
    return sliced


@pytest.fixture
def store_at_once() -> Callable[[ManualJournal], None]:
    """From now on a journal's Deferreds have fired when `submit` returns."""

    def make_eager(journal: Any) -> None:
        submit = journal.submit

        def eager(batch: Any) -> Any:
            done = submit(batch)
            journal.store()
            return done

        journal.submit = eager

    return make_eager
