"""Each block of code of the pages is run by a test, or it is written down why none can."""

import argparse
import ast
import importlib
import json
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from deadlines import run
from fenced import PAGES, ROOT, Block, blocks
from gateway import cli, config
from gateway.plugins import installed

WRITTEN = tomllib.loads((ROOT / "tests" / "blocks.toml").read_text())
RUN_BY: dict[str, str] = WRITTEN["run by"]
WHY_NOT: dict[str, str] = WRITTEN["why not"]
ALL = [block for page in PAGES for block in blocks(page)]
LISTENER_KEYS = {"options", "tls", "proxy_protocol"}


def keys(block: Block) -> list[str]:
    """Under which blocks.toml may have it, the closest first."""
    place = f"{block.page} {block.language}"
    return [f"{place}: {block.first}", place]


def told(block: Block) -> str | None:
    """The key under which it has a line."""
    return next((key for key in keys(block) if key in RUN_BY or key in WHY_NOT), None)


def is_data(block: Block) -> bool:
    """Whether it is read here, and so needs no line."""
    return block.language in ("json", "toml", "yaml") and told(block) is None


def test_each_block_is_run_or_says_why_not():
    """And no line is left of one that is gone."""
    unknown = [
        f"{one}: {one.first}" for one in ALL if not told(one) and not is_data(one)
    ]
    assert not unknown
    assert {*RUN_BY, *WHY_NOT} == {told(one) for one in ALL} - {None}
    assert all(WHY_NOT.values())


@pytest.mark.parametrize("key", RUN_BY)
def test_who_is_named_runs_it(key):
    """A test file that is there, and names the page."""
    page, by = Path(key.partition(" ")[0]), RUN_BY[key]
    text = (ROOT / "tests" / by).read_text()
    assert page.name in text or page.stem in text


def filled(block: Block, folder: Path) -> dict[str, Any]:
    """The settings of a block as a whole file, with what it names on this disk."""
    text = re.sub(r"\$\{(file|env):[^}]*\}", "secret", block.text)
    shown = yaml.safe_load(re.sub(r"/(etc|run)/[\w/.-]*/", f"{folder}/", text))
    own = Path(block.page).stem
    protocol = own if own in installed().protocols else "lumberjack"
    listener = {"name": "a", "protocol": protocol, "listen": "tcp:5044"}
    listener |= {key: shown.pop(key) for key in LISTENER_KEYS & shown.keys()}
    if "tls" in listener:
        pair = {"certificate": "cert.pem", "private_key": "key.pem"}
        listener["tls"] = pair | listener["tls"]
    forward = shown.get("forward")
    if forward and "after" not in shown.get("spool", {}):
        shown["spool"] = {**shown.get("spool", {}), "after": "forward"}
    if shown.get("spool", {}).get("after") == "forward" and not forward:
        shown["forward"] = {"to": "https://hub.example:7410", "token": "secret"}
    return {"listeners": [listener], **shown}


@pytest.mark.parametrize(
    "block", [one for one in ALL if one.language == "yaml" and is_data(one)], ids=str
)
def test_settings_can_be_copied(block, tmp_path, monkeypatch):
    """The gateway takes them, once the files that they name are there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    definitions = [
        f"{one}.json" for one in ("dictionary", "clientProtos", "serverProtos")
    ]
    files = re.findall(r"[\w.-]+\.(?:pem|key|json)", block.text)
    for name in [*files, *definitions, "cert.pem", "key.pem"]:
        (tmp_path / name).write_text("{}")
        (tmp_path / "config" / name).write_text("{}")
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump(filled(block, tmp_path)))
    loaded = config.load(file)
    own = Path(block.page).stem
    if own in installed().protocols and "listeners:" in block.text:
        assert {one.protocol for one in loaded.listeners} == {own}


def test_data_is_what_it_says():
    """JSON and TOML can be read."""
    for one in ALL:
        if one.language == "json":
            json.loads(one.text)
        elif one.language == "toml":
            tomllib.loads(one.text)


def test_a_first_table(tmp_path, monkeypatch, capsys):
    """The shop of docs/first-table.md makes 20,000 orders whose fields are those of the
    page's columns, and its query reads a table that has them.
    """
    monkeypatch.chdir(tmp_path)
    shop, query = blocks("docs/first-table.md", "python")
    done = run(sys.executable, "-c", shop.text)
    assert done.returncode == 0, done.stderr
    orders = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(orders) == 20_000
    folder = tmp_path / "gateway-data/lake/events/protocol=lumberjack/date=2026-03-01"
    folder.mkdir(parents=True)
    table = pa.table(
        {
            "status": [one["http.response.status_code"] for one in orders],
            "total": pa.array([one["order"]["total"] for one in orders]).cast(
                pa.decimal128(10, 2)
            ),
            "tags": [
                [one["tags"]] if isinstance(one["tags"], str) else one["tags"]
                for one in orders
            ],
        }
    )
    pq.write_table(table, folder / "part-1.parquet")
    exec(compile(query.text, query.page, "exec"), {"duckdb": duckdb})
    said = capsys.readouterr().out
    assert "decimal(38,2)" in said
    assert "404" in said
    settings = blocks("docs/first-table.md", "yaml")[0]
    assert cli.main(["init", "lumberjack"]) == 0
    file = Path("gateway.yaml")
    whole = yaml.safe_load(file.read_text()) | yaml.safe_load(settings.text)
    file.write_text(yaml.safe_dump(whole))
    assert cli.main(["check", "gateway.yaml"]) == 0
    shutil.rmtree(folder)


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
