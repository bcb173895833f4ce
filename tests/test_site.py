"""The documentation as a site: built strictly, whole, and asking nothing of others."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.config.model import Config, Spool
from gateway.sdk.limits import Limits

pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[1]
REQUEST = re.compile(
    r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A link or an anchor that leads nowhere, or a page without a place, ends it."""
    where = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(where), strict=True))
    return where


def test_it_asks_nothing_of_others(site):
    """No font, script or picture comes from another host."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        assert not REQUEST.search(page.read_text()), page


def test_the_reference_has_every_key(site):
    """It is made from the types."""
    page = (site / "reference" / "configuration.html").read_text()
    for section in (Config, Limits, Spool):
        for key in section.model_fields:
            assert f"<code>{key}</code>" in page
    assert "Options of pravega" in page


def test_the_reference_has_the_metrics(site):
    """They are those of docs/metrics.md, which are those of the code."""
    page = (site / "metrics.html").read_text()
    assert page.count("gateway_") > 60
    assert "GatewaySparkDown" in page


def test_the_start_is_the_readmes(site):
    """Nothing is written twice, and code is code there, too."""
    page = (site / "start.html").read_text()
    assert '<h1 id="first-steps">First steps' in page
    assert re.search(r"<pre>((?!</pre>).)*gateway run", page, re.DOTALL)


def test_the_page_of_commands_has_all_options(site):
    """They are made of the commands' own parsers, so they are those of `--help`."""
    page = (site / "commands.html").read_text()
    for option in ("--check-config", "--no-such-option"):
        assert f"<code>{option}" not in page
    for heading, option in (
        ("gateway audit", "--chain"),
        ("gateway send lumberjack", "--connections"),
        ("gateway spool cat", "--lsn"),
        ("gateway tap", "--from"),
        ("gateway rsio-check", "--json"),
    ):
        section = page.partition(f"{heading}<a")[2].partition("</table>")[0]
        assert f"<code>{option}" in section, (heading, option)


def test_no_code_in_a_table_shows_how_it_was_escaped(site):
    """This Markdown leaves the backslash before a bar in code; the repository's does not."""
    for page in site.rglob("*.html"):
        assert not re.search(r"<td><code>[^<]*\\\|", page.read_text()), page


def test_the_diagram_of_the_front_page_fits_a_phone(site):
    """Forty columns of code are as wide as 390 pixels have room for."""
    page = (site / "index.html").read_text()
    [diagram] = re.findall(r"<code>((?:(?!</code>).)*─►.*?)</code>", page, re.DOTALL)
    lines = re.sub(r"<[^>]*>", "", diagram).splitlines()
    assert len(lines) >= 4
    assert max(map(len, lines)) <= 40


SEARCHED = {
    "spark down": "symptoms.html#when-spark-is-down",
    "spark is down": "symptoms.html#when-spark-is-down",
    "disk full": "symptoms.html#when-the-disk-is-full",
    "certificate": "security.html#certificates",
    "renew certificate": "security.html#certificates",
    "duplicates": "guarantees.html#duplicates-what-you-can-do-about-them",
    "install": "install.html",
    "upgrade": "upgrade.html",
    "kubernetes": "scale.html#kubernetes",
    "filebeat": "clients/filebeat.html",
    "load balancer": "scale.html#a-load-balancer-in-front-or-none",
    "backup": "operations.html#backup",
    "websocket": "pomelo.html#on-the-wire",
    "retention": "pravega.html#retention",
    "gateway audit": "commands.html#gateway-audit",
    "gateway_spark_up": "metrics.html",
    # A key, a metric, an alert, an error's words, and two questions.
    "silent_after": "reference/configuration.html#spark-audit",
    "gateway_lake_complete_through": "metrics.html#is-all-there-once",
    "GatewaySparkDown": "metrics.html#is-the-table-fresh",
    "was copied, moved or restored": "symptoms.html#when-a-directory-was-copied-moved-or-put-back",
    "delete a person": "privacy.html",
    "what if the disk is full": "symptoms.html#when-the-disk-is-full",
}


@pytest.mark.needs_node
def test_the_search_finds_the_right_page_first(site):
    """Asked is the site's own search, as the browser runs it, over the built index."""
    if shutil.which("node") is None:
        pytest.skip("no node")
    [worker] = site.glob("assets/javascripts/workers/search.*.min.js")
    script = ROOT / "tests" / "plugins" / "site_search.js"
    done = subprocess.run(
        ["node", script, worker, site / "search" / "search_index.json", *SEARCHED],
        capture_output=True,
        text=True,
        check=True,
    )
    answers = map(json.loads, done.stdout.splitlines())
    for (words, page), found in zip(SEARCHED.items(), answers, strict=True):
        first = found[0]
        assert first == page or first.startswith(f"{page}#"), (words, found[:5])
