"""The 57 conformance tests against our own server, in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.protocols.rsio.conformance import TESTS, Outcome, Role, Target, run

PAGE = Path(__file__).parents[3] / "docs" / "rsio-v0.md"


@pytest.fixture
def target(make_target: Callable[..., Target]) -> Target:
    """A listener that also serves what the tests subscribe to."""
    return make_target()


def test_there_are_57() -> None:
    """By number; each has checks, or says where it is tested."""
    assert list(TESTS) == list(range(1, 58))
    for test in TESTS.values():
        assert bool(test.checks) != bool(test.inside), test.name
        assert all(each.promise for each in test.checks), test.name


@pytest.mark.parametrize(
    "number", [number for number, test in TESTS.items() if test.checks]
)
def test_conformance(target: Target, number: int) -> None:
    """Our server passes, as publisher, as subscriber and as such."""
    for result in run(target, [number]):
        assert result.outcome is Outcome.PASSED, (result.check, result.why)


def test_the_page_lists_the_tests() -> None:
    """docs/rsio-v0.md says of each how it is judged."""
    table: dict[int, list[str]] = {}
    for line in PAGE.read_text().partition("## Conformance")[2].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].isdecimal():
            table[int(cells[0])] = cells[1:]
    assert {number: test.name for number, test in TESTS.items()} == {
        number: name for number, (name, _) in table.items()
    }
    for number, test in TESTS.items():
        roles = [role.value for role in Role if role in {c.role for c in test.checks}]
        assert table[number][1].startswith(", ".join(roles)), test.name
        if not roles:
            assert test.inside.rpartition("/")[2].split("::")[0] in table[number][1]
