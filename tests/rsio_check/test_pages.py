"""The pages name the kit's tests: each MUST of the definition, each rule of the TCK."""

import re
from pathlib import Path

import pytest

from rsio_check import TESTS

ROOT = Path(__file__).parents[2]
DEFINITION = (ROOT / "docs" / "rsio-v0.md").read_text()
RULES = (ROOT / "docs" / "rsio-rules.md").read_text()


def cells(page: str) -> list[list[str]]:
    """The rows of the tables of a page."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def named(text: str) -> set[str]:
    return set(re.findall(r"`([a-z0-9_/.]+)`", text))


def test_the_definition_names_every_test():
    """The section on conformance has each test, and none that the kit does not have."""
    conformance = DEFINITION.partition("## Conformance")[2]
    table = conformance.partition("Each MUST, and the tests")[2]
    tests = {name for row in cells(table) for name in named(row[-1])}
    assert tests == set(TESTS)


def test_each_extension_and_limit_is_judged():
    """The extensions and the limits that the definition lists are in the table."""
    conformance = DEFINITION.partition("Each MUST, and the tests")[2]
    rules = " ".join(row[0] for row in cells(conformance))
    for number in range(1, 9):
        assert f"{number}:" in rules or f"{number} and" in rules, number
    limits = DEFINITION.partition("## Limits")[2].partition("## A whole")[0]
    listed = {name for row in cells(limits) for name in named(row[0])}
    asides = conformance.partition("Not judged from outside")[2]
    elsewhere = {"hello_timeout", "goodbye_timeout", "remembered", "window"}
    assert listed - named(rules) - named(asides) <= elsewhere


@pytest.mark.parametrize("part", range(1, 4))
def test_each_rule_of_reactive_streams(part):
    """Each has a test of the kit, or a file of tests."""
    last = {1: 11, 2: 13, 3: 17}[part]
    section = RULES.partition(f"## {part}.")[2].partition("\n## ")[0]
    rows = {
        rule: row[-1]
        for row in cells(section)
        for rule in row[0].split(", ")
        if rule[0].isdecimal()
    }
    assert list(rows) == [f"{part}.{number}" for number in range(1, last + 1)]
    for rule, tests in rows.items():
        assert named(tests), rule
        for name in named(tests):
            assert name in TESTS or (ROOT / name).is_file(), (rule, name)
