"""A configuration file of a few lines, and what `load` says of it."""

from collections.abc import Mapping
from textwrap import dedent

import pytest

from gateway import config
from making import Make

LISTENERS = """
listeners:
  - name: beats
    protocol: lumberjack
    listen: tcp:5044
"""


@pytest.fixture
def load(tmp_path) -> Make[config.Config]:
    """Load this text after a plain listener; `listeners=False` for the text alone."""

    def load_text(
        text: str, environ: Mapping[str, str] | None = None, *, listeners: bool = True
    ) -> config.Config:
        path = tmp_path / "gateway.yaml"
        path.write_text(dedent(text) + (LISTENERS if listeners else ""))
        return config.load(path, environ or {})

    return load_text


@pytest.fixture
def problems(load) -> Make[list[str]]:
    """What is wrong with this text, without the file's name."""

    def problems_of(text: str, *args: object, **options: object) -> list[str]:
        with pytest.raises(config.Invalid) as caught:
            load(text, *args, **options)
        prefix = f"{caught.value.file}: "
        lines = str(caught.value).splitlines()
        assert all(line.startswith(prefix) for line in lines)
        return [line.removeprefix(prefix) for line in lines]

    return problems_of
