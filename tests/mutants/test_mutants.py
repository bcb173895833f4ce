"""The mutants of `make mutants`, and the faults that are planted for `rsio_check`, fit the code."""

import ast
import json
import tomllib
from pathlib import Path

import pytest

from planted import FAULTS, changed

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
MUTANTS = tomllib.loads((HERE / "mutants.toml").read_text())["mutant"]
NOTICED = json.loads((HERE / "noticed.json").read_text())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant["name"])
def test_each_mutant_can_be_made(mutant):
    """Its text is in the file just once, it changes it, and its tests are there; what it
    makes is Python: else any test would notice it."""
    code = (ROOT / mutant["file"]).read_text()
    assert code.count(mutant["old"]) == 1
    assert mutant["new"] != mutant["old"]
    ast.parse(code.replace(mutant["old"], mutant["new"]))
    for test in mutant["noticed_by"].split():
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in (ROOT / file).read_text()


def test_no_name_is_used_twice():
    assert len({mutant["name"] for mutant in MUTANTS}) == len(MUTANTS)


def test_who_noticed_is_still_there():
    """Whoever removes a test tries anew what it alone is known to notice (`make mutants
    WORDS='--again …'`); nothing is told of a mutant that is none.
    """
    assert NOTICED.keys() <= {mutant["name"] for mutant in MUTANTS}
    for name, found in NOTICED.items():
        for test in filter(None, found.values()):
            if test.startswith(
                ("tests/", "examples/")
            ):  # else nothing ended, or no test began
                file, known, *_ = test.partition("[")[0].split("::")
                there = (ROOT / file).exists() and known in (ROOT / file).read_text()
                assert there, f"{name}: {test}"


ENOUGH = 33


@pytest.mark.parametrize("language", FAULTS)
def test_each_is_there_once(language):
    """Whoever changes a line that is quoted in tests/rsio_check/planted.toml changes it
    there; and each language has enough of them.
    """
    faults = FAULTS[language]
    assert len({fault.wire for fault in faults}) == len(faults) >= ENOUGH
    for fault in faults:
        assert changed(fault, language), fault.wire
