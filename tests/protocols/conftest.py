"""What tests of all protocols share: vectors, streams in pieces, an eager journal."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from gateway.sdk import native
from gateway.testing import ManualJournal
from gateway_testkit.streams import sliced, slices
from programs import lacking

VECTORS = Path(__file__).parents[1] / "vectors"


@pytest.fixture(scope="session", name="slices")
def _slices() -> Callable[[bytes, Iterable[int]], list[bytes]]:
    """`slices(data, cuts)`: the pieces between these places."""
    return slices


@pytest.fixture(scope="session", name="sliced")
def _sliced() -> Callable[[st.SearchStrategy[bytes]], st.SearchStrategy[list[bytes]]]:
    """`sliced(source)`: what *source* draws, in any slicing."""
    return sliced


@pytest.fixture
def reader(make_reader) -> Any:
    """A server with the usual limits, on doubles."""
    return make_reader()


@pytest.fixture(scope="session")
def read_vectors() -> Callable[[str], list[dict[str, Any]]]:
    """`read_vectors(name)`: all of tests/vectors/NAME.jsonl."""

    def read(name: str) -> list[dict[str, Any]]:
        text = (VECTORS / f"{name}.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    return read


@pytest.fixture(scope="module", params=["python", "native"])
def each_way(request) -> Iterator[Any]:
    """Once by the reference, and once by the kernel in C, which this is."""
    kernel = native.kernel if request.param == "native" else None
    if request.param == "native" and kernel is None:
        lacking("gateway-native is not installed: make native")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "kernel", kernel)
        yield kernel


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
