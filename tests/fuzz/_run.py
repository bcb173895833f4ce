"""Runs a fuzz target from a corpus of seeds, under atheris."""

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import atheris

__all__ = ["fuzz", "sliced", "vectors"]


def vectors(name: str) -> list[dict[str, Any]]:
    """The lines of a file of tests/vectors."""
    path = Path(__file__).parents[1] / "vectors" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def sliced(stream: bytes, size: int) -> Iterator[bytes]:
    """Pieces of *size* bytes; with 0, all of it in one."""
    size = size or len(stream) or 1
    for at in range(0, len(stream), size):
        yield stream[at : at + size]


def fuzz(one: Callable[[bytes], None], seeds: Iterable[bytes]) -> None:
    """Call *one* with what atheris makes of *seeds*; options as libFuzzer has them."""
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds):
            Path(corpus, str(number)).write_bytes(seed)
        atheris.Setup([*sys.argv, corpus], one)
        atheris.Fuzz()
