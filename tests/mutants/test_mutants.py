"""The list of mutants fits the code: `make mutants` tries each of them."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MUTANTS = tomllib.loads((Path(__file__).parent / "mutants.toml").read_text())["mutant"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant["name"])
def test_each_mutant_can_be_made(mutant: dict[str, str]) -> None:
    """Its text is in the file just once, it changes it, and its tests are there; what it
    makes is Python: else any test would notice it."""
    code = (ROOT / mutant["file"]).read_text()
    assert code.count(mutant["old"]) == 1
    assert mutant["new"] != mutant["old"]
    ast.parse(code.replace(mutant["old"], mutant["new"]))
    for test in mutant["noticed_by"].split():
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in (ROOT / file).read_text()


def test_no_name_is_used_twice() -> None:
    """A report names each."""
    assert len({mutant["name"] for mutant in MUTANTS}) == len(MUTANTS)
