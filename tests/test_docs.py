"""What the pages show can be copied, and where they point there is something."""

import argparse
import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from fenced import PAGES, ROOT
from gateway import cli

PROTOCOLS = ("lumberjack", "pomelo", "pravega", "rsio")
SECTIONS = ("Quick start", "Configuration", "What is acknowledged when", "Limits")


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if not link.startswith(("http:", "https:")):
                yield page, link


def anchors(page: Path) -> set[str]:
    """The headings' names, as they are made of their text."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("package", ["audit", "spark", "store"])
def test_a_package_says_what_each_module_is(package):
    """Who looks for something reads one page, and nothing is left out of it, or gone."""
    folder = ROOT / "gateway" / package
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = re.findall(r"^    ([a-z0-9_]+) +[^ =]\w* ", said, re.MULTILINE)
    there = {path.stem for path in folder.glob("[!_]*.py")}
    there |= {path.parent.name for path in folder.glob("*/__init__.py")}
    assert sorted(named) == sorted(there)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_has_the_same_page(protocol):
    """Who knows one page finds the way in the others."""
    text = (ROOT / "docs" / f"{protocol}.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert [heading for heading in headings if heading in SECTIONS] == list(SECTIONS)


def test_links_lead_somewhere():
    """To files that are there, and to headings that they have."""
    found = list(links())
    assert len(found) > 20
    for page, link in found:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), (page.name, link)
        if anchor:
            assert anchor in anchors(target), (page.name, link)


def test_guarantees_name_tests_that_are_there():
    """Each row of the page can be looked up."""
    page = (ROOT / "docs" / "guarantees.md").read_text()
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", page)
    assert len(named) > 40
    for file, name in named:
        tree = ast.parse((ROOT / "tests" / file).read_text())
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert name in names, (file, name)


def commands(page: Path) -> Iterator[tuple[list[str], bool]]:
    """The words of each `gateway COMMAND …` on a page, and whether it stands alone on a
    line, so that it can be typed.
    """
    text = page.read_text()
    lines = [line for line in text.splitlines() if "`" not in line]
    spans = re.findall(r"`([^`\n]+)`", text)
    shown = [(line, True) for line in lines] + [(span, False) for span in spans]
    for one, alone in shown:
        found = re.match(r"\s*(?:.*\| )?(?:\S*/)?gateway ([a-z-]+(?: .*)?)$", one)
        if found is None or found[1].split()[0] not in cli.commands():
            continue
        typed = re.split(r" [|>#]| && | {2,}", found[1])[0]
        yield shlex.split(re.sub(r"\[(-.*?)\]", r"\1", typed)), alone


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Those of the command, and of all commands within it."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from options(each)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_can_be_typed(page):
    """Lines of code are understood as they are, and no page names an option that is not."""
    for words, alone in commands(page):
        name, *rest = words
        parser = argparse.ArgumentParser(prog=f"gateway {name}")
        importlib.import_module(cli.commands()[name].module).add_arguments(parser)
        known = set(options(parser))
        asked = {one.partition("=")[0] for one in rest if re.match("--?[a-z]", one)}
        named = {part for one in asked for part in one.split("|")}
        assert named <= known, (words, named - known)
        if alone:
            parser.parse_args(rest)


def test_commands_are_found():
    """In the README and in many pages."""
    found = [words for page in PAGES for words, alone in commands(page) if alone]
    assert len(found) > 15
    assert ["table", "stats"] in found


def test_the_page_of_commands_has_each_once():
    """Those that come with the gateway; their options the site takes from themselves."""
    page = (ROOT / "docs" / "commands.md").read_text()
    rows = re.findall(r"^\| `gateway ([a-z-]+)", page, re.MULTILINE)
    ours = {
        name
        for name, command in cli.commands().items()
        if command.module.startswith(("gateway.", "gateway_demo.", "rsio_check."))
    }
    assert sorted(rows) == sorted(ours)
