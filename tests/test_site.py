"""The documentation as a site: built strictly, whole, and asking nothing of others."""

from __future__ import annotations

import re
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
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A link or an anchor that leads nowhere, or a page without a place, ends it."""
    where = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(where), strict=True))
    return where


def test_it_asks_nothing_of_others(site: Path) -> None:
    """No font, script or picture comes from another host."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        assert not REQUEST.search(page.read_text()), page


def test_the_reference_has_every_key(site: Path) -> None:
    """It is made from the types."""
    page = (site / "reference" / "configuration.html").read_text()
    for section in (Config, Limits, Spool):
        for key in section.model_fields:
            assert f"<code>{key}</code>" in page
    assert "Options of pravega" in page


def test_the_reference_has_the_metrics(site: Path) -> None:
    """They are those of docs/operations.md, which are those of the code."""
    page = (site / "reference" / "metrics.html").read_text()
    assert page.count("gateway_") > 60
    assert "operations.html#alerts" in page


def test_the_start_is_the_readmes(site: Path) -> None:
    """Nothing is written twice, and code is code there, too."""
    page = (site / "start.html").read_text()
    assert "Five minutes with Filebeat" in page
    assert re.search(r"<pre>((?!</pre>).)*twistd", page, re.DOTALL)
