"""The JSON Schema, and that model, example and schema agree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gateway import config
from gateway.config.explain import sections_in
from gateway.config.model import Config
from gateway.sdk.section import Section
from gateway.sdk.units import Number, Size, Time

if TYPE_CHECKING:
    from jsonschema import Draft7Validator

EXAMPLE = Path(__file__).parents[2] / "conf" / "gateway.yaml"

UNIT_OF = {Size: "(size)", Time: "(time)", Number: "(number)"}


def sections(section: type[Section] = Config) -> Iterator[type[Section]]:
    """Every section that a configuration can have."""
    yield section
    for field in section.model_fields.values():
        for kind in sections_in(field.annotation):
            yield from sections(kind)


def uncommented() -> str:
    """The example with all its settings in force."""
    return re.sub(r"^( *)#(?=[^ \n])", r"\1", EXAMPLE.read_text(), flags=re.MULTILINE)


def keys(value: Any) -> Iterator[str]:
    """All keys of a file, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


@pytest.fixture
def schema() -> Draft7Validator:
    """The schema, which is one."""
    from jsonschema import Draft7Validator  # a second, which each worker would take

    Draft7Validator.check_schema(config.json_schema())
    return Draft7Validator(config.json_schema())


def test_the_example_loads_as_it_is():
    """conf/gateway.yaml is a configuration."""
    loaded = config.load(EXAMPLE)
    assert [listener.name for listener in loaded.listeners] == ["beats"]


def test_the_example_shows_the_defaults(tmp_path):
    """Its values are what leaving them out gives."""
    bare = tmp_path / "bare.yaml"
    bare.write_text(
        "listeners: [{name: beats, protocol: lumberjack, listen: tcp:5044}]"
    )
    assert config.load(EXAMPLE) == config.load(bare)


def test_the_whole_example_loads(tmp_path):
    """With every setting uncommented it is one, too."""
    for name in ("cert.pem", "key.pem", "ca.pem", "crl.pem"):
        (tmp_path / name).touch()
    path = tmp_path / "gateway.yaml"
    text = re.sub(r"\$\{file:[^}]*\}", "secret", uncommented())
    text = text.replace("after: archive", "after: forward")
    path.write_text(text)
    outside = config.load(path).listeners[1]
    assert outside.tls is not None
    assert outside.tls.client_auth == "required"
    assert outside.websocket is not None
    assert outside.proxy_protocol is not None


def test_every_key_is_in_the_example():
    """Whoever adds a key shows it there."""
    shown = set(keys(yaml.safe_load(uncommented())))
    known = {key for section in sections() for key in section.model_fields}
    assert known - shown == set()


@pytest.mark.parametrize("section", list(sections()), ids=lambda kind: kind.__name__)
def test_every_key_has_its_line_of_help(section):
    """One line each, and what has a unit names it."""
    for key, field in section.model_fields.items():
        assert field.description, key
        assert len(field.description) <= 80, key
        for mark in field.metadata:
            if unit := UNIT_OF.get(type(mark)):
                assert unit in field.description, key


def test_the_schema_takes_the_example(schema):
    """An editor shows no error where `load` finds none."""
    for text in (EXAMPLE.read_text(), uncommented()):
        assert list(schema.iter_errors(yaml.safe_load(text))) == []


def with_a_listener(text: str) -> Any:
    """The configuration *text*, with a listener if it has none."""
    listener = {"name": "a", "protocol": "lumberjack", "listen": "tcp:1"}
    return {"listeners": [listener], **yaml.safe_load(text)}


@pytest.mark.parametrize(
    "text",
    [
        "spool: {roll_events: '${env:W}'}",
        "ack: ${env:A}",
        "node: ${env:N:-x}",
        "spool: {max_bytes: '${env:M}', roll_interval: '${env:M}'}",
        "spark: {ui: '${env:U}', conf: {a: 1, b: true, c: x}}",
    ],
)
def test_the_schema_takes_placeholders(schema, text):
    """What comes from outside may stand in every value."""
    assert list(schema.iter_errors(with_a_listener(text))) == []


@pytest.mark.parametrize(
    "text",
    [
        "wrokers: 1",
        "workers: 1",
        "spool: {roll_events: x}",
        "ack: jornal",
        "spool: {max_bytes: 1 megabyte}",
        "spool: {roll_interval: 5}",
        "listeners: [{name: a, protocol: gopher, listen: tcp:1}]",
        "listeners: [{name: a, protocol: lumberjack}]",
        "listeners: [{name: a, protocol: lumberjack, listen: tcp:1, websocket: true}]",
        "listeners: []",
    ],
)
def test_the_schema_finds_mistakes(schema, text):
    """An editor marks what `load` would refuse."""
    assert list(schema.iter_errors(with_a_listener(text))) != []


def test_the_schema_writes_defaults_with_units():
    """What an editor fills in is what one would write."""
    properties = config.json_schema()["$defs"]["Spool"]["properties"]
    assert properties["max_bytes"]["default"] == "20GiB"
    assert properties["roll_interval"]["default"] == "1s"
