"""The list of behaviours in docs/pravega.md is complete, and names tests that exist."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
ROWS = {
    int(number): tests
    for number, tests in re.findall(
        r"^\| (\d+) \| [^|]+ \| (.+) \|$",
        (ROOT / "docs" / "pravega.md").read_text().partition("## Behaviours")[2],
        re.MULTILINE,
    )
}


def test_none_is_missing():
    """Each sentence has its row."""
    assert list(ROWS) == list(range(1, 64))


@pytest.mark.parametrize("number", ROWS)
def test_its_tests_exist(number):
    """A row names files of this directory and functions in them."""
    for group in ROWS[number].split("; "):
        file, _, names = group.rpartition(": ")
        if not file:
            assert (ROOT / group.strip("`")).exists()
            continue
        source = (HERE / f"test_{file}.py").read_text()
        for name in names.split(", "):
            assert f"\ndef {name.strip('`')}(" in source
