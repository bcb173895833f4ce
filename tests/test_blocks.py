"""Each block of code of the pages is run by a test, or it is written down why none can."""

import json
import re
import shutil
import sys
import tomllib
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
